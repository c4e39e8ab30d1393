"""Operators' side of the worst hour: who is shut out, `headgate.v1.Blocks`; and which rules deny nobody for a time."""

from collections.abc import Mapping

from headgate.blocks import in_map, instruments, shadows_in_map
from headgate.blocks.region_writer import RegionWriter
from headgate.blocks.service import BlocksService
from headgate.blocks.shadows import ShadowsService
from headgate.limiter.blocks import Blocks
from headgate.limiter.shadows import Shadows
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.telemetry.metrics import Metrics
from headgate.transport.admin import Method


class BlocksRoom(Room):
    """Follows the region's map for blocks and shadows, and serves operators."""

    _service: BlocksService
    _shadows: ShadowsService

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self.blocks = Blocks()
        self.shadows = Shadows(context.clock.now_ms)
        self._log = rooms.get(DecisionLogRoom)
        self._region = rooms.get(RegionRoom)

    async def start(self) -> None:
        context, region = self.context, self._region
        in_map.follow(region.region_map, self.blocks, self._log.history)
        shadows_in_map.follow(region.region_map, self.shadows)
        workers = 1
        if context.worker is not None:
            region.region_map.on_keep, workers = context.worker.on_keep, context.worker.workers
        writer = RegionWriter(region.region_map, region.node, context.identity.node, context.settings.region, workers)
        self._service = BlocksService(self.blocks, region.region_map, writer, self._log.history)
        self._shadows = ShadowsService(region.region_map, writer, self._log.history)

    def tick(self) -> None:
        self.shadows.expire()

    def admin_methods(self) -> Mapping[str, Method]:
        return {**self._service.methods(), **self._shadows.methods()}

    def register(self, metrics: Metrics) -> None:
        instruments.register(metrics, self._service)
        metrics.gauge(
            "headgate_shadowed_domains",
            "Domains with rules in shadow now, by an operator: counted and logged, and nobody is denied by them.",
            lambda: len(self.shadows),
        )
