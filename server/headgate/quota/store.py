"""Quotas on one shard: each key's share of its limit, what was offered; on the first, the keeper's store.

A share holds until its own time is up and until the deadlines of the whole shard pass; then the floor is in force,
whoever lives. The keeper (quota/keeper.py) writes shares and reads what is used in one step. Each keeper has a
fence, higher than any before it: from its first step on a shard nothing that an earlier one writes counts there.

The same in Lua: quota.lua and quota_call.lua, and the scripts of the operations beside this module.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.origin.keyspace import KeySpace
from headgate.origin.shard_memory import MemoryPart
from headgate.quota.offered import Offered
from headgate.quota.protocol import QuotaKind, QuotaLease, QuotaReport, QuotaShare

QUOTA: Final = b"quota"
BUSY: Final = b"busy"
"""Names of what a shard keeps for quotas (quota.lua): a hash, and the busy keys."""
WHOLE: Final = 1_000_000
"""Shares are counted in millionths of the limit."""
NOTED_EVERY_MS: Final = 1_000
"""Time after which a busy key is noted again."""
BUSY_MS: Final = 10_000
"""Time for which a key counts as busy after it was noted."""
MOST_BUSY: Final = 100_000
"""Keys that are noted as busy: as many as a keeper's ledger holds. Further ones stay at the share of unknown keys."""
FOREVER_MS: Final = 10**15


class KeyShare(NamedTuple):
    """One key's own share, and until when it holds."""

    share: int
    lasting: int
    """The share without what the region has of lost ones."""
    until_ms: int


@dataclass(slots=True)
class Quota:
    """State of one quota on a shard, beside its record."""

    offered: Offered
    kind: QuotaKind = QuotaKind.SLIDING
    limit: int = 0
    burst: int = 0
    noted_ms: int = 0


class QuotaStore(MemoryPart):
    """Shares and offered cost of one shard's quotas; on the first shard, the keeper's store."""

    def __init__(self) -> None:
        self.quotas: dict[bytes, Quota] = {}
        """State by limit key. Each goes with its record."""
        self.shares: dict[bytes, KeyShare] = {}
        self.busy: dict[bytes, int] = {}
        self.dropped = 0
        self.generation = b""
        self.fence = 0
        self.taken_until_ms = 0
        self.until_ms = 0
        self.share = 0
        """Share of keys that have none of their own."""
        self.settled_ms = 0
        """Two windows after this it is theirs."""
        self.number = 0
        """Number of the list of shards by which all of this was told."""
        self._owner = b""
        self._leased_until_ms = 0
        self.mark = b""
        self.stored: dict[bytes, bytes] = {}
        """Rows that the keeper has saved, by name."""
        self.posted: dict[bytes, bytes] = {}
        """Messages that the keeper has not taken in yet, by peer."""
        self.acknowledged: dict[bytes, bytes] = {}
        """Messages that the keeper has taken in last, by peer."""

    def forget(self, key: bytes) -> None:
        self.quotas.pop(key, None)

    def copy_of(self, key: bytes) -> Quota | None:
        return copy.deepcopy(self.quotas.get(key))

    def bring(self, key: bytes, copied: Quota) -> None:
        self.quotas[key] = copied

    def in_force(self, quota: QuotaReport, now_ms: int) -> tuple[QuotaShare, bool]:
        """Find the share of a key that is in force, and say if its own share has run out."""
        if quota.came_by > self.number:
            return QuotaShare(quota.floor, 0), False
        own = self.shares.get(quota.name) or self._unknown(quota, now_ms)
        if now_ms >= own.until_ms:
            return QuotaShare(quota.floor, 0), True
        taken_until_ms = min(self.taken_until_ms, self.until_ms)
        if now_ms < taken_until_ms and own.share != own.lasting:
            return QuotaShare(own.share, min(taken_until_ms, own.until_ms)), False
        if now_ms < self.until_ms:
            return QuotaShare(own.lasting, min(self.until_ms, own.until_ms)), False
        return QuotaShare(quota.floor, 0), False

    def _unknown(self, quota: QuotaReport, now_ms: int) -> KeyShare:
        settled = now_ms >= self.settled_ms + 2 * quota.window_ms
        share = self.share if settled else quota.floor
        return KeyShare(share, share, FOREVER_MS)

    def offer(self, key: bytes, told: QuotaReport, expired: bool, now_ms: int) -> None:
        quota = self.quotas.get(key)
        if quota is None or quota.offered.window_ms != told.window_ms:
            quota = self.quotas[key] = Quota(Offered(told.window_ms))
        quota.kind, quota.limit, quota.burst = told.kind, told.limit, told.burst
        quota.offered.add(told.offered, now_ms)
        busy = quota.offered.in_span(now_ms) >= told.busy_at
        if (busy or expired) and abs(now_ms - quota.noted_ms) >= NOTED_EVERY_MS:
            quota.noted_ms = now_ms
            self._note(told.name, now_ms)

    def _note(self, name: bytes, now_ms: int) -> None:
        if name not in self.busy and len(self.busy) >= MOST_BUSY:
            self.dropped += 1
            return
        self.busy[name] = now_ms

    def lease(
        self, owner: bytes, lease_ms: int, drawn: bytes, peers: Sequence[bytes], above: int, epoch: bytes, now_ms: int
    ) -> QuotaLease:
        """Give `owner` the lease for the next `lease_ms` if it is free; with a fence above `above`. One that a wrong
        clock gave binds nobody.
        """
        taken = self._owner not in (b"", owner) and now_ms < self._leased_until_ms <= now_ms + lease_ms
        if taken:
            return QuotaLease(now_ms, epoch, False, self.fence, self.generation, b"", ())
        self.generation = self.generation or drawn
        if self._owner != owner:
            self.fence = max(self.fence + 1, now_ms)
        self.fence = max(self.fence, above + 1)
        self._owner, self._leased_until_ms = owner, now_ms + lease_ms
        posted = tuple((peer, self.posted[peer]) for peer in peers if peer in self.posted)
        return QuotaLease(now_ms, epoch, True, self.fence, self.generation, self.mark, posted)

    def release(self, owner: bytes) -> None:
        """End the keeper's lease: the next one need not wait."""
        if self._owner == owner:
            self._owner = b""


def quota_keys(space: KeySpace) -> list[bytes]:
    """Redis keys of the quota hash and of the busy keys."""
    return space.named(QUOTA, BUSY)
