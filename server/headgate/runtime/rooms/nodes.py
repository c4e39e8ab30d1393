"""The region's nodes as each other sees them: their bulletins, and `GET /nodes`."""

import asyncio
from collections.abc import Mapping
from typing import Any

from headgate.runtime.board import READ_KEPT_S, RegionBoard
from headgate.runtime.bulletin import BulletinWriter
from headgate.runtime.context import ProcessContext
from headgate.runtime.nodes import describe_nodes
from headgate.runtime.room import Room, Rooms, Task
from headgate.runtime.rooms.handler import HandlerRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.runtime.rooms.rules import RulesRoom
from headgate.runtime.trend import asked_grain
from headgate.telemetry.metrics import Metrics


class NodesRoom(Room):
    """Posts this node's bulletin, and tells those of all."""

    _board: RegionBoard

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._rules = rooms.get(RulesRoom)
        self._region = rooms.get(RegionRoom)
        self._handler = rooms.get(HandlerRoom)
        self._described: dict[int, tuple[float, Mapping[str, Any]]] = {}
        """Answers to `GET /nodes` and when they were made, by grain."""
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        context, region, handler = self.context, self._region, self._handler
        tallies = handler.handler.tallies
        writer = BulletinWriter(context, self._rules.store, region.node, handler.top, handler.trend, tallies)
        origin = None if region.node is None else region.origin
        self._board = RegionBoard(writer, context.run, origin, lambda: region.region_map.shard, context.clock)

    def tasks(self) -> Mapping[str, Task]:
        return {"bulletins": self._board.run}

    async def bulletins(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """For `GET /bulletins`: what each node says, as it said it."""
        node = self._region.node
        live_nodes = 1 if node is None else node.live_nodes
        return {**await self._board.tell(query), "region": self.context.identity.region, "live_nodes": live_nodes}

    async def describe(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """For `GET /nodes`: made once a second for each grain, however many ask. Raises BadRequest."""
        grain_s, monotonic = asked_grain(query), self.context.clock.monotonic
        async with self._turn:
            made_s, described = self._described.get(grain_s, (float("-inf"), {}))
            if monotonic() - made_s >= READ_KEPT_S:
                # In a thread: of a hundred nodes it takes some tens of milliseconds.
                described = await asyncio.to_thread(describe_nodes, await self.bulletins(query), grain_s)
                self._described[grain_s] = monotonic(), described
        return described

    def register(self, metrics: Metrics) -> None:
        metrics.counter(
            "headgate_bulletin_failures",
            "Bulletins that could not be posted or read: the page of the region may lack something.",
            lambda: self._board.failures,
        )

    async def stop(self, patience_s: float) -> None:
        if patience_s and hasattr(self, "_board"):
            await self._board.leave()
