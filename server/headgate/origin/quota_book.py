"""What one shard keeps for quotas: each key's share of its limit, what was offered; on the first, the keeper's store.

A share holds until its own time is up and until the deadlines of the whole shard pass; then the floor is in force,
whoever lives. The keeper (quota/keeper.py) writes shares and reads what is used in one step. Each keeper has a
fence, higher than any before it: from its first step on a shard nothing that an earlier one writes counts there.

The same in Lua: quota.lua, quota_step.lua, quota_lease.lua, quota_save.lua, quota_rows.lua and quota_post.lua.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.origin.bucket_record import BucketRecord
from headgate.origin.offered import Offered
from headgate.origin.protocol import BucketReport, Call, Report, key_of_name
from headgate.origin.quota_protocol import (
    NOT_USED,
    UNTOUCHED,
    QuotaKind,
    QuotaLease,
    QuotaReport,
    QuotaSave,
    QuotaSaved,
    QuotaSeen,
    QuotaStep,
    QuotaStepped,
    Share,
)
from headgate.origin.window_record import WindowRecord

WHOLE: Final = 1_000_000
"""Shares are counted in millionths of the limit."""
NOTED_EVERY_MS: Final = 1_000
"""How often a busy key is noted again."""
BUSY_MS: Final = 10_000
"""For how long a key counts as busy after it was noted."""
MOST_BUSY: Final = 100_000
"""Keys that are noted as busy: as many as a keeper's ledger holds. Further ones stay at the share of unknown keys."""
MOST_ROWS: Final = 500
"""Rows per page when a keeper begins."""
FOREVER_MS: Final = 10**15


class KeyShare:
    """One key's own share, and until when it holds."""

    __slots__ = ("lasting", "share", "until_ms")

    def __init__(self, share: int, lasting: int, until_ms: int) -> None:
        self.share = share
        self.lasting = lasting
        self.until_ms = until_ms


class Quota:
    """What a shard knows of one quota beside its record."""

    __slots__ = ("burst", "kind", "limit", "noted_ms", "offered")

    def __init__(self, window_ms: int) -> None:
        self.offered = Offered(window_ms)
        self.kind = QuotaKind.SLIDING
        self.limit = 0
        self.burst = 0
        self.noted_ms = 0


