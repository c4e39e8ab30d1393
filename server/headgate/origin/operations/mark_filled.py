"""MarkFilled: a peer has told all that it knows of what a shard may have lost."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.outbox import EXCHANGE, Outbox
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class MarkFilled(Operation[None]):
    """Keep the mark of the memory that the peer has filled."""

    peer: bytes
    mark: bytes

    lua: ClassVar[tuple[str, ...]] = ("origin/mark_filled",)

    def apply(self, memory: ShardMemory) -> None:
        memory.part(Outbox).mark_filled(self.peer, self.mark)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(EXCHANGE), (self.peer, self.mark))

    def unpack(self, reply: Any, epoch: bytes) -> None:
        return None
