"""Operators' side of single limit keys: overrides in force, resets, `headgate.v1.Keys`."""

from collections.abc import Mapping

from headgate.keys import instruments, overriding, resetting
from headgate.keys.naming import KeyNames
from headgate.keys.service import KeysService, RegionAccess
from headgate.limiter.overrides import Overrides
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.blocks import BlocksRoom
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.runtime.rooms.rules import RulesRoom
from headgate.telemetry.metrics import Metrics
from headgate.transport.admin import Method


class KeysRoom(Room):
    """Follows the region's map for overrides and resets, and serves operators."""

    _service: KeysService

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self.overrides = Overrides()
        self._log = rooms.get(DecisionLogRoom)
        self._rules = rooms.get(RulesRoom)
        self._region = rooms.get(RegionRoom)
        self._blocks = rooms.get(BlocksRoom)

    async def start(self) -> None:
        region, store = self._region, self._rules.store
        names = KeyNames(lambda: store.current, region.limits, self.overrides)
        overriding.follow(region.region_map, self.overrides)
        if region.node is not None:
            resetting.follow(region.region_map, names, region.node)
        self._service = KeysService(
            names,
            self.overrides,
            self._blocks.blocks,
            RegionAccess(self.context.identity.node, region.origin, region.region_map, region.engine, region.node),
            self.context.clock,
            self._log.history,
        )

    def admin_methods(self) -> Mapping[str, Method]:
        return self._service.methods()

    def register(self, metrics: Metrics) -> None:
        instruments.register(metrics, self._service)
