"""A node of a region: its engine, its shards, and the heartbeats that keep them honest.

Starts in order (connect, learn each shard's time, exchange), serves on by failure policy
whatever the shards do, and leaves in order: what was admitted is reported, grants are
given back.
"""

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Limit
from headgate.limiter.scopes import SlicedCharges
from headgate.origin.interface import HEARTBEAT_S, NODE_GONE_MS, Origin, OriginError, OriginTimeout
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.protocol import UNREADABLE
from headgate.origin.region_map import MAP_KEY
from headgate.region.alone import Alone
from headgate.region.breaker import BreakerSettings
from headgate.region.counters import SharedCounter
from headgate.region.deadline import Deadlines
from headgate.region.engine import RegionalEngine
from headgate.region.region_map import RegionMapReplica
from headgate.region.resets import Reset, Resets
from headgate.region.shard_link import ShardLink
from headgate.region.slices import Slices
from headgate.region.waiting import OnDecided, Waiting

HEARTBEAT_TIMEOUT_S: Final = 0.9
"""Under the heartbeat's period, so that one that stalls does not delay the next."""
RESET_TIMEOUT_S: Final = 1.0
"""Somebody waits for it, and no request does."""
RESET_ATTEMPTS: Final = 5
"""Of one reset: a second one is needed only if the record's number is ahead of the time, or another node was first."""


class _Later:
    """Hands a decision on to a future, which is made only if there is something to wait for."""

    __slots__ = ("_future",)

    def of(self, decision: Decision | None) -> "Decision | asyncio.Future[Decision]":
        if decision is not None:
            return decision
        self._future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        return self._future

    def __call__(self, decision: Decision) -> None:
        if not self._future.done():  # the caller may have gone away; what was decided is counted all the same
            self._future.set_result(decision)


