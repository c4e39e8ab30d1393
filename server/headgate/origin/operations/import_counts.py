"""ImportCounts: merge what other regions have counted; never published again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from headgate.origin.exchange_protocol import ForeignCount, Priority, Stamp
from headgate.origin.keyspace import REGION, KeySpace
from headgate.origin.limit_record import UnreadableRecord
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.operations.heartbeat import HEARD, Presence
from headgate.origin.outbox import Outbox, outbox_keys
from headgate.origin.shard_memory import ShardMemory

NEVER: Final = 2**63
"""A threshold that no total reaches: then only other regions' counts make a key published."""


@dataclass(frozen=True, slots=True)
class ImportCounts(Operation[None]):
    """Merge components of other regions, and this region's own where they come back after a loss."""

    counts: Sequence[ForeignCount]
    stamp: Stamp | None = None
    """The region that says it, and when; on the shard that keeps such signs of life."""

    lua: ClassVar[tuple[str, ...]] = ("origin/common", "origin/seldom", "origin/outbox", "origin/import_counts")

    def apply(self, memory: ShardMemory) -> None:
        now_ms = memory.now_ms()
        if self.stamp is not None:
            memory.part(Outbox).heard(*self.stamp)
            memory.part(Presence).regions[self.stamp.region] = now_ms
        for count in self.counts:
            _merge(memory, count, now_ms)

    def pack(self, space: KeySpace) -> Packed:
        flat: list[Any] = []
        for count in self.counts:
            # The own region's component has no field of its own: it raises the region's total.
            field = b"" if count.region == space.region else REGION + count.region
            flat += (field, count.window_ms, count.sequence, count.total, count.name, count.reset, count.refunded)
        keys = [*outbox_keys(space), *space.named(HEARD), *(space.limit(count.key) for count in self.counts)]
        return Packed(keys, (packed(flat), *(self.stamp or (b"", 0))))

    def unpack(self, reply: Any, epoch: bytes) -> None:
        return None


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