class QuotaBook:
    """One shard's."""

    def __init__(self) -> None:
        self.quotas: dict[bytes, Quota] = {}
        """By limit key. Each goes with its record."""
        self.shares: dict[bytes, KeyShare] = {}
        self.busy: dict[bytes, int] = {}
        self.dropped = 0
        self.generation = b""
        self.fence = 0
        self.taken_until_ms = 0
        self.until_ms = 0
        self.share = 0
        """Of keys that have none of their own."""
        self.settled_ms = 0
        """Two windows after this it is theirs."""
        self._owner = b""
        self._leased_until_ms = 0
        self._mark = b""
        self._rows: dict[bytes, bytes] = {}
        self._posted: dict[bytes, bytes] = {}
        self._acknowledged: dict[bytes, bytes] = {}

    # In a node's call

    def take_in(self, call: Call, now_ms: int) -> tuple[Call, tuple[Share, ...]]:
        """Count what was offered; the call with its quotas cut to their slices, and what is in force of each."""
        reports = list(call.reports)
        shares: list[Share] = []
        for quota in call.quotas:
            share, expired = self.in_force(quota, now_ms)
            reports[quota.report] = _cut(reports[quota.report], quota, share.share)
            self._offer(reports[quota.report].key, quota, expired, now_ms)
            shares.append(share)
        return call._replace(reports=tuple(reports)), tuple(shares)

    def in_force(self, quota: QuotaReport, now_ms: int) -> tuple[Share, bool]:
        """What is in force of a key, and whether its own share has run out."""
        own = self.shares.get(quota.name) or self._unknown(quota, now_ms)
        if now_ms >= own.until_ms:
            return Share(quota.floor, 0), True
        taken_until_ms = min(self.taken_until_ms, self.until_ms)
        if now_ms < taken_until_ms and own.share != own.lasting:
            return Share(own.share, min(taken_until_ms, own.until_ms)), False
        if now_ms < self.until_ms:
            return Share(own.lasting, min(self.until_ms, own.until_ms)), False
        return Share(quota.floor, 0), False

    def _unknown(self, quota: QuotaReport, now_ms: int) -> KeyShare:
        settled = now_ms >= self.settled_ms + 2 * quota.window_ms
        share = self.share if settled else quota.floor
        return KeyShare(share, share, FOREVER_MS)

    def _offer(self, key: bytes, told: QuotaReport, expired: bool, now_ms: int) -> None:
        quota = self.quotas.get(key)
        if quota is None or quota.offered.window_ms != told.window_ms:
            quota = self.quotas[key] = Quota(told.window_ms)
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

    # For the keeper

    def lease(
        self, owner: bytes, lease_ms: int, drawn: bytes, peers: Sequence[bytes], epoch: bytes, now_ms: int
    ) -> QuotaLease:
        """Whether `owner` keeps the slices for the next `lease_ms`. A lease that a wrong clock gave binds nobody."""
        taken = self._owner not in (b"", owner) and now_ms < self._leased_until_ms <= now_ms + lease_ms
        if taken:
            return QuotaLease(now_ms, epoch, False, self.fence, self.generation, b"", ())
        self.generation = self.generation or drawn
        if self._owner != owner:
            self.fence = max(self.fence + 1, now_ms)
        self._owner, self._leased_until_ms = owner, now_ms + lease_ms
        posted = tuple((peer, self._posted[peer]) for peer in peers if peer in self._posted)
        return QuotaLease(now_ms, epoch, True, self.fence, self.generation, self._mark, posted)

    def give_back(self, owner: bytes) -> None:
        """The keeper leaves: the next one need not wait."""
        if self._owner == owner:
            self._owner = b""

    def rows(self, cursor: int) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
        """A page of what the store has, and where the next one begins; 0: that was all."""
        found = tuple(self._rows.items())[cursor : cursor + MOST_ROWS]
        after = cursor + len(found)
        return (after if after < len(self._rows) else 0), found

    def save(self, save: QuotaSave) -> QuotaSaved:
        if save.fence != self.fence or save.generation != self.generation:
            return QuotaSaved(False, ())
        refused = []
        for name, before, after in save.rows:
            stored = self._rows.get(name, b"")
            if stored != before:
                refused.append((name, stored))
            elif after:
                self._rows[name] = after
            else:
                self._rows.pop(name, None)
        self._mark = save.mark
        for peer, which in save.acknowledged:
            self._acknowledged[peer] = which
            self._posted.pop(peer, None)
        return QuotaSaved(True, tuple(refused))

    def post(self, peer: bytes, message: bytes) -> bytes:
        """Leave a peer's message for the keeper; which of its messages the keeper has taken in last."""
        self._posted[peer] = message
        return self._acknowledged.get(peer, b"")

    def step(self, step: QuotaStep, records: Mapping[bytes, Any], epoch: bytes, now_ms: int) -> QuotaStepped:
        self.generation = self.generation or step.drawn
        if step.fence < self.fence or step.generation != self.generation:
            return QuotaStepped(now_ms, epoch, False, self.generation, (), (), 0)
        self.fence = step.fence
        for name, share, lasting, for_ms in step.shares:
            self.shares[name] = KeyShare(share, lasting, now_ms + for_ms)
        for name in step.forgotten:
            self.shares.pop(name, None)
        if step.until_ms != UNTOUCHED:
            self.taken_until_ms, self.until_ms = now_ms + step.taken_ms, now_ms + step.until_ms
            self.share, self.settled_ms = step.share, max(0, now_ms - step.settled_ago_ms)
        seen = tuple(self._see(name, records, now_ms) for name, *_ in step.shares)
        return QuotaStepped(now_ms, epoch, True, self.generation, seen, self._busy(step.most, now_ms), self.dropped)

    def _see(self, name: bytes, records: Mapping[bytes, Any], now_ms: int) -> QuotaSeen | None:
        key = key_of_name(name)
        record, quota = records.get(key), self.quotas.get(key)
        if quota is None:
            return None if record is not None else NOT_USED
        used = used_of(record, quota.kind, now_ms)
        if used is None:
            return None
        offered = quota.offered.per_window(now_ms)
        return QuotaSeen(quota.kind, quota.limit, quota.burst, quota.offered.window_ms, used, offered)

    def _busy(self, most: int, now_ms: int) -> tuple[bytes, ...]:
        self.busy = {name: at_ms for name, at_ms in self.busy.items() if abs(now_ms - at_ms) < BUSY_MS}
        return tuple(sorted(self.busy, key=lambda name: (self.busy[name], name), reverse=True)[:most])


def _cut(report: Report, quota: QuotaReport, share: int) -> Report:
    """The report with what its limit comes to: never more than the node itself makes of it."""
    if isinstance(report, BucketReport):
        rate, burst = min(report.rate, quota.limit * share // WHOLE), min(report.burst, quota.burst * share // WHOLE)
        return report._replace(rate=rate, burst=burst)
    return report._replace(limit=min(report.limit, quota.limit * share // WHOLE))


def used_of(record: Any, kind: QuotaKind, now_ms: int) -> int | None:
    """What is in use; None where that can't be said."""
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
    left_ms = record.window_ms - at_ms % record.window_ms
    return current + previous.region_total * left_ms // record.window_ms
