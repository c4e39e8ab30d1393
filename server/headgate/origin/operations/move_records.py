"""WalkRecords, TakeRecords, PutRecords, DropRecords: records move from one shard to another, one page at a time.

A record is sealed where it is and copied, opened where it belongs, and only then dropped: so at any time one of the two
is open, or none for a moment, and each step may be made again by anybody. Names are those behind a shard's prefix.
(docs/convergence.md, section 12.)
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from headgate.origin.keyspace import LIMIT, KeySpace
from headgate.origin.limit_record import SealedRecord
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.operations.take_claim import CLAIM, Claims
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.region_map import ABOUT, CHANGED, ENTRIES, EXPIRY, RegionMap
from headgate.origin.shard_memory import ShardMemory

WALKER_MS: Final = 5_000
"""Time for which one node alone moves a shard's records after it last asked; then another one goes on."""
PAGE: Final = 100
"""Records that are looked at per step, about: each step takes the shard well under a millisecond."""
GLOB: Final = re.compile(rb"([\\*?\[\]^])")
"""Bytes that mean something in a pattern of Redis."""


class RecordPage(NamedTuple):
    """Result of a step of the walk."""

    names: tuple[bytes, ...] = ()
    here: int = 0
    """Cursor of this page."""
    next: int = 0
    """Cursor of the next one; 0: this is the last."""
    mine: bool = False
    """False: another node does it, it is done, or the shard has another list."""


@dataclass(frozen=True, slots=True)
class WalkRecords(Operation[RecordPage]):
    """Return the next records of a shard that may have to move, for the one node that moves them."""

    number: int
    """Number of the list that they are moved for."""
    run: bytes
    after: int = -1
    """Cursor of the page to return, all before it having been moved; 0: all were; -1: wherever the walk is."""
    map_leaves: bool = False
    """The region's map is kept on another shard now: with the end of the walk this one forgets it."""

    lua: ClassVar[tuple[str, ...]] = ("origin/walk_records",)

    def apply(self, memory: ShardMemory) -> RecordPage:
        now_ms, kept = memory.now_ms(), memory.part(KeptPlacement)
        if kept.placement.number != self.number or kept.walked == self.number:
            return RecordPage()
        mine = kept.walk == self.number and kept.walker == self.run
        if kept.walk == self.number and not mine and kept.walker_until_ms > now_ms:
            return RecordPage()
        if mine and self.after == 0:
            kept.walked = self.number
            if self.map_leaves:
                memory.parts.pop(RegionMap, None)
            return RecordPage()
        if kept.walk != self.number:
            kept.cursor = 0
        elif mine and self.after > 0:
            kept.cursor = self.after
        kept.walk, kept.walker, kept.walker_until_ms = self.number, self.run, now_ms + WALKER_MS
        names = sorted([LIMIT + key for key in memory.records] + [CLAIM + name for name in memory.part(Claims).names])
        # By names, as what moves is dropped: the cursor of the memory is the number of pages so far.
        return RecordPage(tuple(names), kept.cursor, 0, True)

    def pack(self, space: KeySpace) -> Packed:
        arguments = self.number, self.run, self.after, WALKER_MS, GLOB.sub(rb"\\\1", space.prefix) + b"*", PAGE
        map_names = (ENTRIES, CHANGED, EXPIRY, ABOUT) if self.map_leaves else ()
        return Packed(space.named(SHARDS, *map_names), (*arguments, len(space.prefix)))

    def unpack(self, reply: Any, epoch: bytes) -> RecordPage:
        mine, here, following, names = reply
        kept = [name for name in names if name.startswith((LIMIT, CLAIM))]
        return RecordPage(tuple(kept), int(here), int(following), bool(mine))


class MovingRecord(NamedTuple):
    """A record on its way."""

    name: bytes
    left_ms: int
    """Time for which it would be kept."""
    content: Any
    """Fields and values; of a shard in memory, whatever it keeps there."""


@dataclass(frozen=True, slots=True)
class TakeRecords(Operation[list[MovingRecord]]):
    """Seal the records of these names and return what they hold; of those that are not there, nothing."""

    number: int
    names: Sequence[bytes]

    lua: ClassVar[tuple[str, ...]] = ("origin/take_records",)

    def apply(self, memory: ShardMemory) -> list[MovingRecord]:
        if memory.part(KeptPlacement).fence != self.number:
            return []
        now_ms = memory.sweep()
        taken = [self._take(memory, name, now_ms) for name in self.names]
        return [record for record in taken if record is not None]

    def _take(self, memory: ShardMemory, name: bytes, now_ms: int) -> MovingRecord | None:
        if name.startswith(CLAIM):
            claim = memory.part(Claims).copy(name.removeprefix(CLAIM), now_ms)
            return None if claim is None else MovingRecord(name, claim[1], claim[0])
        key = name.removeprefix(LIMIT)
        record = memory.records.get(key)
        if record is None:
            return None
        if not isinstance(record, SealedRecord):
            record = memory.records[key] = SealedRecord(record)
        return MovingRecord(name, memory.expiry.get(key, now_ms) - now_ms, copy.deepcopy(record.content))

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(SHARDS, *self.names), (self.number,))

    def unpack(self, reply: Any, epoch: bytes) -> list[MovingRecord]:
        return [MovingRecord(self.names[index - 1], left_ms, content) for index, left_ms, content in reply]


@dataclass(frozen=True, slots=True)
class PutRecords(Operation[bool]):
    """Open records that were sealed elsewhere, unless they are open here; True if that was done."""

    number: int
    records: Sequence[MovingRecord]

    lua: ClassVar[tuple[str, ...]] = ("origin/put_records",)

    def apply(self, memory: ShardMemory) -> bool:
        now_ms = memory.sweep()
        if not memory.part(KeptPlacement).may_begin(self.number):
            return False
        for name, left_ms, content in self.records:
            key = name.removeprefix(LIMIT)
            if name.startswith(CLAIM):
                memory.part(Claims).take(name.removeprefix(CLAIM), content, now_ms + left_ms, now_ms)
            elif key not in memory.records or isinstance(memory.records[key], SealedRecord):
                memory.records[key], memory.expiry[key] = copy.deepcopy(content), now_ms + left_ms
        return True

    def pack(self, space: KeySpace) -> Packed:
        flat = [part for _, left_ms, content in self.records for part in (left_ms, len(content), *content)]
        return Packed(space.named(SHARDS, *[record.name for record in self.records]), (self.number, packed(flat)))

    def unpack(self, reply: Any, epoch: bytes) -> bool:
        return bool(reply == 1)


@dataclass(frozen=True, slots=True)
class DropRecords(Operation[bool]):
    """Drop sealed records that are open where they belong; True if that was done."""

    number: int
    names: Sequence[bytes]

    lua: ClassVar[tuple[str, ...]] = ("origin/drop_records",)

    def apply(self, memory: ShardMemory) -> bool:
        if memory.part(KeptPlacement).fence != self.number:
            return False
        for name in self.names:
            key = name.removeprefix(LIMIT)
            if isinstance(memory.records.get(key), SealedRecord):
                memory.drop(key)
        return True

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(SHARDS, *self.names), (self.number,))

    def unpack(self, reply: Any, epoch: bytes) -> bool:
        return bool(reply == 1)
