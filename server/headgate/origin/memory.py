"""The origin in memory: the whole protocol, in this process, exact and synchronous.

It is the reference for the Lua that runs in Redis (one table of cases runs over both),
the shard of the simulation, and, as `memory://`, the embedded default: then the node
in this process is its only one, and `exclusive` says so.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from headgate.clock import Clock
from headgate.origin.book import Book, BookEntry, BookPage, BookState
from headgate.origin.bucket_record import BucketRecord
from headgate.origin.claims import Claim, Claims
from headgate.origin.interface import LEASE_MS, NODE_GONE_MS, REGION_GONE_MS
from headgate.origin.look import KeyLook, look_at
from headgate.origin.outbox import Outbox
from headgate.origin.protocol import (
    NO_GRANT,
    PEEK,
    UNREADABLE,
    Answer,
    BucketAnswer,
    BucketReport,
    Call,
    Changes,
    ChargeRequest,
    Count,
    ForeignCount,
    Lane,
    Prefetch,
    Published,
    Pulse,
    Refund,
    Reply,
    Report,
    Stamp,
    WindowAnswer,
    WindowReport,
    costs_by_report,
    key_of_name,
)
from headgate.origin.quota_book import QuotaBook
from headgate.origin.quota_protocol import QuotaLease, QuotaSave, QuotaSaved, QuotaStep, QuotaStepped
from headgate.origin.window_record import WindowRecord

SWEEP_EVERY_MS: Final = 1_000
"""How often expired records are looked for; each look visits all, so not at every call."""
NEVER: Final = 2**63
"""A threshold that no total reaches: then only other regions' counts make a key published."""


class Record(Protocol):
    """What a limit key's record does for a call; each kind takes its own kind of report."""

    def expires_ms(self, now_ms: int) -> int:
        """When the record can no longer matter."""
        ...

    def report(self, report: Any, now_ms: int) -> int:
        """Merge the report and renew its grant: the grant, or NO_GRANT for an overtaken call."""
        ...

    def missing(self, report: Any, charged: int, cost: int) -> int:
        """What must be charged for `cost` beyond the run's credit, of which `charged` is spoken for."""
        ...

    def fits(self, report: Any, now_ms: int, missing: int) -> bool:
        """Whether so much more stays within the limit."""
        ...

    def charge(self, report: Any, missing: int, now_ms: int) -> None:
        """Raise the run's component, and what follows from it."""
        ...

    def answer(self, report: Any, grant: int) -> Answer:
        """What the reporting run is told."""
        ...


class UnreadableRecord:
    """A record that this version can't read: garbled, of another type, or of a newer format.

    Its key is answered UNREADABLE and nothing else; the other keys of a call are untouched. One of a
    newer format stays for those who can read it. Any other is dropped, and the next report begins anew.
    """

    def __init__(self, *, newer: bool) -> None:
        self.newer = newer

    def expires_ms(self, now_ms: int) -> int:
        """It has a time to live, as every key; which one nobody knows here."""
        return now_ms + SWEEP_EVERY_MS

    def report(self, report: Any, now_ms: int) -> int:
        """Nothing is merged."""
        return UNREADABLE

    def missing(self, report: Any, charged: int, cost: int) -> int:
        """Unknown; nothing is charged anyway."""
        return cost

    def fits(self, report: Any, now_ms: int, missing: int) -> bool:
        """Nobody can say."""
        return False

    def charge(self, report: Any, missing: int, now_ms: int) -> None:
        """Never called: nothing fits."""
        raise AssertionError("what can't be read is not charged")

    def answer(self, report: Any, grant: int) -> Answer:
        """Nothing but that it can't be read."""
        if isinstance(report, WindowReport):
            refunds = None if report.demands is None else (Refund(), Refund())
            return WindowAnswer(0, Count(0, 0, 0), Count(0, 0, 0), UNREADABLE, refunds=refunds)
        return BucketAnswer(0, 0, 0, UNREADABLE, refund=None if report.demands is None else Refund())


