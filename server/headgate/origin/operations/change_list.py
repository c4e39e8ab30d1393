"""ChangeList: agree on the next list of shards. One shard decides it, so that there is one of each number."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.placement import SHARDS, KeptPlacement, Placement, placement_of
from headgate.origin.shard_memory import ShardMemory


@dataclass(frozen=True, slots=True)
class ChangeList(Operation[Placement]):
    """Take the next placement, if the shard has the one right before it; return the one that it has then.

    To be asked of the first shard, by name, of the list that is in force.
    """

    placement: Placement

    lua: ClassVar[tuple[str, ...]] = ("origin/change_list",)

    def apply(self, memory: ShardMemory) -> Placement:
        kept = memory.part(KeptPlacement)
        if kept.placement.number == self.placement.number - 1 and not kept.placement.before:
            kept.hear(self.placement)
        return kept.placement

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(SHARDS), self.placement.told())

    def unpack(self, reply: Any, epoch: bytes) -> Placement:
        return placement_of(*reply)
