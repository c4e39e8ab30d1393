"""ReadMark: since which memory a peer has told a shard everything, and which memory that is now."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.outbox import EXCHANGE, Outbox
from headgate.origin.shard_memory import ShardMemory


class ShardMark(NamedTuple):
    """A shard's memory, and the mark in it that MarkFilled wrote last for one peer."""

    generation: bytes
    """Empty until an exchanger has read it once."""
    epoch: bytes
    mark: bytes


@dataclass(frozen=True, slots=True)
class ReadMark(Operation[ShardMark]):
    """Read both at one instant: what a peer brings back is judged by them."""

    peer: bytes

    lua: ClassVar[tuple[str, ...]] = ("origin/read_mark",)

    def apply(self, memory: ShardMemory) -> ShardMark:
        generation, mark = memory.part(Outbox).mark_of(self.peer)
        return ShardMark(generation, memory.epoch, mark)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(EXCHANGE), (self.peer,))

    def unpack(self, reply: Any, epoch: bytes) -> ShardMark:
        generation, mark = reply
        return ShardMark(generation or b"", epoch, mark or b"")
