"""A node of a region: its engine, its shards, and the heartbeats that keep them honest.

Starts in order (connect, learn each shard's time, exchange), serves on by failure policy
whatever the shards do, and leaves in order: what was admitted is reported, allowances are
given back.
"""

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Limit
from headgate.limiter.scopes import SlicedCharges
from headgate.origin.interface import HEARTBEAT_S, NODE_GONE_MS, Origin, OriginError, owners_of
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat, Pulse
from headgate.origin.protocol import SEALED, UNREADABLE
from headgate.origin.region_map import MAP_KEY
from headgate.region.breaker import BreakerSettings
from headgate.region.counters import SharedCounter
from headgate.region.deadline import Deadlines
from headgate.region.engine import RegionalEngine
from headgate.region.extension import CallExtension, MakeExtension, NoExtension
from headgate.region.list_keeper import ShardListKeeper
from headgate.region.mover import PlaceOf
from headgate.region.region_map import RegionMapReplica
from headgate.region.resets import Reset, Resets
from headgate.region.session import ShardSession
from headgate.region.session_owner import Chances
from headgate.region.shard import Shard
from headgate.region.shard_link import LinkTerms, ShardLink
from headgate.region.waiting import Question, WaitingRequest

HEARTBEAT_TIMEOUT_S: Final = 0.9
"""Under the heartbeat's period, so that one that stalls does not delay the next."""
RESET_TIMEOUT_S: Final = 1.0
"""Somebody waits for it, and no request does."""
MOVING_S: Final = 0.01
"""Pause before a record that is on its way to another shard is asked for again: it is there in about a millisecond."""
RESET_ATTEMPTS: Final = 5
"""Attempts at one reset: more than one only if the record's number is ahead of the time, or another node was first."""


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
        pause_random: random.Random | None = None,
        live_nodes: int = 1,
        on_live_nodes: Callable[[int], None] = lambda live_nodes: None,
        on_regions_heard: Callable[[int], None] = lambda regions: None,
        data_dir: Path | None = None,
        extension: MakeExtension = NoExtension,
        place_of: PlaceOf = lambda key: key,
    ) -> None:
        self.run = run
        self.live_nodes = live_nodes
        """Keeps its last value while the shards are away; over a restart it is handed in."""
        self.engine = RegionalEngine(self, monotonic=clock.monotonic, max_cells=max_cells)
        self.extension: CallExtension = extension(self.engine.counters)
        self._deadlines = Deadlines(deadline_s, clock.monotonic)
        self._on_live_nodes = on_live_nodes
        self._on_regions_heard = on_regions_heard
        self._origin = origin
        self._clock = clock
        self._logger = logger
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        """Tasks of each shard's link; those of none in particular under -1."""
        self._passing: set[asyncio.Task[None]] = set()
        """Tasks that end by themselves."""
        self.numbers: Iterator[int] = itertools.count(1)
        self.resets = Resets()
        """Resets that this node has heard of lately."""
        chances = Chances(random, pause_random or random)
        self._terms = LinkTerms(clock, chances, logger, deadline_s, breaker or BreakerSettings())
        self.links: list[ShardLink] = []
        """Links by the shard's number; that of a shard which no list names is not in use."""
        self.lists = ShardListKeeper(self, origin, place_of, clock, logger, run=run, deadline_s=deadline_s)
        for index in self.lists.named or range(origin.shards):
            self.meet(index)
        self.region_map = RegionMapReplica(
            origin,
            now_ms=self.links[origin.shard_of(MAP_KEY)].session.now_ms,
            random=random,
            logger=logger,
            data_dir=data_dir,
        )
        self._pulses: dict[int, Pulse] = {}
        """The last one of each shard that the node is in touch with."""
        self._beats: Iterator[int] = itertools.count(1)
        self._doubtful_until_s = 0.0
        """Time until which the others may not have been heard again by a shard that was away."""

    def decide(self, charges: tuple[Charge, ...], caller: str = "") -> Decision | WaitingRequest:
        """Decide all charges of a request together; one that waits for a shard is decided within the deadline.

        On the loop, or on a thread that holds the loop's lock; `on_decided` of a waiting request is called on the loop.
        """
        if type(charges) is SlicedCharges:
            charges = self.extension.in_force(charges)
        decided = self.engine.decide(charges, caller)
        if isinstance(decided, WaitingRequest):
            self._deadlines.add(decided)
        return decided

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        """Undo costs that came to less than was charged, as far as this node charged them."""
        self.engine.uncharge(charges)

    def live_counters(self) -> Iterable[SharedCounter]:
        """Return all counters of the node."""
        return self.engine.counters

    def new_component(self) -> bytes:
        """Return the name of a component that this run has never used."""
        return self.engine.next_component_name()

    async def reset(self, key: bytes, limit: Limit, shard_key: bytes | None = None) -> int:
        """Forget all that was counted on a key, in this region and, where its limit is global, in all.

        On return it is in force here and in the key's record; other nodes follow with their next call for the key, or
        when they are told (`learn_reset`), other regions with the next batch. Nothing from before it comes back,
        whatever is late, wiped or sent again. Returns the reset's number: 0 has never been used, and each is higher
        than all before. Raises OriginError when the key's shard can't be asked; then it may have been made, or not.
        """
        place = key if shard_key is None else shard_key
        number = max(self.shard_of(place).now_ms(), self.resets.number_of(key) + 1)
        for _ in range(RESET_ATTEMPTS):
            known = await self._tell_reset(Reset(key, place, limit, number, 0))
            if known == number:
                self.learn_reset(key, limit, number, shard_key)
                return number
            number = known + 1  # the record's is higher than this node knew: one was made by a clock that is ahead
        raise OriginError("others reset the key at the same time, again and again")

    def learn_reset(self, key: bytes, limit: Limit, number: int, shard_key: bytes | None = None) -> None:
        """Forget what this node knows of a key that another one has reset. May be called twice."""
        place = key if shard_key is None else shard_key
        if self.resets.hear(key, place, limit, number, self.shard_of(place).now_ms()):
            self.engine.reset_to(key, number)

    async def _tell_reset(self, reset: Reset) -> int:
        """Tell the key's shard of the reset; return the number that its record has then."""
        for _ in range(RESET_ATTEMPTS):
            for shard in owners_of(self._origin, reset.place):
                report = reset.report(self.run + b".reset", next(self.numbers))
                leaving = () if shard == self._origin.shard_of(reset.place) else (0,)
                reply = await self._origin.run(shard, Call((report,), (), self.list_number, leaving), RESET_TIMEOUT_S)
                answer = reply.answers[0]
                if answer.more == UNREADABLE:
                    raise OriginError(f"shard {shard}: the key's record can't be read")
                if answer.more > UNREADABLE:
                    return answer.reset
                if answer.more == SEALED:
                    break
            await asyncio.sleep(MOVING_S)
        raise OriginError("the key's record is on its way to another shard")

    def heard_reset(self, counter: SharedCounter, number: int) -> None:
        """Remember a reset that an answer tells of; its counter knows by then."""
        self.resets.hear(counter.key, counter.place, counter.limit, number, counter.shard.now_ms())

    def lost_memory(self, index: int) -> None:
        """Teach a shard that lost its memory the resets again: else what is from before them would count."""
        shard = self.links[index].session
        lost = [reset for reset in self.resets.live(shard.now_ms()) if index in owners_of(self._origin, reset.place)]
        if lost:
            self.do(self._teach(lost), f"resets-{index}")

    def do(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Have something done beside the requests."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        return task

    async def _teach(self, resets: list[Reset]) -> None:
        for reset in resets:
            for _ in range(RESET_ATTEMPTS):
                try:
                    await self._tell_reset(reset)
                except OriginError:
                    await asyncio.sleep(HEARTBEAT_S)
                else:
                    break

    def shard_of(self, key: bytes) -> ShardSession:
        """Return the session with the shard that a limit key is to be asked for: while it moves the one that it leaves,
        which says where it is."""
        links = self.links
        return (links[0] if len(links) == 1 else links[self._origin.shard_before(key)]).session

    def earliest_ms(self) -> int:
        """Return the earliest of all shards' times."""
        return min([link.session.now_ms() for link in self.links_in_use])

    # The list of shards

    @property
    def links_in_use(self) -> list[ShardLink]:
        """Links to the shards that the node is in touch with."""
        return [link for link in self.links if link.in_use]

    @property
    def list_number(self) -> int:
        """Number of the list of shards by which the region places keys; 0: it has not agreed on one."""
        return self.lists.number

    def leaving(self, index: int, counters: Sequence[SharedCounter]) -> tuple[int, ...]:
        """Return the positions of those counters whose keys leave the shard."""
        return self.lists.leaving(index, counters)

    def came_by(self, counter: SharedCounter) -> int:
        """Return the number of the list by which a counter's key came to its shard; 0 if it was there before."""
        return self.lists.came_by(counter)

    def not_here(self, counter: SharedCounter, *, sealed: bool) -> None:
        """Find the shard where a counter's record is, its own having none; `sealed`: it is on its way."""
        self.lists.not_here(counter, sealed=sealed)

    def meet(self, index: int) -> None:
        """Get in touch with a shard that was named."""
        for number in range(len(self.links), index + 1):
            self.links.append(ShardLink(number, self, self._origin, self._terms, in_use=False))
        if not self.links[index].in_use:
            self.links[index] = ShardLink(index, self, self._origin, self._terms)
        if self._tasks and index not in self._tasks:
            self._run_link(self.links[index])
            self.do(self.beat(self.links[index]), f"heartbeat-{index}")

    async def part(self, index: int) -> None:
        """Lose touch with a shard that no list names any more."""
        tasks = self._tasks.pop(index, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pulses.pop(index, None)
        self.links[index].in_use = False
        await self._origin.leave(index)

    def ask(self, question: Question) -> None:
        """Put the question into the next call to its shard."""
        self.links[question.shard.index].session.ask(question)

    def missed_deadline(self, shard: Shard[SharedCounter]) -> None:
        """Note that a question to the shard was not answered by its request's deadline."""
        self.links[shard.index].missed_deadline()

    def unanswered(self) -> list[str]:
        """Return the last error of each shard that has never answered."""
        return [f"shard {link.index}: {link.last_error}" for link in self.links_in_use if not link.session.has_answered]

    def describe(self) -> Mapping[str, Any]:
        """Return, for people, every shard, and whether it is being asked."""
        shards = [
            {
                "shard": link.index,
                "breaker": link.breaker.state.value,
                "error": link.last_error or None,
            }
            for link in self.links_in_use
        ]
        return {
            "live_nodes": self.live_nodes,
            "listed_otherwise": self.listed_otherwise,
            **self.lists.describe(),
            "shards": shards,
            "servers": [dataclasses.asdict(server) for server in self._origin.describe()],
        }

    async def start(self) -> None:
        """Connect, and begin to serve; shards that do not answer do not keep the node from that."""
        self._deadlines.start()
        await self._origin.open()
        listed = self.links_in_use
        await asyncio.gather(*(self.beat(link) for link in listed))
        await self.lists.agree()
        # Shards that the region's list names, and the settings do not.
        await asyncio.gather(*(self.beat(link) for link in self.links_in_use if link not in listed))
        self._tasks[-1] = [asyncio.create_task(self.region_map.run(), name="region_map")]
        for link in self.links_in_use:
            if link.index not in self._tasks:
                self._run_link(link)

    def _run_link(self, link: ShardLink) -> None:
        self._tasks[link.index] = [
            asyncio.create_task(link.run(), name=f"shard-{link.index}"),
            asyncio.create_task(self._heartbeats(link), name=f"heartbeat-{link.index}"),
        ]

    @property
    def running(self) -> bool:
        """True while every task that `start` began still runs."""
        return not any(task.done() for tasks in self._tasks.values() for task in tasks)

    async def abandon(self) -> None:
        """End at once: nothing is reported and nothing is given back, as in a crash."""
        tasks = [task for tasks in self._tasks.values() for task in tasks] + [*self._passing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self, timeout_s: float) -> None:
        """Report what was admitted and give all allowances back, as far as the time allows."""
        await self.abandon()
        await asyncio.gather(*(link.leave(timeout_s) for link in self.links_in_use))
        if self.lists.changing:
            # What one shard said to be elsewhere is told there.
            await asyncio.gather(*(link.leave(timeout_s) for link in self.links_in_use))
        await self.abandon()
        await self._origin.close()

    async def _heartbeats(self, link: ShardLink) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self.beat(link)

    async def beat(self, link: ShardLink) -> None:
        """Tell a shard that this node lives, and take in what it says."""
        sent_s, said = self._clock.monotonic(), self.lists.said()
        beat = Heartbeat(self.run, next(self._beats), link.session.beat_ms, said, self.lists.told)
        try:
            pulse = await self._origin.run(link.index, beat, HEARTBEAT_TIMEOUT_S)
        except Exception as error:
            # Foreseen or not: a heartbeat that fails must neither be the last nor keep a node from starting.
            link.last_error = str(error) if isinstance(error, OriginError) else f"{type(error).__name__}: {error}"
            self._doubtful_until_s = self._clock.monotonic() + NODE_GONE_MS / 1000
            self.lists.missed(link.index)
            return
        before, self._pulses[link.index] = self.listed_otherwise, pulse
        link.session.beaten(pulse, sent_s, self._clock.monotonic())
        link.heard_older(pulse.older)
        if link.index == self.region_map.shard:
            self.region_map.heard(pulse.region_map, pulse.epoch)
        self._note_live_nodes(max(pulse.live_nodes for pulse in self._pulses.values()))
        self._on_regions_heard(max(pulse.regions_heard for pulse in self._pulses.values()))
        self._say_lists(before)
        self.lists.heard(link.index, said, pulse)

    @property
    def listed_otherwise(self) -> int:
        """Live nodes that want another list of shards, as last heard of any shard in both lists."""
        return max((pulse.listed_otherwise for pulse in self._pulses.values()), default=0)

    def _say_lists(self, before: int) -> None:
        """Log it when nodes begin to want different lists, and when that is over."""
        now = self.listed_otherwise
        if now and not before:
            self._logger.warning("shard_lists_differ", nodes=now)
        elif before and not now:
            self._logger.info("shard_lists_agree")

    def _note_live_nodes(self, live_nodes: int) -> None:
        """Take in the number of live nodes; after a shard was away it only rises until all have told it that they live.

        Else the first one back believes itself alone, and admits for all should the shard go again.
        """
        if self._clock.monotonic() < self._doubtful_until_s:
            live_nodes = max(live_nodes, self.live_nodes)
        if live_nodes != self.live_nodes:
            self.live_nodes = live_nodes
            self._on_live_nodes(live_nodes)