class RegionNode:
    """One node: decides requests, and keeps in touch with every shard. Implements the engine's `Region`."""

    def __init__(
        self,
        origin: Origin,
        *,
        run: bytes,
        clock: Clock,
        random: random.Random,
        logger: FilteringBoundLogger,
        max_cells: int,
        deadline_s: float,
        breaker: BreakerSettings | None = None,
        turn_random: random.Random | None = None,
        live_nodes: int = 1,
        on_live_nodes: Callable[[int], None] = lambda live_nodes: None,
        on_regions_heard: Callable[[int], None] = lambda regions: None,
        data_dir: Path | None = None,
    ) -> None:
        self.run = run
        self.live_nodes = live_nodes
        """Keeps its last value while the shards are away; over a restart it is handed in."""
        self.engine = RegionalEngine(self, monotonic=clock.monotonic, max_cells=max_cells)
        # The request path calls these directly: by what is kept with the keys; None where `ask` must decide.
        self.quick = self.engine.quick
        self.quick_all = self.engine.quick_all
        self.slices = Slices(self.engine.counters, monotonic=clock.monotonic, most=max_cells)
        self._deadlines = Deadlines(deadline_s, clock.monotonic)
        self._on_live_nodes = on_live_nodes
        self._on_regions_heard = on_regions_heard
        self._origin = origin
        self._clock = clock
        numbers = self._numbers = itertools.count(1)
        self.resets = Resets()
        """What this node has heard of resets lately."""
        self.links = [
            ShardLink(
                index,
                origin,
                clock=clock,
                random=random,
                turn_random=turn_random,
                logger=logger,
                numbers=numbers,
                live_counters=lambda: self.engine.counters,
                new_component=self.engine.next_component_name,
                slices=self.slices,
                on_reset=self._heard_reset,
                on_lost_memory=self._lost_memory,
                deadline_s=deadline_s,
                breaker=breaker or BreakerSettings(),
            )
            for index in range(origin.shards)
        ]
        self.region_map = RegionMapReplica(
            origin,
            now_ms=self.links[origin.shard_of(MAP_KEY)].now_ms,
            random=random,
            logger=logger,
            data_dir=data_dir,
        )
        self._pulses = [0] * len(self.links)
        self._regions_heard = [0] * len(self.links)
        self._unsure = [False] * len(self.links)
        self._doubtful_until_s = 0.0
        """Until when the others may not have been heard again by a shard that was away."""
        self._tasks: list[asyncio.Task[None]] = []
        self._teaching: set[asyncio.Task[None]] = set()

    def ask(self, charges: tuple[Charge, ...], then: OnDecided) -> Decision | None:
        """Decide, at once where that is possible. None: `then` is called with the decision, within the deadline.

        On any thread that has the loop's turn; `then` is called on the loop.
        """
        decided: Decision | Waiting | Alone
        if type(charges) is SlicedCharges:
            decided = self.engine.decide(self.slices.in_force(charges))
        elif len(charges) == 1:
            decided = self.engine.decide_one(charges[0])
        else:
            decided = self.engine.decide(charges)
        if isinstance(decided, Decision):
            return decided
        decided.on_decided = then
        self._deadlines.add(decided)
        return None

    def ask_late(self, charges: tuple[Charge, ...], then: OnDecided) -> Decision | None:
        """The same where some charges are late costs or looks. A request of late costs alone is decided at once."""
        if type(charges) is SlicedCharges:
            charges = self.slices.in_force(charges)
        return self._later(self.engine.decide_late(charges), then)

    def _later(self, decided: Decision | Waiting | Alone, then: OnDecided) -> Decision | None:
        if isinstance(decided, Decision):
            return decided
        decided.on_decided = then
        self._deadlines.add(decided)
        return None

    def decide(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]":
        """`ask` for who would rather wait for a future. On the loop."""
        later = _Later()
        return later.of(self.ask(charges, later))

    def decide_late(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]":
        """`ask_late` with a future."""
        later = _Later()
        return later.of(self.ask_late(charges, later))

    def give_back(self, charges: tuple[Charge, ...]) -> None:
        """Costs that were charged and came to less are given back, as far as this node charged them."""
        self.engine.give_back(charges)

    async def reset(self, key: bytes, limit: Limit, shard_key: bytes | None = None) -> int:
        """Forget all that was counted on a key, in this region and, where its limit is global, in all.

        On return it is in force here and in the key's record; other nodes follow with their next call for the key, or
        when they are told (`learn_reset`), other regions with the next batch. Nothing from before it comes back,
        whatever is late, wiped or sent again. Returns the reset's number: 0 has never been used, and each is higher
        than all before. Raises OriginError when the key's shard can't be asked; then it may have been made, or not.
        """
        place = key if shard_key is None else shard_key
        link = self.shard_of(place)
        number = max(link.now_ms(), self.resets.number_of(key) + 1)
        for _ in range(RESET_ATTEMPTS):
            reset = Reset(key, place, limit, number, 0)
            known = await self._tell_reset(link, reset)
            if known == number:
                self.learn_reset(key, limit, number, shard_key)
                return number
            number = known + 1  # the record's is higher than this node knew: one was made by a clock that is ahead
        raise OriginError(f"shard {link.index}: others reset the key at the same time, again and again")

    def learn_reset(self, key: bytes, limit: Limit, number: int, shard_key: bytes | None = None) -> None:
        """Another node has reset a key: what this one knows of it goes, and is not brought back. May be told twice."""
        place = key if shard_key is None else shard_key
        if self.resets.hear(key, place, limit, number, self.shard_of(place).now_ms()):
            self.engine.reset_to(key, number)

    async def _tell_reset(self, link: ShardLink, reset: Reset) -> int:
        """Tell the key's shard; the number that its record has then."""
        report = reset.report(self.run + b".reset", next(self._numbers))
        reply = await self._origin.run(link.index, Call((report,), ()), RESET_TIMEOUT_S)
        if reply.answers[0].grant == UNREADABLE:
            raise OriginError(f"shard {link.index}: the key's record can't be read")
        return reply.answers[0].reset

    def _heard_reset(self, counter: SharedCounter, number: int) -> None:
        """An answer says so; its counter knows by then."""
        self.resets.hear(counter.key, counter.place, counter.limit, number, counter.shard.now_ms())

    def _lost_memory(self, index: int) -> None:
        """The numbers are gone with it: until they are taught again, what is from before them would count."""
        link = self.links[index]
        lost = [reset for reset in self.resets.live(link.now_ms()) if self.shard_of(reset.place) is link]
        if lost:
            task = asyncio.get_running_loop().create_task(self._teach(link, lost), name=f"resets-{index}")
            self._teaching.add(task)
            task.add_done_callback(self._teaching.discard)

    async def _teach(self, link: ShardLink, resets: list[Reset]) -> None:
        for reset in resets:
            for _ in range(RESET_ATTEMPTS):
                try:
                    await self._tell_reset(link, reset)
                except OriginError:
                    await asyncio.sleep(HEARTBEAT_S)
                else:
                    break

    def shard_of(self, key: bytes) -> ShardLink:
        """The link to the shard that owns a limit key."""
        links = self.links
        return links[0] if len(links) == 1 else links[self._origin.shard_of(key)]

    def earliest_ms(self) -> int:
        """The earliest of all shards' times."""
        return min([link.now_ms() for link in self.links])

    def unanswered(self) -> list[str]:
        """Why not, for each shard that has never answered."""
        return [f"shard {link.index}: {link.last_error}" for link in self.links if not link.has_answered]

    def describe(self) -> Mapping[str, Any]:
        """For people: every shard, and whether it is being asked."""
        shards = [
            {
                "shard": link.index,
                "breaker": link.breaker.state.value,
                "error": link.last_error or None,
            }
            for link in self.links
        ]
        return {
            "live_nodes": self.live_nodes,
            "shards": shards,
            "servers": [dataclasses.asdict(server) for server in self._origin.describe()],
        }

    async def start(self) -> None:
        """Shards that do not answer do not keep the node from serving."""
        self._deadlines.start()
        await self._origin.open()
        await asyncio.gather(*(self._beat(link) for link in self.links))
        for link in self.links:
            self._tasks.append(asyncio.create_task(link.run(), name=f"shard-{link.index}"))
            self._tasks.append(asyncio.create_task(self._heartbeats(link), name=f"heartbeat-{link.index}"))
        self._tasks.append(asyncio.create_task(self.region_map.run(), name="region-map"))

    @property
    def running(self) -> bool:
        """Whether every task that `start` began still runs."""
        return not any(task.done() for task in self._tasks)

    async def abandon(self) -> None:
        """End at once: nothing is reported and nothing is given back, as in a crash."""
        tasks = [*self._tasks, *self._teaching]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self, timeout_s: float) -> None:
        """Report what was admitted and give all grants back, as far as the time allows."""
        await self.abandon()
        await asyncio.gather(*(link.leave(timeout_s) for link in self.links))
        await self._origin.close()

    async def _heartbeats(self, link: ShardLink) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self._beat(link)

    async def _beat(self, link: ShardLink) -> None:
        sent_s = self._clock.monotonic()
        try:
            pulse = await self._origin.run(link.index, Heartbeat(self.run), HEARTBEAT_TIMEOUT_S)
        except Exception as error:
            # Foreseen or not: a heartbeat that fails must neither be the last nor keep a node from starting.
            link.last_error = str(error) if isinstance(error, OriginError) else f"{type(error).__name__}: {error}"
            self._doubtful_until_s = self._clock.monotonic() + NODE_GONE_MS / 1000
            # It may have been carried out, and so hide from the next one that the shard had forgotten this node.
            self._unsure[link.index] |= isinstance(error, OriginTimeout)
            return
        had_beaten, self._pulses[link.index] = self._pulses[link.index], pulse.live_nodes
        link.heard(pulse.time_ms, pulse.epoch, sent_s)
        if link.index == self.region_map.shard:
            self.region_map.heard(pulse.region_map, pulse.epoch)
        self._note_live_nodes(max(self._pulses))
        self._regions_heard[link.index] = pulse.regions_heard
        self._on_regions_heard(max(self._regions_heard))
        unsure, self._unsure[link.index] = self._unsure[link.index], False
        # Before the first heartbeat there may have been calls: a node that starts while the shard is away.
        if (had_beaten or link.stats.calls) and (unsure or not pulse.known):
            link.lost_memory("this node's heartbeat is gone, or was when the last one was not answered")

    def _note_live_nodes(self, live_nodes: int) -> None:
        """A shard that was away has forgotten who lives: until all have had time to tell it, the count only rises.

        Else the first one back believes itself alone, and admits for all should the shard go again.
        """
        if self._clock.monotonic() < self._doubtful_until_s:
            live_nodes = max(live_nodes, self.live_nodes)
        if live_nodes != self.live_nodes:
            self.live_nodes = live_nodes
            self._on_live_nodes(live_nodes)
