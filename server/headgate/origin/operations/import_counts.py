"""ImportCounts: merge what other regions have counted; never published again.

A key that the shard does not know gets a record as far as its peer has room for new ones: no region fills another
one's memory. What was used up comes back evenly over a day, and at once with a memory that was lost.

Counts go into the record in which nodes count: one begins by the latest list of shards alone, and none where its key
leaves (docs/convergence.md, 12.9).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from headgate.origin.exchange_protocol import ForeignCount, NewKeys, Priority, Stamp
from headgate.origin.keyspace import REGION, KeySpace
from headgate.origin.limit_record import SealedRecord, UnreadableRecord
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.operations.heartbeat import HEARD, Presence
from headgate.origin.outbox import Outbox, outbox_keys
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.shard_memory import MemoryPart, ShardMemory
from headgate.origin.window_record import WindowRecord

NEVER: Final = 2**63
"""A threshold that no total reaches: then only other regions' counts make a key published."""


NEW_KEY_BYTES: Final = 400
"""Bytes that a record and its place in the index take beside the key's name, which is in both: rounded up."""
DAY_S: Final = 86_400


class NewKeysUsed(MemoryPart):
    """Bytes of records that each peer has made a shard keep lately."""

    def __init__(self) -> None:
        self._used: dict[bytes, tuple[int, int]] = {}

    def take(self, room: NewKeys, size: int, now_ms: int) -> bool:
        """Take room for a record; false: there is none left."""
        used, since_s = self._used.get(room.peer, (0, 0))
        now_s = now_ms // 1000
        if now_s > since_s:
            used = max(0, used - room.most_bytes // DAY_S * (now_s - since_s))
        if used + size > room.most_bytes:
            return False
        self._used[room.peer] = used + size, now_s
        return True


class Imported(NamedTuple):
    """Result of an import: what of it was not merged."""

    left_out: int = 0
    """Number of counts for which there was no room, because their keys are new."""
    elsewhere: tuple[int, ...] = ()
    """Positions of those whose records are not here, and may not begin here."""
    moving: tuple[int, ...] = ()
    """Positions of those whose records are on their way to another shard."""


@dataclass(frozen=True, slots=True)
class ImportCounts(Operation[Imported]):
    """Merge components of other regions, and this region's own where they come back after a loss."""

    counts: Sequence[ForeignCount]
    stamp: Stamp | None = None
    """The region that says it, and when; on the shard that keeps such signs of life."""
    room: NewKeys | None = None
    """Room for keys that are new; None: as much as is needed."""
    number: int = 0
    """Number of the list of shards by which the keys are placed."""
    leaving: bool = False
    """The keys leave this shard: where it has no record of them, none begins."""

    lua: ClassVar[tuple[str, ...]] = tuple(
        f"origin/{name}" for name in ("common", "seldom", "fence", "outbox", "import_counts")
    )

    def apply(self, memory: ShardMemory) -> Imported:
        now_ms = memory.now_ms()
        if self.stamp is not None:
            memory.part(Outbox).heard(*self.stamp)
            memory.part(Presence).regions[self.stamp.region] = now_ms
        left_out, elsewhere, moving = 0, [], []
        for position, count in enumerate(self.counts):
            if not self._may_be_here(memory, count, now_ms):
                elsewhere.append(position)
            elif isinstance(memory.find(count.key, now_ms), SealedRecord):
                moving.append(position)
            elif self._has_room(memory, count, now_ms):
                _merge(memory, count, now_ms)
            else:
                left_out += 1
        return Imported(left_out, tuple(elsewhere), tuple(moving))

    def _may_be_here(self, memory: ShardMemory, count: ForeignCount, now_ms: int) -> bool:
        if memory.find(count.key, now_ms) is not None:
            return True
        return memory.part(KeptPlacement).has(self.number) and not self.leaving

    def _has_room(self, memory: ShardMemory, count: ForeignCount, now_ms: int) -> bool:
        known = memory.find(count.key, now_ms)
        if self.room is None or isinstance(known, WindowRecord | UnreadableRecord):
            return True
        return memory.part(NewKeysUsed).take(self.room, NEW_KEY_BYTES + 2 * len(count.name), now_ms)

    def pack(self, space: KeySpace) -> Packed:
        flat: list[Any] = []
        for count in self.counts:
            # The own region's component has no field of its own: it raises the region's total.
            field = b"" if count.region == space.region else REGION + count.region
            flat += (field, count.window_ms, count.sequence, count.total, count.name, count.reset, count.refunded)
        records = [space.limit(count.key) for count in self.counts]
        keys = [*outbox_keys(space), *space.named(HEARD, SHARDS), *records]
        room = self.room or NewKeys(b"", -1)
        about = NEW_KEY_BYTES, DAY_S, self.number, int(self.leaving)
        return Packed(keys, (packed(flat), *(self.stamp or (b"", 0)), *room, *about))

    def unpack(self, reply: Any, epoch: bytes) -> Imported:
        left_out, *places = reply
        elsewhere = tuple([place - 1 for place in places if place > 0])
        return Imported(left_out, elsewhere, tuple([-place - 1 for place in places if place < 0]))


def _merge(memory: ShardMemory, count: ForeignCount, now_ms: int) -> None:
    record = memory.window(count.key, count.window_ms)
    if isinstance(record, UnreadableRecord):
        return
    record.come_to(now_ms)
    own, foreign = record.state(), record.is_published(NEVER)
    current = record.belongs(count.reset)
    if current and count.region == memory.region:
        record.merge_own(count.sequence, count.total, now_ms)
    elif current:
        record.merge_foreign(count.region, count.sequence, count.total, now_ms, count.refunded)
    if count.name and (own != record.state() or foreign != record.is_published(NEVER)):
        memory.part(Outbox).note(count.name, Priority.NORMAL)
    memory.keep(count.key, record, now_ms)
