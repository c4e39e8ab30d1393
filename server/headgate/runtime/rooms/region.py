"""The node's place in its region: the engine that counts, the origin where nodes meet, the region's map."""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.limiter import instruments as cell_instruments
from headgate.limiter.cell_scope import CellUse
from headgate.limiter.engine import Engine
from headgate.origin.interface import Origin
from headgate.origin.redis_origin.secrets import FILE_SCHEME
from headgate.origin.region_map import MapEntry
from headgate.quota.node_slices import NodeSlices
from headgate.region import instruments
from headgate.region.active import ActiveRegions
from headgate.region.engine import RegionalEngine
from headgate.region.live_nodes import read_live_nodes, write_live_nodes
from headgate.region.node import RegionNode
from headgate.region.region_map import RegionMapReplica
from headgate.rules.key_places import KeyPlaces
from headgate.runtime.context import ProcessContext
from headgate.runtime.from_settings import breaker_settings, max_cells
from headgate.runtime.origin_file import OriginFile
from headgate.runtime.regions import limits_of_region, open_regions_origin
from headgate.runtime.room import Room, Rooms, Task
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.peers import PeersRoom
from headgate.runtime.rooms.rules import RulesRoom
from headgate.telemetry.metrics import Metrics

SWEEP_STEPS: Final = 1_000
"""Cells looked at before the loop gets its turn again: well under a millisecond."""

ORIGIN_LOOK_S: Final = 0.05
"""Pause between looks whether the origin has answered, while it is waited for; it is asked every second."""

REASONS_SHOWN: Final = 3
"""Reasons of shards that do not answer. A Cluster has 64, and they say the same."""


class RegionRoom(Room):
    """Counts alone where the origin is this process's own; any other node meets the rest of its region there."""

    origin: Origin
    engine: Engine | RegionalEngine
    decider: Engine | RegionNode
    region_map: RegionMapReplica
    node: RegionNode | None = None
    """None for a node on its own, and until it has joined its region."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._log = rooms.get(DecisionLogRoom)
        self._peers = rooms.get(PeersRoom).list
        self._names = self._peers.names
        """Names of the peers that limits were last bound by."""
        self.limits = limits_of_region(context.settings, self._peers)
        self._active = ActiveRegions(self.limits, 1 + len(self._names), context.clock, self._regions_changed)
        self._peers.listen(self._follow_peers)
        self._rules = rooms.get(RulesRoom)
        self._file: OriginFile | None = None

    async def start(self) -> None:
        context = self.context
        self.origin = open_regions_origin(context.settings, context.clock, context.logger)
        if self.origin.exclusive:
            await self._stay_alone()
        else:
            await self._join()
        self._cell_use = CellUse(self.engine.counters, self.limits, context.clock)

    async def _stay_alone(self) -> None:
        context = self.context
        self.decider = self.engine = Engine(context.clock, max_cells=max_cells(context.settings))
        self.region_map = RegionMapReplica(
            self.origin,
            now_ms=context.clock.now_ms,
            random=context.random,
            logger=context.logger,
            data_dir=context.settings.data_dir,
        )
        await self.region_map.refresh()

    async def _join(self) -> None:
        context, settings = self.context, self.context.settings
        most = max_cells(settings)
        node = self.node = RegionNode(
            self.origin,
            run=context.run,
            clock=context.clock,
            random=context.random,
            logger=self._log.history,
            max_cells=most,
            deadline_s=settings.origin_deadline_ms / 1000,
            breaker=breaker_settings(settings),
            live_nodes=read_live_nodes(settings.data_dir),
            on_live_nodes=self._live_nodes_changed,
            on_regions_heard=self._active.heard,
            data_dir=settings.data_dir,
            extension=partial(NodeSlices, monotonic=context.clock.monotonic, most=most),
            place_of=KeyPlaces(lambda: self._rules.store.current).place_of,
        )
        self.decider, self.engine, self.region_map = node, node.engine, node.region_map
        await node.start()
        if settings.origin.startswith(FILE_SCHEME) and self.origin.listed:
            self._file = OriginFile(settings.origin, self._log.history, node.lists.want)

    def tasks(self) -> Mapping[str, Task]:
        return {} if self._file is None else {"origin_file": self._file.watch}

    def _live_nodes_changed(self, live_nodes: int) -> None:
        write_live_nodes(self.context.settings.data_dir, live_nodes)
        self._log.note("live_nodes", {"live_nodes": live_nodes})

    async def _follow_peers(self) -> None:
        before, self._names = self._names, self._peers.names
        self._active.follow(joined=len(self._names - before), left=len(before - self._names))
        self._log.history.info(
            "regions_changed", joined=sorted(self._names - before), left=sorted(before - self._names)
        )

    def _regions_changed(self, active: int) -> None:
        regions = self._active.configured
        log = self._log.history.info if active == regions else self._log.history.warning
        log("active_regions_changed", active=active, of=regions)

    async def wait_for_origin(self) -> None:
        """Wait until every shard has answered once, if that is wanted: then a wrong password ends the start.

        Meanwhile health says not serving, /readyz says why, and calls that come anyway are decided
        by their rules' failure policies.
        """
        stopping, monotonic = self.context.stopping, self.context.clock.monotonic
        patience_s = self.context.settings.wait_for_origin
        if self.node is None or not patience_s:
            return
        deadline_s = monotonic() + patience_s
        while (reasons := self.node.unanswered()) and not stopping.asked:
            if monotonic() >= deadline_s:
                shown = "; ".join(reasons[:REASONS_SHOWN])
                more = f"; and {len(reasons) - REASONS_SHOWN} more" if len(reasons) > REASONS_SHOWN else ""
                raise ConfigError(f"origin: no answer within {patience_s:g} s (--wait-for-origin): {shown}{more}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), ORIGIN_LOOK_S)

    def sweep(self) -> bool:
        """Drop expired counters, a slice of them; True while more may be due."""
        return self.engine.sweep(SWEEP_STEPS)

    def learn(self, entry: MapEntry) -> None:
        """Take in what another worker keeps while the origin is away."""
        if self.node is not None:
            self.region_map.learn(entry)

    def tick(self) -> None:
        self.region_map.expire()
        self._cell_use.look()

    def register(self, metrics: Metrics) -> None:
        cell_instruments.register(metrics, self.engine.counters)
        if self.node is not None:
            instruments.register(metrics, self.node)
        if self.context.settings.has_peers:
            instruments.register_active(metrics, self._active)
            cell_instruments.register_cell_scope(metrics, self._cell_use, self.context.settings.region)

    def time_of(self, counter: Any) -> int:
        """Return the time of a counter in milliseconds: its shard's; of a node on its own, the clock's."""
        return self.context.clock.now_ms() if self.node is None else int(counter.shard.now_ms())

    def shard_now_ms(self, shard: int) -> int:
        """Return the time of a shard; of a node on its own, the clock's."""
        return self.context.clock.now_ms() if self.node is None else self.node.links[shard].session.now_ms()

    def readiness(self) -> Mapping[str, Any]:
        """Describe the origin for `/readyz`."""
        if self.node is None:
            return {"url": "memory://"}
        error = {"file_error": self._file.error} if self._file is not None and self._file.error else {}
        return {**self.node.describe(), **error}

    async def stop(self, patience_s: float) -> None:
        # After the last answer, so that it is reported too.
        if self.node is not None:
            await self.node.stop(patience_s)
