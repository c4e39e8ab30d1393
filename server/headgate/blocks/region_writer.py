"""Changes by operators that must hold in the worst hour: written to the region's map, or, while its origin is away, in
force on the node that is asked until it answers.
"""

from dataclasses import dataclass

from headgate.errors import TooLarge
from headgate.origin.interface import OriginError
from headgate.origin.region_map import MOST_ENTRIES, MapEntry
from headgate.region.node import RegionNode
from headgate.region.region_map import RegionMapReplica
from headgate.v1 import blocks_pb2 as pb


@dataclass(slots=True)
class RegionWriter:
    """Writes to the region's map, and says how far a change has come."""

    region_map: RegionMapReplica
    region_node: RegionNode | None
    """None for a node on its own: there is nobody else to tell."""
    node: str
    region: str
    workers: int = 1
    """Workers of this server: what one of them keeps, all do."""
    not_stored: int = 0
    """Changes that the origin did not take in at once."""

    async def write(self, entry: MapEntry) -> pb.Reach:
        """Write to the region's map, or have it in force here until that is possible."""
        live_nodes = self._live_nodes()
        reach = pb.Reach(
            node=self.node, region=self.region, stored=True, live_nodes=live_nodes, nodes_here=self.workers
        )
        try:
            state = await self.region_map.write([entry])
        except OriginError as error:
            reach.stored, reach.reason = False, str(error)
            self.not_stored += 1
            await self._keep(entry)
            return reach
        if state.refused:
            raise TooLarge(_full(state.entries))
        return reach

    async def _keep(self, entry: MapEntry) -> None:
        if entry.value and len(self.region_map) >= MOST_ENTRIES:
            raise TooLarge(_full(len(self.region_map)))
        await self.region_map.keep(entry)

    def _live_nodes(self) -> int:
        return 1 if self.region_node is None else self.region_node.live_nodes


def _full(entries: int) -> str:
    return (
        f"{entries} overrides, blocks and shadows are in force in this region, and at most {MOST_ENTRIES} may be: "
        "remove some (`headgate block --list`, `headgate key override --list`), or wait until some have ended"
    )
