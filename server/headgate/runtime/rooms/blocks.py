"""Operators' side of callers: who is shut out, `headgate.v1.Blocks`."""

from collections.abc import Mapping

from headgate.blocks import in_map, instruments
from headgate.blocks.service import BlocksService
from headgate.limiter.blocks import Blocks
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.telemetry.metrics import Metrics
from headgate.transport.admin import Method


class BlocksRoom(Room):
    """Follows the region's map for blocks, and serves operators."""

    _service: BlocksService

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self.blocks = Blocks()
        self._log = rooms.get(DecisionLogRoom)
        self._region = rooms.get(RegionRoom)

    async def start(self) -> None:
        context, region = self.context, self._region
        in_map.follow(region.region_map, self.blocks)
        workers = 1
        if context.worker is not None:
            region.region_map.on_keep, workers = context.worker.on_keep, context.worker.workers
        self._service = BlocksService(
            self.blocks,
            region.region_map,
            region.node,
            context.identity.node,
            context.settings.region,
            self._log.history,
            workers,
        )

    def admin_methods(self) -> Mapping[str, Method]:
        return self._service.methods()

    def register(self, metrics: Metrics) -> None:
        instruments.register(metrics, self._service)
