"""ReleaseLeases: an exchanger leaves, and others need not wait for the end of its leases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.outbox import EXCHANGE, Outbox
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class ReleaseLeases(Operation[None]):
    """End the leases of `owner` on these peers."""

    owner: bytes
    peers: Sequence[bytes]

    lua: ClassVar[tuple[str, ...]] = ("origin/release_leases",)

    def apply(self, memory: ShardMemory) -> None:
        memory.part(Outbox).release_leases(self.owner, self.peers)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(EXCHANGE), (self.owner, *self.peers))

    def unpack(self, reply: Any, epoch: bytes) -> None:
        return None