class MemoryOrigin:
    """A region's counts in this process: one shard, exact, and never away."""

    shards = 1

    def __init__(
        self, clock: Clock, *, region: bytes = b"local", epoch: bytes = b"memory", exclusive: bool = False
    ) -> None:
        self.exclusive = exclusive
        self._clock = clock
        self._region = region
        self._epoch = epoch
        self._swept_ms = 0
        self._records: dict[bytes, Record] = {}
        self._expiry: dict[bytes, int] = {}
        self._beats: dict[bytes, int] = {}
        self._regions: dict[bytes, int] = {}
        self.outbox = Outbox()
        self.quotas = QuotaBook()
        self.book = Book()
        self.claims = Claims()

    def __len__(self) -> int:
        return len(self._records)

    def shard_of(self, key: bytes) -> int:
        return 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def describe(self) -> Sequence[Any]:
        return []

    async def call(self, shard: int, call: Call, timeout_s: float) -> Reply:
        return self.apply(call)

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        return self.beat(run)

    async def import_foreign(
        self, shard: int, counts: Sequence[ForeignCount], timeout_s: float, stamp: Stamp | None = None
    ) -> None:
        self.take_in(counts, stamp)

    async def changes(
        self,
        shard: int,
        peer: bytes,
        lane: Lane,
        owner: bytes,
        generation: bytes,
        most: int,
        timeout_s: float,
        after: int = 0,
    ) -> Changes:
        return self.read_changes(peer, lane, owner, generation, most, after)

    async def components(
        self, shard: int, peer: bytes, lane: Lane, names: Sequence[bytes], timeout_s: float
    ) -> list[Published | None]:
        return self.read_components(peer, lane, names)

    async def acknowledge(self, shard: int, peer: bytes, lane: Lane, changes: Changes, timeout_s: float) -> bool:
        return self.move_cursor(peer, lane, changes)

    async def begin_walk(self, shard: int, peer: bytes, walk: bytes, timeout_s: float) -> None:
        self.outbox.begin_walk(peer, walk)

    async def mark_filled(self, shard: int, peer: bytes, mark: bytes, timeout_s: float) -> None:
        self.outbox.mark_filled(peer, mark)

    async def give_back(self, shard: int, owner: bytes, peers: Sequence[bytes], timeout_s: float) -> None:
        self.return_leases(owner, peers)

    async def quota_lease(
        self, shard: int, owner: bytes, drawn: bytes, peers: Sequence[bytes], timeout_s: float
    ) -> QuotaLease:
        return self.lease_quotas(owner, drawn, peers)

    async def quota_rows(
        self, shard: int, cursor: int, timeout_s: float
    ) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
        return self.quotas.rows(cursor)

    async def quota_save(self, shard: int, save: QuotaSave, timeout_s: float) -> QuotaSaved:
        return self.quotas.save(save)

    async def quota_post(self, shard: int, peer: bytes, message: bytes, timeout_s: float) -> bytes:
        return self.quotas.post(peer, message)

    async def quota_step(self, shard: int, step: QuotaStep, timeout_s: float) -> QuotaStepped:
        return self.step_quotas(step)

    def return_leases(self, owner: bytes, peers: Sequence[bytes]) -> None:
        """What `give_back` does, here and now."""
        self.outbox.give_back(owner, peers)
        self.quotas.give_back(owner)

    def lease_quotas(self, owner: bytes, drawn: bytes, peers: Sequence[bytes]) -> QuotaLease:
        """What `quota_lease` does, here and now."""
        return self.quotas.lease(owner, LEASE_MS, drawn, peers, self._epoch, self._clock.now_ms())

    def step_quotas(self, step: QuotaStep) -> QuotaStepped:
        """What `quota_step` does, here and now."""
        now_ms = self._clock.now_ms()
        self._sweep(now_ms)
        return self.quotas.step(step, self._records, self._epoch, now_ms)

    async def write_book(
        self, shard: int, entries: Sequence[BookEntry], generation: bytes, timeout_s: float
    ) -> BookState:
        return self.book.write(entries, generation, self._clock.now_ms())

    async def read_book(self, shard: int, since: int, most: int, timeout_s: float) -> BookPage:
        return self.book.read(since, most, self._clock.now_ms())

    async def claim(self, shard: int, name: bytes, value: bytes, expires_ms: int, timeout_s: float) -> Claim:
        return self.take_claim(name, value, expires_ms)

    def take_claim(self, name: bytes, value: bytes, expires_ms: int) -> Claim:
        """What `claim` does, here and now."""
        now_ms = self._clock.now_ms()
        self._sweep(now_ms)
        return self.claims.take(name, value, expires_ms, now_ms)

    async def look(self, shard: int, key: bytes, window_ms: int, timeout_s: float) -> KeyLook:
        return self.look_at(key, window_ms)

    def look_at(self, key: bytes, window_ms: int) -> KeyLook:
        """What `look` does, here and now."""
        now_ms = self._clock.now_ms()
        record = self._records.get(key) if self._expiry.get(key, now_ms + 1) > now_ms else None
        return look_at(record, now_ms, window_ms)

    def take_in(self, counts: Sequence[ForeignCount], stamp: Stamp | None = None) -> None:
        """What `import_foreign` does, here and now."""
        now_ms = self._clock.now_ms()
        if stamp is not None:
            self.outbox.heard(*stamp)
            self._regions[stamp.region] = now_ms
        for count in counts:
            record = self._window(count.key, count.window_ms)
            if isinstance(record, UnreadableRecord):
                continue
            record.come_to(now_ms)
            own, foreign = record.state(), record.is_published(NEVER)
            current = record.belongs(count.reset)
            if current and count.region == self._region:
                record.merge_own(count.sequence, count.total, now_ms)
            elif current:
                record.merge_foreign(count.region, count.sequence, count.total, now_ms, count.refunded)
            if count.name and (own != record.state() or foreign != record.is_published(NEVER)):
                self.outbox.note(count.name, Lane.NORMAL)
            self._expiry[count.key] = record.expires_ms(now_ms)

    def move_cursor(self, peer: bytes, lane: Lane, changes: Changes) -> bool:
        """What `acknowledge` does, here and now."""
        return self.outbox.acknowledge(peer, lane, changes.generation, changes.since, changes.until)

    def read_changes(
        self, peer: bytes, lane: Lane, owner: bytes, generation: bytes, most: int, after: int = 0
    ) -> Changes:
        """What `changes` does, here and now."""
        now_ms = self._clock.now_ms()
        self._sweep(now_ms)
        found = self.outbox.changes(peer, lane, owner, LEASE_MS, generation, most, now_ms, after)
        return found._replace(epoch=self._epoch)

    def read_components(self, peer: bytes, lane: Lane, names: Sequence[bytes]) -> list[Published | None]:
        """What `components` does, here and now."""
        records = [self._records.get(key_of_name(name)) for name in names]
        gone = [name for name, record in zip(names, records, strict=True) if record is None]
        self.outbox.forget(gone, lane)
        return [record.published(peer) if isinstance(record, WindowRecord) else None for record in records]

    def apply(self, call: Call) -> Reply:
        """Merge all reports, then charge what fits, request by request; then what is asked ahead."""
        now_ms = self._clock.now_ms()
        self._sweep(now_ms)
        call, shares = self.quotas.take_in(call, now_ms) if call.quotas else (call, ())
        records = [self._record(report) for report in call.reports]
        states = [self._state(record, now_ms) for record in records]
        grants = [record.report(report, now_ms) for record, report in zip(records, call.reports, strict=True)]
        spoken_for = [0] * len(call.reports)
        charged = tuple([self._charge(call, wants, records, grants, spoken_for, now_ms) for wants in call.requests])
        for ahead in call.ahead:
            if grants[ahead.report] >= 0:
                self._charge_ahead(records[ahead.report], call, ahead, spoken_for[ahead.report], now_ms)
        answers: list[Answer] = []
        for record, report, grant in zip(records, call.reports, grants, strict=True):
            answers.append(record.answer(report, grant))
            self._keep(report.key, record, now_ms)
        for record, report, before in zip(records, call.reports, states, strict=True):
            self._publish(record, report, before)
        return Reply(now_ms, self._epoch, tuple(answers), charged, shares)

    def beat(self, run: bytes) -> Pulse:
        """A run says that it lives."""
        now_ms = self._clock.now_ms()
        beats = {name: at_ms for name, at_ms in self._beats.items() if at_ms > now_ms - NODE_GONE_MS}
        known = run in beats
        # One that lies ahead was written before the clock was set back, and would count for too long.
        self._beats = {name: at_ms for name, at_ms in beats.items() if at_ms <= now_ms + NODE_GONE_MS}
        self._beats[run] = now_ms
        self._regions = {
            region: at_ms for region, at_ms in self._regions.items() if abs(now_ms - at_ms) < REGION_GONE_MS
        }
        return Pulse(now_ms, self._epoch, len(self._beats), known, len(self._regions), self.book.mark)

    def wipe(self, epoch: bytes | None = None) -> None:
        """Lose everything, as a flush does, or a restart, which has another epoch."""
        self._records.clear()
        self._expiry.clear()
        self._beats.clear()
        self._regions.clear()
        self.outbox = Outbox()
        self.quotas = QuotaBook()
        self.book = Book()
        self.claims = Claims()
        self._epoch = epoch or self._epoch

    def _state(self, record: Record, now_ms: int) -> tuple[int, ...] | None:
        if not isinstance(record, WindowRecord):
            return None
        record.come_to(now_ms)
        return record.state()

    def _publish(self, record: Record, report: Report, before: tuple[int, ...] | None) -> None:
        """A published key's totals have changed: exchangers are to tell."""
        if not isinstance(record, WindowRecord) or not isinstance(report, WindowReport) or not report.publish_at:
            return
        if record.state() != before and record.is_published(report.publish_at):
            self.outbox.note(report.name, Lane.URGENT if report.urgent else Lane.NORMAL)

    def _charge(
        self,
        call: Call,
        wants: tuple[ChargeRequest, ...],
        records: list[Record],
        grants: list[int],
        spoken_for: list[int],
        now_ms: int,
    ) -> bool:
        costs = costs_by_report(wants)
        missing: dict[int, int] = {}
        for index, cost in costs.items():
            report, record = call.reports[index], records[index]
            missing[index] = record.missing(report, spoken_for[index], 1 if cost == PEEK else cost)
            if grants[index] == NO_GRANT or not record.fits(report, now_ms, missing[index]):
                return False
        for index, cost in costs.items():
            if cost == PEEK:
                continue
            records[index].charge(call.reports[index], missing[index], now_ms)
            spoken_for[index] += cost
        return True

    def _charge_ahead(self, record: Record, call: Call, ahead: Prefetch, spoken_for: int, now_ms: int) -> None:
        """As many whole requests as fit beyond the credit that is left."""
        report = call.reports[ahead.report]
        fit, beyond = 0, ahead.requests + 1
        while beyond - fit > 1:
            middle = (fit + beyond) // 2
            if record.fits(report, now_ms, record.missing(report, spoken_for, middle * ahead.cost)):
                fit = middle
            else:
                beyond = middle
        record.charge(report, record.missing(report, spoken_for, fit * ahead.cost), now_ms)

    def _keep(self, key: bytes, record: Record, now_ms: int) -> None:
        """A record lives until it can't matter any more; one that nobody can ever read goes at once."""
        if isinstance(record, UnreadableRecord):
            if not record.newer:
                self._records.pop(key, None)
                self._expiry.pop(key, None)
                self.quotas.quotas.pop(key, None)
        else:
            self._expiry[key] = record.expires_ms(now_ms)

    def _record(self, report: Report) -> Record:
        if isinstance(report, WindowReport):
            return self._window(report.key, report.window_ms)
        return self._bucket(report)

    def _window(self, key: bytes, window_ms: int) -> WindowRecord | UnreadableRecord:
        record = self._records.get(key)
        if not isinstance(record, WindowRecord | UnreadableRecord):
            record = self._records[key] = WindowRecord(window_ms)
        return record

    def _bucket(self, report: BucketReport) -> BucketRecord | UnreadableRecord:
        record = self._records.get(report.key)
        if not isinstance(record, BucketRecord | UnreadableRecord):
            record = self._records[report.key] = BucketRecord(max(1, report.rate))
        return record

    def _sweep(self, now_ms: int) -> None:
        if 0 <= now_ms - self._swept_ms < SWEEP_EVERY_MS:
            return
        self._swept_ms = now_ms
        self.claims.sweep(now_ms)
        for key in [key for key, expires_ms in self._expiry.items() if expires_ms <= now_ms]:
            del self._expiry[key]
            self._records.pop(key, None)
            self.quotas.quotas.pop(key, None)
