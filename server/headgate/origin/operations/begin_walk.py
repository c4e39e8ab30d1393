"""BeginWalk: tell a peer everything from the beginning."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.outbox import EXCHANGE, Outbox
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class BeginWalk(Operation[None]):
    """Set the peer's cursors to the beginning, and have its own components told too; once per `walk`."""

    peer: bytes
    walk: bytes
    """Name of the walk, which the peer chose. Empty: everything is told again, and nobody is answered."""

    lua: ClassVar[tuple[str, ...]] = ("origin/begin_walk",)

    def apply(self, memory: ShardMemory) -> None:
        memory.part(Outbox).begin_walk(self.peer, self.walk)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(EXCHANGE), (self.peer, self.walk))

    def unpack(self, reply: Any, epoch: bytes) -> None:
        return None
