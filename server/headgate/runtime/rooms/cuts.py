"""Operators' side of other regions: which are cut off, `headgate.v1.Regions`."""

from collections.abc import Mapping

from headgate.cuts.forgetting import ForgetsOtherRegions
from headgate.cuts.service import CutsService
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.peers import PeersRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.transport.admin import Method


class CutsRoom(Room):
    """Follows the region's map for regions that are cut off, and serves operators."""

    _service: CutsService

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._log = rooms.get(DecisionLogRoom)
        self._peers = rooms.get(PeersRoom).list
        self._region = rooms.get(RegionRoom)

    async def start(self) -> None:
        context, region = self.context, self._region
        self._service = CutsService(
            self._peers,
            region.origin,
            region.region_map,
            f"{context.identity.node}/{context.identity.run}".encode(),
            self._log.history,
        )
        self._service.follow()
        if region.node is not None:
            ForgetsOtherRegions(region.node).follow(region.region_map)

    def admin_methods(self) -> Mapping[str, Method]:
        return self._service.methods()
