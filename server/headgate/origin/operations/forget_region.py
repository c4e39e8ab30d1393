"""ForgetRegion: take out of published keys what one other region has said of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import REGION, KeySpace
from headgate.origin.names import key_of_name, split_name
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import ShardMemory
from headgate.origin.window_record import WindowRecord


@dataclass(frozen=True, slots=True)
class ForgetRegion(Operation[int]):
    """Drop a region's component of each name; the result is how many keys had one that counted."""

    region: bytes
    names: Sequence[bytes]

    lua: ClassVar[tuple[str, ...]] = ("origin/common", "origin/seldom", "origin/forget_region")

    def apply(self, memory: ShardMemory) -> int:
        records = [memory.records.get(key_of_name(name)) for name in self.names]
        return sum(_forget(record, self.region) for record in records if isinstance(record, WindowRecord))

    def pack(self, space: KeySpace) -> Packed:
        windows_ms = [split_name(name)[0] for name in self.names]
        return Packed([space.limit(key_of_name(name)) for name in self.names], (REGION + self.region, *windows_ms))

    def unpack(self, reply: Any, epoch: bytes) -> int:
        return int(reply)


def _forget(record: WindowRecord, region: bytes) -> bool:
    component = record.foreign.pop(region, None)
    if component is None:
        return False
    sequence = record.sequence
    component.roll(sequence)
    record.current.foreign -= component.current
    record.previous.foreign -= component.previous
    record.ahead_foreign -= component.ahead
    record.current.foreign_refunded -= component.refunded.get(sequence, 0)
    record.previous.foreign_refunded -= component.refunded.get(sequence - 1, 0)
    record.ahead_refunded -= component.refunded.get(sequence + 1, 0)
    return component.current + component.previous + component.ahead > 0
