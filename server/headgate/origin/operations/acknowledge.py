"""Acknowledge: a peer has all that was read for it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.exchange_protocol import Changes, Priority
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.outbox import EXCHANGE, Outbox
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class Acknowledge(Operation[bool]):
    """Move the peer's cursor behind `changes`. False: the shard lost its memory, or another exchanger was first."""

    peer: bytes
    priority: Priority
    changes: Changes

    lua: ClassVar[tuple[str, ...]] = ("origin/acknowledge",)

    def apply(self, memory: ShardMemory) -> bool:
        read = self.changes
        return memory.part(Outbox).acknowledge(self.peer, self.priority, read.generation, read.since, read.until)

    def pack(self, space: KeySpace) -> Packed:
        read = self.changes
        return Packed(space.named(EXCHANGE), (int(self.priority), self.peer, read.generation, read.since, read.until))

    def unpack(self, reply: Any, epoch: bytes) -> bool:
        return bool(reply == 1)
