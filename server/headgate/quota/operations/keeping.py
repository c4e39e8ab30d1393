"""Operations of the keeper on its store: the lease, rows, saving; and peers' messages.

The store is on the first shard of the region's list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from headgate.origin.interface import LEASE_MS
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.shard_memory import ShardMemory
from headgate.quota.protocol import QuotaLease
from headgate.quota.store import QUOTA, QuotaStore

MOST_ROWS: Final = 500
"""Rows per page when a keeper begins."""


@dataclass(frozen=True, slots=True)
class LeaseQuotas(Operation[QuotaLease]):
    """Take or renew the lease of `owner`, and read what the store has for the keeper."""

    owner: bytes
    drawn: bytes
    """Becomes the generation of a store that has none yet."""
    peers: Sequence[bytes]
    """Regions whose messages are read."""
    number: int = 0
    """Number of the list of shards by which this is the place; by an earlier one than the shard has heard of nobody
    keeps slices."""
    above: int = 0
    """Fence that the keeper's is to be above: that of the store that was before this one."""

    lua: ClassVar[tuple[str, ...]] = ("origin/fence", "quota/quota_lease")

    def apply(self, memory: ShardMemory) -> QuotaLease:
        store, now_ms = memory.part(QuotaStore), memory.now_ms()
        if not memory.part(KeptPlacement).has(self.number):
            return QuotaLease(now_ms, memory.epoch, False, store.fence, store.generation, b"", ())
        return store.lease(self.owner, LEASE_MS, self.drawn, self.peers, self.above, memory.epoch, now_ms)

    def pack(self, space: KeySpace) -> Packed:
        arguments = self.owner, LEASE_MS, self.drawn, self.number, self.above
        return Packed(space.named(QUOTA, SHARDS), (*arguments, *self.peers))

    def unpack(self, reply: Any, epoch: bytes) -> QuotaLease:
        time_ms, leased, fence, generation, mark, *posted = reply
        messages = tuple((peer, message) for peer, message in zip(self.peers, posted, strict=False) if message)
        return QuotaLease(time_ms, epoch, leased == 1, int(fence), generation, mark, messages)


@dataclass(frozen=True, slots=True)
class ReleaseQuotas(Operation[None]):
    """End the lease of `owner`, which leaves."""

    owner: bytes

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_release",)

    def apply(self, memory: ShardMemory) -> None:
        memory.part(QuotaStore).release(self.owner)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.owner,))

    def unpack(self, reply: Any, epoch: bytes) -> None:
        return None


class QuotaRows(NamedTuple):
    """Result of reading a page."""

    cursor: int
    """Start of the next page; 0 after the last."""
    rows: tuple[tuple[bytes, bytes], ...]
    """(name, what the store has of it). A name may come twice."""


@dataclass(frozen=True, slots=True)
class ReadQuotaRows(Operation[QuotaRows]):
    """Read a page of the store."""

    cursor: int
    """Start of the page; 0 for the first."""

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_rows",)

    def apply(self, memory: ShardMemory) -> QuotaRows:
        stored = memory.part(QuotaStore).stored
        after = self.cursor + MOST_ROWS
        return QuotaRows(after if after < len(stored) else 0, tuple(stored.items())[self.cursor : after])

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.cursor, MOST_ROWS))

    def unpack(self, reply: Any, epoch: bytes) -> QuotaRows:
        return QuotaRows(int(reply[0]), tuple(zip(reply[1::2], reply[2::2], strict=True)))


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


@dataclass(frozen=True, slots=True)
class PostQuotas(Operation[bytes]):
    """Leave a message; the result says which of that peer's messages the keeper has taken in last."""

    peer: bytes
    message: bytes

    lua: ClassVar[tuple[str, ...]] = ("quota/quota_post",)

    def apply(self, memory: ShardMemory) -> bytes:
        store = memory.part(QuotaStore)
        store.posted[self.peer] = self.message
        return store.acknowledged.get(self.peer, b"")

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(QUOTA), (self.peer, self.message))

    def unpack(self, reply: Any, epoch: bytes) -> bytes:
        return bytes(reply)
