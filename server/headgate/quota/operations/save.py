"""SaveQuotas: the keeper has the store keep what it knows."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import ShardMemory
from headgate.quota.store import QUOTA, QuotaStore


class QuotaSaved(NamedTuple):
    """Result of a save."""

    kept: bool
    """False: another keeper is there, or the store was lost; nothing was written."""
    refused: tuple[tuple[bytes, bytes], ...]
    """(name, what the store has of it): another one than was expected, so it was left alone."""


@dataclass(frozen=True, slots=True)
class SaveQuotas(Operation[QuotaSaved]):
    """Write each row if the store has what it had before, the mark, and which messages were taken in."""

    fence: int
    generation: bytes
    rows: tuple[tuple[bytes, bytes, bytes], ...]
    """(name, what the store has of it, what it is to have); empty: nothing."""
    mark: bytes
    acknowledged: tuple[tuple[bytes, bytes], ...]
    """(peer, which message): taken in, and saved with this."""

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_save",)

    def apply(self, memory: ShardMemory) -> QuotaSaved:
        store = memory.part(QuotaStore)
        if self.fence != store.fence or self.generation != store.generation:
            return QuotaSaved(False, ())
        refused = []
        for name, before, after in self.rows:
            stored = store.stored.get(name, b"")
            if stored != before:
                refused.append((name, stored))
            elif after:
                store.stored[name] = after
            else:
                store.stored.pop(name, None)
        store.mark = self.mark
        for peer, which in self.acknowledged:
            store.acknowledged[peer] = which
            store.posted.pop(peer, None)
        return QuotaSaved(True, tuple(refused))

    def pack(self, space: KeySpace) -> Packed:
        rows = [part for row in self.rows for part in row]
        acknowledged = [part for message in self.acknowledged for part in message]
        about = self.fence, self.generation, self.mark, len(self.rows)
        return Packed(space.named(QUOTA), (*about, *rows, *acknowledged))

    def unpack(self, reply: Any, epoch: bytes) -> QuotaSaved:
        return QuotaSaved(reply[0] == 1, tuple(zip(reply[1::2], reply[2::2], strict=True)))
