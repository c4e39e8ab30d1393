"""LeaseQuotas and ReleaseQuotas: which exchanger keeps the region's slices. The store is on the first shard."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.interface import LEASE_MS
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import ShardMemory
from headgate.quota.protocol import QuotaLease
from headgate.quota.store import QUOTA, QuotaStore


@dataclass(frozen=True, slots=True)
class LeaseQuotas(Operation[QuotaLease]):
    """Take or renew the lease of `owner`, and read what the store has for the keeper."""

    owner: bytes
    drawn: bytes
    """Becomes the generation of a store that has none yet."""
    peers: Sequence[bytes]
    """Regions whose messages are read."""

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_lease",)

    def apply(self, memory: ShardMemory) -> QuotaLease:
        store = memory.part(QuotaStore)
        return store.lease(self.owner, LEASE_MS, self.drawn, self.peers, memory.epoch, memory.now_ms())

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.owner, LEASE_MS, self.drawn, *self.peers))

    def unpack(self, reply: Any, epoch: bytes) -> QuotaLease:
        time_ms, leased, fence, generation, mark, *posted = reply
        messages = tuple((peer, message) for peer, message in zip(self.peers, posted, strict=False) if message)
        return QuotaLease(time_ms, epoch, leased == 1, int(fence), generation, mark, messages)


@dataclass(frozen=True, slots=True)
class ReleaseQuotas(Operation[None]):
    """End the lease of `owner`, which leaves."""

    owner: bytes

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_release",)

    def apply(self, memory: ShardMemory) -> None:
        memory.part(QuotaStore).release(self.owner)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.owner,))

    def unpack(self, reply: Any, epoch: bytes) -> None:
        return None
