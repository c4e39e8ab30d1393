"""WalkRecords, TakeRecords, PutRecords, DropRecords: records move from one shard to another, one page at a time.

A record is sealed where it is and copied, opened where it belongs, and only then dropped: so at any time one of the two
is open, or none for a moment, and each step may be made again by anybody. A key that was published where it was is told
other regions again from where it is opened. Names are those behind a shard's prefix. (docs/convergence.md, section 12.)
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from headgate.origin.exchange_protocol import Priority
from headgate.origin.keyspace import LIMIT, KeySpace
from headgate.origin.limit_record import SealedRecord
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.operations.take_claim import CLAIM, Claims
from headgate.origin.outbox import Outbox, index_key, outbox_keys
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.region_map import ABOUT, CHANGED, ENTRIES, EXPIRY, RegionMap
from headgate.origin.shard_memory import MemoryPart, ShardMemory

WALKER_MS: Final = 5_000
"""Time for which one node alone moves a shard's records after it last asked; then another one goes on."""
PAGE: Final = 100
"""Records that are looked at per step, about: each step takes the shard well under a millisecond."""
GLOB: Final = re.compile(rb"([\\*?\[\]^])")
"""Bytes that mean something in a pattern of Redis."""
WHEREVER: Final = b"*"
"""Cursor for the page at which the walk is."""
ALL_MOVED: Final = b""
"""Cursor behind the last page."""
ROUNDS: Final = (Priority.NORMAL, Priority.URGENT, None, Priority.NORMAL, Priority.URGENT)
"""Rounds of a walk: published keys first, as others wait for them; then all records; then the names of those that were
published meanwhile. From the third on none is published here that belongs elsewhere."""


class RecordPage(NamedTuple):
    """Result of a step of the walk."""

    names: tuple[bytes, ...] = ()
    """Names of records and claims; of published keys those between regions."""
    here: bytes = b""
    """Cursor of this page."""
    next: bytes = ALL_MOVED
    """Cursor of the next one; ALL_MOVED: this is the last."""
    mine: bool = False
    """False: another node does it, it is done, or the shard has another list."""
    priority: Priority | None = None
    """Priority of the published keys that are named; None: records and claims are."""


class PublishedName(NamedTuple):
    """A key that other regions are told of."""

    priority: Priority
    name: bytes


@dataclass(frozen=True, slots=True)
class WalkRecords(Operation[RecordPage]):
    """Return the next of what a shard has that may have to move, for the one node that moves it."""

    number: int
    """Number of the list that they are moved for."""
    run: bytes
    after: bytes = WHEREVER
    """Cursor of the page to return, all before it having been moved."""
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
        if mine and self.after == ALL_MOVED:
            kept.walked = self.number
            if self.map_leaves:
                memory.parts.pop(RegionMap, None)
            return RecordPage()
        if kept.walk != self.number:
            kept.cursor = b"1:0"
        elif mine and self.after != WHEREVER:
            kept.cursor = self.after
        kept.walk, kept.walker, kept.walker_until_ms = self.number, self.run, now_ms + WALKER_MS
        # In memory a round has one page.
        number = int(kept.cursor.partition(b":")[0])
        priority = ROUNDS[number - 1]
        following = b"%d:0" % (number + 1) if number < len(ROUNDS) else ALL_MOVED
        return RecordPage(_names(memory, priority), kept.cursor, following, True, priority)

    def pack(self, space: KeySpace) -> Packed:
        arguments = self.number, self.run, self.after, WALKER_MS, GLOB.sub(rb"\\\1", space.prefix) + b"*", PAGE
        map_names = (ENTRIES, CHANGED, EXPIRY, ABOUT) if self.map_leaves else ()
        keys = [*space.named(SHARDS), *_indexes(space), *space.named(*map_names)]
        return Packed(keys, (*arguments, len(space.prefix)))

    def unpack(self, reply: Any, epoch: bytes) -> RecordPage:
        mine, here, following, number, names = reply
        priority = Priority(number) if number >= 0 else None
        kept = [name for name in names if priority is not None or name.startswith((LIMIT, CLAIM))]
        return RecordPage(tuple(kept), here, following, bool(mine), priority)


