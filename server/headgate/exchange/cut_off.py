"""Regions that operators have cut off from this one, as an exchanger follows them in the region's map.

It reads the map by itself, once a second, because it may run without a node. A cut stays in force until it is seen to
be undone: a shard that has lost the map has undone nothing.
"""

from typing import Final

from headgate.errors import Forbidden
from headgate.origin.cut_regions import read, region_of
from headgate.origin.interface import Origin
from headgate.origin.operations.read_map import ReadMap
from headgate.origin.region_map import MAP_KEY, MapMark

LOOK_S: Final = 1.0
"""Seconds between looks at the map."""
READ_TIMEOUT_S: Final = 0.9
PAGE: Final = 500
"""Entries in one call: some milliseconds of the shard's time."""


class CutRegions:
    """Names of the regions that are cut off."""

    def __init__(self, origin: Origin) -> None:
        self.names: frozenset[str] = frozenset()
        self._origin = origin
        self._known = False
        self._read = MapMark()
        """Point in the map up to which it was read."""

    async def refresh(self) -> None:
        """Read what has changed in the map. Raises OriginError."""
        shard = self._origin.shard_of(MAP_KEY)
        page = await self._origin.run(shard, ReadMap(self._read.version, PAGE), READ_TIMEOUT_S)
        if page.mark.generation != self._read.generation or page.mark.version < self._read.version:
            page = await self._origin.run(shard, ReadMap(0, PAGE), READ_TIMEOUT_S)
        while True:
            changed = {region: entry for entry in page.entries if (region := region_of(entry)) is not None}
            cut = {region for region, entry in changed.items() if read(entry) is not None}
            self.names = (self.names - changed.keys()) | cut
            if page.until >= page.mark.version:
                break
            page = await self._origin.run(shard, ReadMap(page.until, PAGE), READ_TIMEOUT_S)
        self._read, self._known = page.mark, True

    async def check(self, region: str) -> None:
        """Raises Forbidden for a region that is cut off; OriginError while that is not known yet."""
        if not self._known:
            await self.refresh()
        if region in self.names:
            raise Forbidden(
                f"an operator has cut region {region!r} off here: `headgate region restore {region}` undoes it"
            )
