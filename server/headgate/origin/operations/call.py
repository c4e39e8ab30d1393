"""Call: a node reports what it admitted, and has charged what fits. The answers are what the region knows."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from headgate.origin.call_codec import pack_call, pack_names, unpack_numbers, unpack_reply
from headgate.origin.exchange_protocol import Priority
from headgate.origin.keyspace import KeySpace
from headgate.origin.limit_record import LimitRecord, NoRecord
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.operations.heartbeat import LIVE
from headgate.origin.outbox import Outbox, outbox_keys
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.protocol import (
    PEEK,
    Answer,
    ChargeRequest,
    Report,
    WindowReport,
    costs_by_report,
)
from headgate.origin.shard_memory import ShardMemory
from headgate.origin.window_record import WindowRecord

BEFORE_CALL: tuple[str, ...] = tuple(
    f"origin/{name}"
    for name in ("common", "seldom", "fence", "state", "allowances", "outbox", "refund", "window", "bucket")
)
"""Lua files that origin/call builds on. What a feature adds to a call stands between these and it."""


class Reply(NamedTuple):
    """Result of a call: one answer per report, and per request whether it was charged."""

    time_ms: int
    """The shard's time: the time of every limit key on it."""
    epoch: bytes
    """Another one means that the shard may have lost its memory."""
    answers: tuple[Answer, ...]
    charged: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Call(Operation[Reply]):
    """Merge all reports, then charge what fits, request by request, then set aside what runs want; answer each."""

    reports: tuple[Report, ...]
    requests: tuple[tuple[ChargeRequest, ...], ...]
    """Costs to be charged, by request: those of one request are charged all or none."""
    number: int = 0
    """Number of the list of shards by which the node places keys; 0: no list was agreed, and any record may begin."""
    leaving: tuple[int, ...] = ()
    """Positions of reports whose keys leave this shard: where it has no record of them, none begins."""

    lua: ClassVar[tuple[str, ...]] = (*BEFORE_CALL, "origin/call")

    def apply(self, memory: ShardMemory) -> Reply:
        return CallOnMemory(self, memory).carry_out()

    def pack(self, space: KeySpace) -> Packed:
        # A call without reports still says by its key where it belongs.
        keys = [space.limit(report.key) for report in self.reports] or space.named(LIVE)
        reports, demands, publishes = pack_call(self.reports, self.requests)
        if self.number:
            leaving = [position + 1 for position in self.leaving]
            reports += packed(self.number) + packed(space.named(SHARDS)[0]) + packed(leaving)
        names = b""
        if publishes:
            names = pack_names(self.reports)
            keys += outbox_keys(space)
        return Packed(keys, (reports, demands, names))

    def unpack(self, reply: Any, epoch: bytes) -> Reply:
        return self.reply_of(unpack_numbers(reply), epoch)

    def reply_of(self, numbers: tuple[int, ...], epoch: bytes) -> Reply:
        """Build the reply from the numbers that the script returned for this call."""
        answers, charged = unpack_reply(numbers, self.reports, len(self.requests))
        return Reply(numbers[0], epoch, answers, charged)


class CallOnMemory:
    """A call under way on a shard in memory."""

    def __init__(self, call: Call, memory: ShardMemory) -> None:
        self._call = call
        self._memory = memory
        self._now_ms = memory.sweep()
        self._records = [self._record(report, position) for position, report in enumerate(call.reports)]
        self._merged: list[int] = []
        """0 for each report that was merged, or why nothing can be charged on it."""
        self._spoken_for = [0] * len(call.reports)
        """Part of each report's credit that the requests charged so far have used."""

    def _record(self, report: Report, position: int) -> LimitRecord:
        """Return the key's record; a new one where there is none, if it may begin here."""
        call, memory = self._call, self._memory
        if call.number and report.key not in memory.records:
            may_begin = memory.part(KeptPlacement).goes_by(call.number)
            if not may_begin or position in call.leaving:
                return NoRecord()
        return memory.record(report)

    def carry_out(self) -> Reply:
        call, now_ms = self._call, self._now_ms
        published = [self._published(record) for record in self._records]
        self._merged = [
            record.report(report, now_ms) for record, report in zip(self._records, call.reports, strict=True)
        ]
        charged = tuple([self._charge(wants) for wants in call.requests])
        answers: list[Answer] = []
        for record, report, merged in zip(self._records, call.reports, self._merged, strict=True):
            more, left = record.offer(report, now_ms) if merged == 0 else (merged, 0)
            answers.append(record.answer(report, more, left))
            self._memory.keep(report.key, record, now_ms)
        for record, report, before in zip(self._records, call.reports, published, strict=True):
            self._publish(record, report, before)
        return Reply(now_ms, self._memory.epoch, tuple(answers), charged)

    def _charge(self, wants: tuple[ChargeRequest, ...]) -> bool:
        """Charge all costs of a request if all fit, else none."""
        costs = costs_by_report(wants)
        missing: dict[int, int] = {}
        for index, cost in costs.items():
            report, record = self._call.reports[index], self._records[index]
            missing[index] = record.missing(report, self._spoken_for[index], 1 if cost == PEEK else cost)
            if self._merged[index] < 0 or not record.fits(report, self._now_ms, missing[index]):
                return False
        for index, cost in costs.items():
            if cost == PEEK:
                continue
            self._records[index].charge(self._call.reports[index], missing[index], self._now_ms)
            self._spoken_for[index] += cost
        return True

    def _published(self, record: LimitRecord) -> tuple[int, ...] | None:
        """State of a record that other regions are told, before this call."""
        if not isinstance(record, WindowRecord):
            return None
        record.come_to(self._now_ms)
        return record.state()

    def _publish(self, record: LimitRecord, report: Report, before: tuple[int, ...] | None) -> None:
        """Have exchangers told of a published key whose totals have changed."""
        if not isinstance(record, WindowRecord) or not isinstance(report, WindowReport) or not report.publish_at:
            return
        if record.state() != before and record.is_published(report.publish_at):
            self._memory.part(Outbox).note(report.name, Priority.URGENT if report.urgent else Priority.NORMAL)
