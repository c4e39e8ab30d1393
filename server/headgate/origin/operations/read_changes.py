"""ReadChanges: how far a peer has been told, and which published keys have changed since."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.exchange_protocol import Changes, Priority
from headgate.origin.interface import LEASE_MS
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.outbox import Outbox, outbox_keys
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class ReadChanges(Operation[Changes]):
    """Read names of published keys that changed, if `owner` gets or has the lease on the peer."""

    peer: bytes
    priority: Priority
    owner: bytes
    generation: bytes
    """Becomes the generation of a memory that has none yet."""
    most: int
    """Names, at most."""
    after: int = 0
    """Read from behind this change, if the peer has not been told so far: what is new, for one that is told of much
    else."""

    lua: ClassVar[tuple[str, ...]] = ("origin/read_changes",)

    def apply(self, memory: ShardMemory) -> Changes:
        found = memory.part(Outbox).changes(
            self.peer, self.priority, self.owner, LEASE_MS, self.generation, self.most, memory.sweep(), self.after
        )
        return found._replace(epoch=memory.epoch)

    def pack(self, space: KeySpace) -> Packed:
        arguments = int(self.priority), self.peer, self.owner, LEASE_MS, self.generation, self.most, self.after
        return Packed(outbox_keys(space), arguments)

    def unpack(self, reply: Any, epoch: bytes) -> Changes:
        time_ms, leased, since, until, latest, generation, mark, walk, walk_until, beat_ms = reply[:10]
        return Changes(
            time_ms,
            epoch,
            leased == 1,
            int(since),
            int(until),
            int(latest),
            tuple(reply[10::2]),
            generation,
            mark,
            walk,
            int(walk_until),
            int(beat_ms),
        )