def _names(memory: ShardMemory, priority: Priority | None) -> tuple[bytes, ...]:
    if priority is not None:
        return tuple(memory.part(Outbox).indexes[priority].changed)
    return tuple(sorted([LIMIT + key for key in memory.records] + [CLAIM + name for name in memory.part(Claims).names]))


def _indexes(space: KeySpace) -> list[bytes]:
    return [index_key(space, priority) for priority in Priority]


def _flat(published: Sequence[PublishedName]) -> bytes:
    return packed([part for priority, name in published for part in (int(priority), name)])


class MovingRecord(NamedTuple):
    """A record on its way."""

    name: bytes
    left_ms: int
    """Time for which it would be kept."""
    content: Any
    """Fields and values; of a shard in memory the record, or a claim's value."""
    beside: tuple[tuple[type[MemoryPart], Any], ...] = ()
    """Parts of a shard in memory, and what each keeps for the key; in Redis that is in the record."""


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
        beside = [(kind, part.copy_of(key)) for kind, part in memory.parts.items()]
        kept = tuple([(kind, copied) for kind, copied in beside if copied is not None])
        return MovingRecord(name, memory.expiry.get(key, now_ms) - now_ms, copy.deepcopy(record.content), kept)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(SHARDS, *self.names), (self.number,))

    def unpack(self, reply: Any, epoch: bytes) -> list[MovingRecord]:
        return [MovingRecord(self.names[index - 1], left_ms, content) for index, left_ms, content in reply]


@dataclass(frozen=True, slots=True)
class PutRecords(Operation[bool]):
    """Open records that were sealed elsewhere, unless they are open here; True if that was done."""

    number: int
    records: Sequence[MovingRecord]
    published: Sequence[PublishedName] = ()
    """Keys among them that other regions are told of: again, from here."""

    lua: ClassVar[tuple[str, ...]] = ("origin/fence", "origin/outbox", "origin/put_records")

    def apply(self, memory: ShardMemory) -> bool:
        now_ms = memory.sweep()
        if not memory.part(KeptPlacement).goes_by(self.number):
            return False
        for name, left_ms, content, beside in self.records:
            key = name.removeprefix(LIMIT)
            if name.startswith(CLAIM):
                memory.part(Claims).take(name.removeprefix(CLAIM), content, now_ms + left_ms, now_ms)
            elif key not in memory.records or isinstance(memory.records[key], SealedRecord):
                memory.records[key], memory.expiry[key] = copy.deepcopy(content), now_ms + left_ms
                for kind, copied in beside:
                    memory.part(kind).bring(key, copied)
        for priority, name in self.published:
            memory.part(Outbox).note(name, priority)
        return True

    def pack(self, space: KeySpace) -> Packed:
        flat = [part for _, left_ms, content, _ in self.records for part in (left_ms, len(content), *content)]
        keys = [*space.named(SHARDS), *outbox_keys(space), *space.named(*[record.name for record in self.records])]
        return Packed(keys, (self.number, packed(flat), _flat(self.published)))

    def unpack(self, reply: Any, epoch: bytes) -> bool:
        return bool(reply == 1)


@dataclass(frozen=True, slots=True)
class DropRecords(Operation[bool]):
    """Drop sealed records that are open where they belong; True if that was done."""

    number: int
    names: Sequence[bytes]
    published: Sequence[PublishedName] = ()
    """Keys among them that other regions are told of from there."""

    lua: ClassVar[tuple[str, ...]] = ("origin/drop_records",)

    def apply(self, memory: ShardMemory) -> bool:
        if memory.part(KeptPlacement).fence != self.number:
            return False
        for name in self.names:
            key = name.removeprefix(LIMIT)
            if isinstance(memory.records.get(key), SealedRecord):
                memory.drop(key)
        for priority, name in self.published:
            memory.part(Outbox).forget_names([name], priority)
        return True

    def pack(self, space: KeySpace) -> Packed:
        keys = [*space.named(SHARDS), *_indexes(space), *space.named(*self.names)]
        return Packed(keys, (self.number, _flat(self.published)))

    def unpack(self, reply: Any, epoch: bytes) -> bool:
        return bool(reply == 1)
