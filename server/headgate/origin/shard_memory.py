"""Memory of one shard in this process: limit records and whatever else its operations keep, by the shard's clock.

It is the reference for what the scripts keep in Redis. An operation that keeps something beside the records declares
a `MemoryPart` of its own in its own module and asks for it with `part`: nothing has to be registered here.
"""

from typing import Any, Final, TypeVar

from headgate.clock import Clock
from headgate.origin.bucket_record import BucketRecord
from headgate.origin.limit_record import LimitRecord, UnreadableRecord
from headgate.origin.protocol import BucketReport, Report, WindowReport
from headgate.origin.window_record import WindowRecord

SWEEP_EVERY_MS: Final = 1_000
"""Time between two searches for what has expired: each visits all records, so not every call makes one."""


class MemoryPart:
    """Something that operations keep in a shard's memory beside its limit records; made empty, without arguments."""

    def forget(self, key: bytes) -> None:
        """Drop what belongs to a limit key whose record is gone."""

    def sweep(self, now_ms: int) -> None:
        """Drop what has expired."""

    def copy_of(self, key: bytes) -> Any:
        """Copy what goes with the record of a limit key when that moves to another shard; None: nothing."""
        return None

    def bring(self, key: bytes, copied: Any) -> None:
        """Take in what came with the record of a limit key."""


P = TypeVar("P", bound=MemoryPart)


class ShardMemory:
    """Everything that one shard knows."""

    def __init__(self, clock: Clock, *, region: bytes, epoch: bytes) -> None:
        self.region = region
        """The region that this shard belongs to: counts of others are foreign."""
        self.epoch = epoch
        self.records: dict[bytes, LimitRecord] = {}
        self.expiry: dict[bytes, int] = {}
        """Expiry of each limit key's record, in ms of this shard's time."""
        self.parts: dict[type[MemoryPart], MemoryPart] = {}
        self._clock = clock
        self._swept_ms = 0

    def now_ms(self) -> int:
        """Time of this shard."""
        return self._clock.now_ms()

    def part(self, kind: type[P]) -> P:
        """Get the part of that kind; an empty one if nothing was kept yet."""
        part = self.parts.get(kind)
        if not isinstance(part, kind):
            part = self.parts[kind] = kind()
        return part

    def sweep(self) -> int:
        """Drop what has expired, if the last sweep is long enough ago; the shard's time."""
        now_ms = self.now_ms()
        if not 0 <= now_ms - self._swept_ms < SWEEP_EVERY_MS:
            self._swept_ms = now_ms
            for part in self.parts.values():
                part.sweep(now_ms)
            for key in [key for key, expires_ms in self.expiry.items() if expires_ms <= now_ms]:
                self.drop(key)
        return now_ms

    def find(self, key: bytes, now_ms: int) -> LimitRecord | None:
        """Record of a key, unless it has expired by `now_ms`; makes none."""
        return self.records.get(key) if self.expiry.get(key, now_ms + 1) > now_ms else None

    def record(self, report: Report) -> LimitRecord:
        """Record for a report; a new one where there is none, or one of another algorithm."""
        return self.window(report.key, report.window_ms) if isinstance(report, WindowReport) else self._bucket(report)

    def window(self, key: bytes, window_ms: int) -> WindowRecord | UnreadableRecord:
        """Record of a key under a window, made if need be."""
        record = self.records.get(key)
        if not isinstance(record, WindowRecord | UnreadableRecord):
            record = self.records[key] = WindowRecord(window_ms)
        return record

    def _bucket(self, report: BucketReport) -> BucketRecord | UnreadableRecord:
        record = self.records.get(report.key)
        if not isinstance(record, BucketRecord | UnreadableRecord):
            record = self.records[report.key] = BucketRecord(max(1, report.rate))
        return record

    def keep(self, key: bytes, record: LimitRecord, now_ms: int) -> None:
        """Let a record live until it can't matter any more; drop at once what no version can ever read."""
        if not isinstance(record, UnreadableRecord):
            self.expiry[key] = record.expires_ms(now_ms)
        elif not record.newer:
            self.drop(key)

    def wipe(self, epoch: bytes | None = None) -> None:
        """Lose everything, as a flush does; a restart also has another epoch."""
        self.records.clear()
        self.expiry.clear()
        self.parts.clear()
        self.epoch = epoch or self.epoch

    def drop(self, key: bytes) -> None:
        """Forget a limit key's record, and what belongs to it."""
        self.expiry.pop(key, None)
        self.records.pop(key, None)
        for part in self.parts.values():
            part.forget(key)
