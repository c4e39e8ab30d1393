"""ReadList: the list of shards that a shard was last told of, for those who have no heartbeat: exchangers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.placement import SHARDS, KeptPlacement, Placement, placement_of
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class ReadList(Operation[Placement]):
    """Return the placement that the shard keeps; one of number 0 where none was agreed."""

    lua: ClassVar[tuple[str, ...]] = ("origin/read_list",)

    def apply(self, memory: ShardMemory) -> Placement:
        return memory.part(KeptPlacement).placement

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(SHARDS), ())

    def unpack(self, reply: Any, epoch: bytes) -> Placement:
        return placement_of(*reply)
