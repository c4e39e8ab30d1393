"""ReadQuotaRows: what the keeper's store has, page by page."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import ShardMemory
from headgate.quota.store import MOST_ROWS, QUOTA, QuotaStore


class QuotaRows(NamedTuple):
    """Result of reading a page."""

    cursor: int
    """Start of the next page; 0 after the last."""
    rows: tuple[tuple[bytes, bytes], ...]
    """(name, what the store has of it). A name may come twice."""


@dataclass(frozen=True, slots=True)
class ReadQuotaRows(Operation[QuotaRows]):
    """Read a page of the store."""

    cursor: int
    """Start of the page; 0 for the first."""

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_rows",)

    def apply(self, memory: ShardMemory) -> QuotaRows:
        return QuotaRows(*memory.part(QuotaStore).rows(self.cursor))

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.cursor, MOST_ROWS))

    def unpack(self, reply: Any, epoch: bytes) -> QuotaRows:
        return QuotaRows(int(reply[0]), tuple(zip(reply[1::2], reply[2::2], strict=True)))
