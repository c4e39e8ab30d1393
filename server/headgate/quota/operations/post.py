"""PostQuotas: leave a peer's message for the keeper, which is another process."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import ShardMemory
from headgate.quota.store import QUOTA, QuotaStore


@dataclass(frozen=True, slots=True)
class PostQuotas(Operation[bytes]):
    """Leave a message; the result says which of that peer's messages the keeper has taken in last."""

    peer: bytes
    message: bytes

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_post",)

    def apply(self, memory: ShardMemory) -> bytes:
        return memory.part(QuotaStore).post(self.peer, self.message)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.peer, self.message))

    def unpack(self, reply: Any, epoch: bytes) -> bytes:
        return bytes(reply)
