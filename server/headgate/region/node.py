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
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.limiter.decision import Charge, Decision
from headgate.origin.interface import HEARTBEAT_S, NODE_GONE_MS, Origin, OriginError, OriginTimeout
from headgate.region.breaker import BreakerSettings
from headgate.region.deadline import Deadline
from headgate.region.engine import RegionalEngine
from headgate.region.shard_link import ShardLink

HEARTBEAT_TIMEOUT_S: Final = 0.9
"""Under the heartbeat's period, so that one that stalls does not delay the next."""


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
        live_nodes: int = 1,
        on_live_nodes: Callable[[int], None] = lambda live_nodes: None,
        on_regions_heard: Callable[[int], None] = lambda regions: None,
    ) -> None:
        self.run = run
        self.live_nodes = live_nodes
        """Keeps its last value while the shards are away; over a restart it is handed in."""
        self.engine = RegionalEngine(self, monotonic=clock.monotonic, max_cells=max_cells)
        self._deadline_s = deadline_s
        self._on_live_nodes = on_live_nodes
        self._on_regions_heard = on_regions_heard
        self._origin = origin
        self._clock = clock
        numbers = itertools.count(1)
        self.links = [
            ShardLink(
                index,
                origin,
                clock=clock,
                random=random,
                logger=logger,
                numbers=numbers,
                live_counters=lambda: self.engine.counters,
                new_component=self.engine.next_component_name,
                deadline_s=deadline_s,
                breaker=breaker or BreakerSettings(),
            )
            for index in range(origin.shards)
        ]
        self._pulses = [0] * len(self.links)
        self._regions_heard = [0] * len(self.links)
        self._unsure = [False] * len(self.links)
        self._doubtful_until_s = 0.0
        """Until when the others may not have been heard again by a shard that was away."""
        self._tasks: list[asyncio.Task[None]] = []

    def decide(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]":
        """At once where that is possible; else within the deadline."""
        decided = self.engine.decide(charges)
        if isinstance(decided, Decision):
            return decided
        return Deadline(decided, self._deadline_s, self._clock.monotonic).future

    def shard_of(self, key: bytes) -> ShardLink:
        """The link to the shard that owns a limit key."""
        return self.links[self._origin.shard_of(key)]

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
        await self._origin.open()
        await asyncio.gather(*(self._beat(link) for link in self.links))
        for link in self.links:
            self._tasks.append(asyncio.create_task(link.run(), name=f"shard-{link.index}"))
            self._tasks.append(asyncio.create_task(self._heartbeats(link), name=f"heartbeat-{link.index}"))

    @property
    def running(self) -> bool:
        """Whether every task that `start` began still runs."""
        return not any(task.done() for task in self._tasks)

    async def abandon(self) -> None:
        """End at once: nothing is reported and nothing is given back, as in a crash."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
            pulse = await self._origin.heartbeat(link.index, self.run, HEARTBEAT_TIMEOUT_S)
        except Exception as error:
            # Foreseen or not: a heartbeat that fails must neither be the last nor keep a node from starting.
            link.last_error = str(error) if isinstance(error, OriginError) else f"{type(error).__name__}: {error}"
            self._doubtful_until_s = self._clock.monotonic() + NODE_GONE_MS / 1000
            # It may have been carried out, and so hide from the next one that the shard had forgotten this node.
            self._unsure[link.index] |= isinstance(error, OriginTimeout)
            return
        had_beaten, self._pulses[link.index] = self._pulses[link.index], pulse.live_nodes
        link.heard(pulse.time_ms, pulse.epoch, sent_s)
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
