"""ReadMap: what changed in the region's map."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgpack

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.region_map import ABOUT, CHANGED, ENTRIES, MapEntry, MapMark, MapPage, RegionMap
from headgate.origin.shard_memory import ShardMemory

ENTRY_PARTS: Final = 4
"""Values per entry in what the script returns: name, value, expires, stamp."""


@dataclass(frozen=True, slots=True)
class ReadMap(Operation[MapPage]):
    """Read entries of the region's map that changed after the change `since`."""

    since: int
    most: int
    """Entries, at most."""

    lua: ClassVar[tuple[str, ...]] = ("origin/read_map",)

    def apply(self, memory: ShardMemory) -> MapPage:
        return memory.part(RegionMap).read(self.since, self.most, memory.now_ms())

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(ENTRIES, CHANGED, ABOUT), (self.since, self.most))

    def unpack(self, reply: Any, epoch: bytes) -> MapPage:
        generation, version, time_ms, until, packed = reply
        # Packed from Lua, where a text is bytes; an empty array and an empty map are one there.
        flat: list[Any] = list(msgpack.unpackb(packed, raw=True))
        entries = tuple([MapEntry(*flat[at : at + ENTRY_PARTS]) for at in range(0, len(flat), ENTRY_PARTS)])
        return MapPage(MapMark(generation, version), time_ms, until, entries)
