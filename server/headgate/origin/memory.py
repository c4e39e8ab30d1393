"""The origin in memory: the whole protocol, in this process, exact and synchronous.

It is the reference for the Lua that runs in Redis (one table of cases runs over both),
the shard of the simulation, and, as `memory://`, the embedded default: then the node
in this process is its only one, and `exclusive` says so.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from headgate.clock import Clock
from headgate.origin.bucket_record import BucketRecord
from headgate.origin.interface import NODE_GONE_MS
from headgate.origin.protocol import (
    NO_GRANT,
    Answer,
    BucketReport,
    Call,
    ForeignCount,
    Pulse,
    Reply,
    Report,
    Want,
    WindowReport,
)
from headgate.origin.window_record import WindowRecord

SWEEP_EVERY_MS: Final = 1_000
"""How often expired records are looked for; each look visits all, so not at every call."""


class Record(Protocol):
    """What a limit key's record does for a call; each kind takes its own kind of report."""

    def expires_ms(self, now_ms: int) -> int: ...

    def report(self, report: Any, time_ms: int) -> int:
        """Merge the report and renew its grant: the grant, or NO_GRANT for an overtaken call."""
        ...

    def missing(self, report: Any, charged: int, cost: int) -> int:
        """What must be charged for `cost` beyond the run's credit, of which `charged` is spoken for."""
        ...

    def fits(self, report: Any, time_ms: int, missing: int) -> bool: ...

    def charge(self, report: Any, missing: int, time_ms: int) -> None: ...

    def answer(self, report: Any, grant: int) -> Answer: ...


class MemoryOrigin:
    shards = 1

    def __init__(
        self, clock: Clock, *, region: bytes = b"local", epoch: bytes = b"memory", exclusive: bool = False
    ) -> None:
        self.exclusive = exclusive
        self._clock = clock
        self._region = region
        self._epoch = epoch
        self._time_ms = 0
        self._swept_ms = 0
        self._records: dict[bytes, Record] = {}
        self._expiry: dict[bytes, int] = {}
        self._beats: dict[bytes, int] = {}

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

    async def import_foreign(self, shard: int, counts: Sequence[ForeignCount], timeout_s: float) -> None:
        time_ms = self._time()
        for key, window_ms, sequence, region, total in counts:
            record = self._window(key, window_ms)
            if region == self._region:
                record.merge_own(sequence, total, time_ms)
            else:
                record.merge_foreign(region, sequence, total, time_ms)
            self._expiry[key] = record.expires_ms(time_ms)

    def apply(self, call: Call) -> Reply:
        """Merge all reports, then charge what fits, request by request."""
        time_ms = self._time()
        self._sweep(time_ms)
        grants = [self._record(report).report(report, time_ms) for report in call.reports]
        spoken_for = [0] * len(call.reports)
        charged = tuple([self._charge(call, wants, grants, spoken_for, time_ms) for wants in call.requests])
        answers: list[Answer] = []
        for report, grant in zip(call.reports, grants, strict=True):
            record = self._record(report)
            answers.append(record.answer(report, grant))
            self._expiry[report.key] = record.expires_ms(time_ms)
        return Reply(time_ms, self._epoch, tuple(answers), charged)

    def beat(self, run: bytes) -> Pulse:
        time_ms = self._time()
        self._beats = {name: at for name, at in self._beats.items() if at > time_ms - NODE_GONE_MS}
        known = run in self._beats
        self._beats[run] = time_ms
        return Pulse(time_ms, self._epoch, len(self._beats), known)

    def wipe(self, epoch: bytes | None = None) -> None:
        """Lose everything, as a flush does, or a restart, which has another epoch."""
        self._records.clear()
        self._expiry.clear()
        self._beats.clear()
        self._epoch = epoch or self._epoch

    def _charge(
        self, call: Call, wants: tuple[Want, ...], grants: list[int], spoken_for: list[int], time_ms: int
    ) -> bool:
        costs: dict[int, int] = {}
        for want in wants:
            costs[want.report] = costs.get(want.report, 0) + want.cost
        missing: dict[int, int] = {}
        for index, cost in costs.items():
            report = call.reports[index]
            record = self._record(report)
            missing[index] = record.missing(report, spoken_for[index], cost)
            if grants[index] == NO_GRANT or not record.fits(report, time_ms, missing[index]):
                return False
        for index, cost in costs.items():
            report = call.reports[index]
            self._record(report).charge(report, missing[index], time_ms)
            spoken_for[index] += cost
        return True

    def _record(self, report: Report) -> Record:
        if isinstance(report, WindowReport):
            return self._window(report.key, report.window_ms)
        return self._bucket(report)

    def _window(self, key: bytes, window_ms: int) -> WindowRecord:
        record = self._records.get(key)
        if not isinstance(record, WindowRecord):
            record = self._records[key] = WindowRecord(window_ms)
        return record

    def _bucket(self, report: BucketReport) -> BucketRecord:
        record = self._records.get(report.key)
        if not isinstance(record, BucketRecord):
            record = self._records[report.key] = BucketRecord(max(1, report.rate))
        return record

    def _time(self) -> int:
        self._time_ms = max(self._time_ms, self._clock.now_ms())
        return self._time_ms

    def _sweep(self, time_ms: int) -> None:
        if time_ms < self._swept_ms + SWEEP_EVERY_MS:
            return
        self._swept_ms = time_ms
        for key in [key for key, expires_ms in self._expiry.items() if expires_ms <= time_ms]:
            del self._expiry[key]
            self._records.pop(key, None)
