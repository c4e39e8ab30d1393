"""`headgate.v1.Regions`: cut a region off, with all that it stated, and take it back.

A cut stands in the region's map: every exchanger hears of it within about a second, ends the region's streams and sends
it nothing. Then its counts are taken out of the keys, twice: what was under way when the first round began is in the
second. Every change is written to the log with who, what and why.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.cuts.forgetting import TIMEOUT_S, forget_region
from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import BadRequest, NotReady
from headgate.exchange.fill import again
from headgate.exchange.peer_list import PeerList
from headgate.keys.overriding import reason
from headgate.origin.cut_regions import Cut, entry_of, read, region_of, removal_of
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.region_map import MapEntry
from headgate.region.region_map import RegionMapReplica
from headgate.v1 import regions_pb2 as pb

SERVICE: Final = "headgate.v1.Regions"
ROUNDS: Final = 2
HEARD_S: Final = 1.5
"""Seconds until every exchanger has heard: each looks at the map once a second."""


@dataclass(frozen=True, slots=True)
class CutsService:
    """The methods of the service, each from a message to a message. See the module."""

    peers: PeerList
    """Regions that this one is configured with."""
    origin: Origin
    region_map: RegionMapReplica
    owner: bytes
    """Name of this process in leases."""
    logger: FilteringBoundLogger
    cuts: dict[str, Cut] = field(default_factory=dict)
    """Cuts in force, as this node has heard."""

    def follow(self) -> None:
        """Know the cuts in force, now and whenever they change."""
        self.region_map.listen(self._changed)

    def methods(self) -> Mapping[str, AdminMethod]:
        """Return the methods by path."""
        return {
            f"/{SERVICE}/Cut": admin_method(pb.CutRequest, self.cut),
            f"/{SERVICE}/Restore": admin_method(pb.RestoreRequest, self.restore),
            f"/{SERVICE}/ListCuts": admin_method(pb.ListCutsRequest, self.list_cuts),
        }

    async def cut(self, request: pb.CutRequest, operator: Operator) -> pb.CutResponse:
        """Hear nothing of a region any more, and take out all that it stated."""
        region, why = request.region, reason(request.why)
        if region not in self.peers.names:
            known = ", ".join(sorted(self.peers.names)) or "none"
            raise BadRequest(f"region: {region!r} is no peer of this region (its peers: {known})")
        cut = Cut(region, operator.who, why, self.region_map.now_ms())
        await self._write(entry_of(cut), "nothing has changed")
        self.logger.warning("region_cut_off", who=operator.who, peer=operator.peer, why=why, region=region)
        keys = 0
        for step in range(1, ROUNDS + 1):
            await asyncio.sleep(HEARD_S)
            keys += await self._forget(region)
            await self._write(entry_of(replace(cut, step=step)), "its counts are out of the keys, and nodes know them")
        self.logger.warning("region_forgotten", region=region, keys=keys)
        return pb.CutResponse(cut=_message(cut), keys=keys)

    async def restore(self, request: pb.RestoreRequest, operator: Operator) -> pb.RestoreResponse:
        """Hear of a region again, from the beginning."""
        region, why = request.region, reason(request.why)
        await self.region_map.refresh()
        if region not in self.cuts:
            return pb.RestoreResponse(restored=False)
        # Before anybody hears it again: what it said before, and need not say again, is asked for.
        asking = MarkFilled(region.encode(), again(self.owner))
        try:
            for shard in self.origin.placed_on:
                await self.origin.run(shard, asking, TIMEOUT_S)
        except OriginError as error:
            raise NotReady(f"the region's origin can't be reached, nothing has changed: {error}") from error
        await self._write(removal_of(region), "nothing has changed")
        self.logger.warning("region_restored", who=operator.who, peer=operator.peer, why=why, region=region)
        return pb.RestoreResponse(restored=True)

    async def list_cuts(self, _: pb.ListCutsRequest, __: Operator) -> pb.ListCutsResponse:
        """All that are in force."""
        await self.region_map.refresh()
        return pb.ListCutsResponse(cuts=[_message(self.cuts[region]) for region in sorted(self.cuts)])

    def _changed(self, entries: Collection[MapEntry]) -> None:
        for entry in entries:
            if (cut := read(entry)) is not None:
                self.cuts[cut.region] = cut
            elif (restored := region_of(entry)) is not None:
                self.cuts.pop(restored, None)

    async def _forget(self, region: str) -> int:
        try:
            return await forget_region(self.origin, region, self.owner)
        except OriginError as error:
            raise NotReady(
                f"region {region!r} is cut off, and its counts may still be in some keys: {error}; ask again"
            ) from error

    async def _write(self, entry: MapEntry, otherwise: str) -> None:
        try:
            await self.region_map.write([entry])
        except OriginError as error:
            raise NotReady(f"the region's origin did not answer: {error}; {otherwise}; ask again") from error


def _message(cut: Cut) -> pb.CutRegion:
    return pb.CutRegion(region=cut.region, who=cut.who, why=cut.why, made_ms=cut.made_ms)
