"""StepQuotas: one turn of the keeper on one shard."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import msgpack

from headgate.origin.bucket_record import BucketRecord
from headgate.origin.keyspace import KeySpace
from headgate.origin.names import key_of_name
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.shard_memory import ShardMemory
from headgate.origin.window_record import WindowRecord
from headgate.quota.protocol import NOT_USED, QuotaKind, QuotaSeen
from headgate.quota.store import BUSY_MS, KeyShare, QuotaStore, quota_keys
from headgate.window import weighted

UNTOUCHED: Final = -1
"""Stands in a step's place for how long shares hold: as it was written before."""
SEEN_NUMBERS: Final = 6
"""Per share in what the script returns."""


class QuotaStepped(NamedTuple):
    """Result of a step."""

    time_ms: int
    epoch: bytes
    kept: bool
    """False: a later keeper has been here, or a later list of shards, or the shard's memory is another one; nothing was
    written or read."""
    generation: bytes
    seen: tuple[QuotaSeen | None, ...]
    """Per share that was written; None: the key is counted, and how much of what limit that is can't be said."""
    busy: tuple[bytes, ...]
    """Names of keys that were offered much lately, or whose own share has run out, the latest first."""
    dropped: int
    """Times that a busy key was not noted, because there were too many."""


@dataclass(frozen=True, slots=True)
class StepQuotas(Operation[QuotaStepped]):
    """Write which shares are in force on a shard, and read what is used and offered of each, at one instant."""

    fence: int
    generation: bytes
    """Generation of the shard's quotas, as far as the keeper knows; nothing is written into another one."""
    drawn: bytes
    """The generation of a shard that has none yet."""
    taken_ms: int
    until_ms: int
    """Time for which what is written holds, from when the shard gets it: with and without what was taken from lost
    regions. UNTOUCHED: as it was."""
    share: int
    """Share of keys that have none of their own."""
    settled_ago_ms: int
    """Two windows of the key after that time it is theirs; until then their floor is. Below 0: it is yet to come."""
    shares: tuple[tuple[bytes, int, int, int], ...]
    """(name, share, lasting, for how many ms): each is read after it was written."""
    forgotten: tuple[bytes, ...]
    """Names that have no share of their own any more."""
    most: int
    """Busy keys that are named at most."""
    number: int = 0
    """Number of the list of shards by which keys are placed; by an earlier one than the shard has heard of nothing is
    written or read."""

    lua: ClassVar[tuple[str, ...]] = ("origin/common", "origin/fence", "quota/quota", "quota/quota_step")

    def apply(self, memory: ShardMemory) -> QuotaStepped:
        now_ms, store = memory.sweep(), memory.part(QuotaStore)
        store.generation = store.generation or self.drawn
        latest = memory.part(KeptPlacement).has(self.number)
        if self.fence < store.fence or self.generation != store.generation or not latest:
            return QuotaStepped(now_ms, memory.epoch, False, store.generation, (), (), 0)
        store.fence = self.fence
        for name, share, lasting, for_ms in self.shares:
            store.shares[name] = KeyShare(share, lasting, now_ms + for_ms)
        for name in self.forgotten:
            store.shares.pop(name, None)
        if self.until_ms != UNTOUCHED:
            store.taken_until_ms, store.until_ms = now_ms + self.taken_ms, now_ms + self.until_ms
            store.share, store.settled_ms = self.share, max(0, now_ms - self.settled_ago_ms)
            store.number = self.number
        seen = tuple(_see(name, memory, now_ms) for name, *_ in self.shares)
        busy = _busy(store, self.most, now_ms)
        return QuotaStepped(now_ms, memory.epoch, True, store.generation, seen, busy, store.dropped)

    def pack(self, space: KeySpace) -> Packed:
        flat: list[Any] = [self.fence, self.generation, self.drawn, self.taken_ms, self.until_ms]
        flat += (self.share, self.settled_ago_ms, self.most, self.number)
        for share in self.shares:
            flat += share
        records = [space.limit(key_of_name(name)) for name, *_ in self.shares]
        return Packed(
            [*quota_keys(space), *space.named(SHARDS), *records], (packed(flat), packed(list(self.forgotten)))
        )

    def unpack(self, reply: Any, epoch: bytes) -> QuotaStepped:
        time_ms, kept, generation, dropped, packed_seen = reply[:5]
        flat: list[int] = msgpack.unpackb(packed_seen) or []
        if len(flat) != (SEEN_NUMBERS * len(self.shares) if kept else 0):
            raise ValueError(f"{len(flat)} numbers for {len(self.shares)} shares")
        seen = tuple([_seen(flat[at : at + SEEN_NUMBERS]) for at in range(0, len(flat), SEEN_NUMBERS)])
        return QuotaStepped(time_ms, epoch, kept == 1, generation, seen, tuple(reply[5:]), dropped)


def _seen(numbers: list[int]) -> QuotaSeen | None:
    kind, *rest = numbers
    return None if kind < 0 else QuotaSeen(QuotaKind(kind), *rest)


def _see(name: bytes, memory: ShardMemory, now_ms: int) -> QuotaSeen | None:
    key = key_of_name(name)
    record, quota = memory.records.get(key), memory.part(QuotaStore).quotas.get(key)
    if quota is None:
        return None if record is not None else NOT_USED
    used = used_of(record, quota.kind, now_ms)
    if used is None:
        return None
    offered = quota.offered.per_window(now_ms)
    return QuotaSeen(quota.kind, quota.limit, quota.burst, quota.offered.window_ms, used, offered)


def _busy(store: QuotaStore, most: int, now_ms: int) -> tuple[bytes, ...]:
    store.busy = {name: at_ms for name, at_ms in store.busy.items() if abs(now_ms - at_ms) < BUSY_MS}
    return tuple(sorted(store.busy, key=lambda name: (store.busy[name], name), reverse=True)[:most])


def used_of(record: Any, kind: QuotaKind, now_ms: int) -> int | None:
    """Cost that a record has in use, of a bucket in ms until it is full again; None where that can't be said."""
    if record is None:
        return 0
    if kind is QuotaKind.BUCKET:
        return max(0, record.arrival[0] - now_ms) if isinstance(record, BucketRecord) else None
    if not isinstance(record, WindowRecord):
        return None
    at_ms = record.time_ms(now_ms)
    ago = at_ms // record.window_ms - record.sequence
    current = record.current.region_total if ago == 0 else 0
    previous = {0: record.previous, 1: record.current}.get(ago)
    if kind is QuotaKind.FIXED or previous is None:
        return current
    return current + weighted(previous.region_total, record.window_ms - at_ms % record.window_ms, record.window_ms)
