"""SharesReady: whether keys may come to a shard by a list, as far as their shares are concerned."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import ShardMemory
from headgate.quota.store import QUOTA, QuotaStore


@dataclass(frozen=True, slots=True)
class SharesReady(Operation[bool]):
    """Say if the shares in force on a shard were told by the list of this number, or none is in force."""

    number: int

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_ready",)

    def apply(self, memory: ShardMemory) -> bool:
        store = memory.part(QuotaStore)
        return store.number >= self.number or memory.now_ms() >= store.until_ms

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.number,))

    def unpack(self, reply: Any, epoch: bytes) -> bool:
        return bool(reply == 1)
