"""ReadComponents: what to tell a peer of published keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgpack

from headgate.origin.exchange_protocol import Priority, Published
from headgate.origin.keyspace import REGION, KeySpace
from headgate.origin.names import key_of_name
from headgate.origin.operation import Operation, Packed
from headgate.origin.outbox import Outbox, index_key
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.shard_memory import ShardMemory
from headgate.origin.window_record import WindowRecord

PUBLISHED_NUMBERS: Final = 10
"""Per name in what the script returns."""


@dataclass(frozen=True, slots=True)
class ReadComponents(Operation[list[Published | None]]):
    """Read the components of each name; None where nothing is left. Then the name is forgotten, unless keys leave."""

    peer: bytes
    priority: Priority
    names: Sequence[bytes]

    lua: ClassVar[tuple[str, ...]] = ("origin/common", "origin/seldom", "origin/read_components")

    def apply(self, memory: ShardMemory) -> list[Published | None]:
        records = [memory.records.get(key_of_name(name)) for name in self.names]
        if not memory.part(KeptPlacement).keys_leave:
            gone = [name for name, record in zip(self.names, records, strict=True) if record is None]
            memory.part(Outbox).forget_names(gone, self.priority)
        return [record.published(self.peer) if isinstance(record, WindowRecord) else None for record in records]

    def pack(self, space: KeySpace) -> Packed:
        records = [space.limit(key_of_name(name)) for name in self.names]
        keys = [index_key(space, self.priority), *space.named(SHARDS), *records]
        return Packed(keys, (REGION + self.peer, *self.names))

    def unpack(self, reply: Any, epoch: bytes) -> list[Published | None]:
        flat: list[int] = msgpack.unpackb(reply)
        if len(flat) != PUBLISHED_NUMBERS * len(self.names):
            raise ValueError(f"{len(flat)} numbers for {len(self.names)} names")
        return [
            Published(*flat[at + 1 : at + PUBLISHED_NUMBERS]) if flat[at] else None
            for at in range(0, len(flat), PUBLISHED_NUMBERS)
        ]
