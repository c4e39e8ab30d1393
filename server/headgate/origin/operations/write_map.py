"""WriteMap: merge entries into the region's map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.region_map import (
    ABOUT,
    CHANGED,
    ENTRIES,
    EXPIRY,
    MOST_ENTRIES,
    MOST_NAMES,
    MOST_TOLD,
    REMOVED_FOR_MS,
    TOLD,
    MapEntry,
    MapMark,
    MapState,
    RegionMap,
)
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class WriteMap(Operation[MapState]):
    """Merge entries into the region's map."""

    entries: Sequence[MapEntry]
    generation: bytes
    """Becomes the generation of a map that begins with these entries."""

    lua: ClassVar[tuple[str, ...]] = ("origin/write_map",)

    def apply(self, memory: ShardMemory) -> MapState:
        return memory.part(RegionMap).write(self.entries, self.generation, memory.now_ms())

    def pack(self, space: KeySpace) -> Packed:
        flat = packed([part for entry in self.entries for part in entry])
        arguments = flat, self.generation, MOST_ENTRIES, MOST_NAMES, REMOVED_FOR_MS, TOLD, MOST_TOLD
        return Packed(space.named(ENTRIES, CHANGED, EXPIRY, ABOUT), arguments)

    def unpack(self, reply: Any, epoch: bytes) -> MapState:
        generation, version, time_ms, count, refused = reply
        return MapState(MapMark(generation, version), time_ms, count, refused)
