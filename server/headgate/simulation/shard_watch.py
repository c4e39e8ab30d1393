"""Checks of what shards answer: what they know of a component never falls, and they count nothing twice."""

from typing import Any

from headgate.limiter.limit import Limit
from headgate.origin.allowances import Allowances
from headgate.origin.bucket_record import BucketRecord
from headgate.origin.operations.call import Call, Reply
from headgate.origin.protocol import (
    PEEK,
    Answer,
    BucketAnswer,
    BucketReport,
    Count,
    Refund,
    Report,
    WindowAnswer,
    WindowReport,
)
from headgate.origin.window_record import WindowRecord
from headgate.simulation.cell_watch import CellWatch
from headgate.simulation.evidence import Evidence, Watcher


class ShardWatch(Watcher):
    """Sees every answer of every shard."""

    def __init__(self, evidence: Evidence, cells: CellWatch) -> None:
        super().__init__(evidence)
        self._cells = cells
        self._put: dict[bytes, int] = {}
        """Requests by which each bucket was ever put back, at most."""
        self._told: dict[tuple[int, bytes, int, bytes], tuple[int, int]] = {}

    def replied(self, index: int, call: Call, reply: Reply) -> None:
        """A shard answers a call: hold it to what it answered before, and to what was admitted."""
        if self._world.trace.listening:
            self._world.trace.say(f"shard {index}", _told(call, reply))
        counted: list[tuple[WindowReport, int, Count]] = []
        for report, answer in zip(call.reports, reply.answers, strict=True):
            self._evidence.answered_s[report.component, report.key] = self._world.loop.time()
            if isinstance(answer, BucketAnswer) and isinstance(report, BucketReport):
                if report.total > self._truth.buckets[report.key].components.get(report.component, 0):
                    # Of a cell that went while its request waited: when it was admitted nobody saw.
                    self._truth.buckets[report.key].disturb(reply.time_ms)
                limit = self._world.limit_at(report.key, report.rate)
                # As the shard goes about it: first what was admitted, then what is given back, then what is wanted.
                self._cells.bucket_raised(report.key, report.component, report.total, limit)
                self._put_back(report, answer, limit, reply.time_ms)
                self._cells.bucket_raised(report.key, report.component, answer.own, limit)
            elif not self._truth.is_of_now(report.key, answer.reset):
                continue  # a shard that lost its memory, and has not been taught the reset again yet
            elif isinstance(answer, WindowAnswer) and isinstance(report, WindowReport):
                counted.append((report, answer.sequence, answer.current))
                counted.append((report, answer.sequence - 1, answer.previous))
                self._given_back(report, answer)
        # All of them first: a key that went and came back may be in one call twice.
        for report, sequence, count in counted:
            self._truth.cells[report.key, sequence].raise_to(report.component, count.own)
        for wants, charged in zip(call.requests, reply.charged, strict=True):
            for position, cost in wants:
                if charged and cost == PEEK:
                    self._looked(call.reports[position], reply.answers[position], reply.time_ms)
        for report, sequence, count in counted:
            self._counted(index, report.key, sequence, report.component, count)
        for report, answer in zip(call.reports, reply.answers, strict=True):
            self._set_aside(index, report, answer, reply.time_ms)

    def _set_aside(self, index: int, report: Report, answer: Answer, now_ms: int) -> None:
        """Check that all that is set aside is what runs hold, and with the counts within limit and `P` whenever more of
        it is given; note what it leaves, because no more than that may be denied."""
        record: Any = self._world.shards[index].record(report.key)
        if not isinstance(record, WindowRecord | BucketRecord):
            return
        allowances: Allowances = record.allowances
        room: int = record.room(report, now_ms)  # type: ignore[arg-type] # each kind has its own kind of report
        held = {allowances.generation: 0, allowances.generation - 1: 0}
        for component in record.components.values():
            if component.generation in held:
                held[component.generation] += component.held
        if tuple(held.values()) != (allowances.sum, allowances.previous_sum):
            self._violate("sums", f"{report.key.decode()}: {held}, not {allowances.sum} and {allowances.previous_sum}")
        if answer.more > 0 and allowances.held > room + report.precision:
            what = f"{allowances.held} set aside of {room} and {report.precision}"
            self._violate("set_aside", f"{report.key.decode()}: {what}")
        if isinstance(report, WindowReport):
            limit = self._world.limit_at(report.key, report.limit)
            self._evidence.note_room(report.key, limit, self._left(allowances, answer, room, report.precision))

    def _left(self, allowances: Allowances, answer: Answer, room: int, precision: int) -> int:
        """Return what the run that was answered may take to be left."""
        free = allowances.free(room, precision)
        return min(free, answer.left) if answer.left >= 0 and answer.more >= 0 else free

    def _given_back(self, report: WindowReport, answer: WindowAnswer) -> None:
        """No cell below nothing; no component is given more than it ever demanded, in both cells together."""
        if answer.refunds is None:
            return
        pairs = zip(answer.refunds, (answer.current, answer.previous), strict=True)
        for place, (refund, count) in enumerate(pairs):
            sequence = answer.sequence - place
            self._truth.cells[report.key, sequence].note_refund(report.component, refund.own)
            if refund.region > count.region_total or refund.foreign > count.foreign or refund.own > refund.region:
                what = f"{refund} of {count}"
                self._violate("refunds", f"{report.key.decode()} in {sequence}: {what}")
        own = sum(refund.own for refund in answer.refunds)
        demanded = self._evidence.demanded[report.component, report.key]
        if own > demanded:
            what = f"{own} given back to {report.component.decode()}, which demanded {demanded}"
            self._violate("refunds", f"{report.key.decode()}: {what}")

    def _put_back(self, report: BucketReport, answer: BucketAnswer, limit: Limit, now_ms: int) -> None:
        """A bucket is put back by no more than was demanded of it, by everybody."""
        refunded = 0 if answer.refund is None else answer.refund.region
        more = refunded - self._put.get(report.key, 0)
        if more > 0:
            self._put[report.key] = refunded
            self._truth.buckets[report.key].refund(more, limit, now_ms)
        demanded = sum(cost for (_, key), cost in self._evidence.demanded.items() if key == report.key)
        if refunded > demanded and not self._world.shards[self._world.shard_of(report.key)].has_lost(report.key):
            self._violate("refunds", f"{report.key.decode()}: put back by {refunded}, {demanded} were demanded")

    def _counted(self, index: int, key: bytes, sequence: int, component: bytes, count: Count) -> None:
        """Components grow between losses; a total is never above the truth: nothing is counted twice."""
        actual = self._truth.cells[key, sequence]
        told = self._told.get((index, key, sequence, component), (0, 0))
        if count.own < told[0] or count.region_total < told[1]:
            self._violate(
                "components", f"{key.decode()}: own, region total from {told} to {(count.own, count.region_total)}"
            )
        self._told[index, key, sequence, component] = (count.own, count.region_total)
        if count.region_total > actual.total:
            what = f"{key.decode()} in {sequence}: {count.region_total} counted, {actual.total} admitted or charged"
            self._violate("counted_twice", what)

    def _looked(self, report: Report, answer: Answer, now_ms: int) -> None:
        """A look lets nobody in when everything is used: it is decided as a cost of 1."""
        if not isinstance(report, WindowReport) or not isinstance(answer, WindowAnswer):
            return
        current, previous = answer.refunds or (Refund(), Refund())
        used, window_ms = answer.current.region_total + answer.current.foreign, report.window_ms
        used -= current.region + current.foreign
        if report.sliding:
            left_ms = window_ms - max(now_ms, answer.sequence * window_ms) % window_ms
            before = answer.previous.region_total + answer.previous.foreign - previous.region - previous.foreign
            used += before * left_ms // window_ms
        own = sum(cell.total + cell.reserved for cell in report.cells if cell.sequence == answer.sequence)
        if used >= report.limit and answer.current.own <= own:
            self._violate("look", f"{report.key.decode()}: let in with {used} of {report.limit} used")

    def lost(self, key: bytes) -> None:
        """The shard lost the key's record: it may say less than it did."""
        self._told = {told: counts for told, counts in self._told.items() if told[1] != key}


def _told(call: Call, reply: Reply) -> str:
    """A call and its answer: per key what the node said it admitted, and what it was told."""
    if not call.reports:
        return "hears from somebody, of nothing"
    charged = f"; {sum(reply.charged)} of {len(reply.charged)} requests charged" if reply.charged else ""
    keys = [
        f"{report.key.decode()} ({_said(report)} → {_answered(answer)})"
        for report, answer in zip(call.reports, reply.answers, strict=True)
    ]
    return f"hears {call.reports[0].component.decode()}: {', '.join(keys)}{charged}"


def _said(report: Report) -> str:
    if isinstance(report, WindowReport):
        return "; ".join([f"{cell.total} in {cell.sequence}, seen {cell.highest_total_seen}" for cell in report.cells])
    return f"{report.total}"


def _answered(answer: Answer) -> str:
    if isinstance(answer, WindowAnswer):
        return f"{answer.current.own} of {answer.current.region_total} in {answer.sequence}, {answer.more} more"
    return f"{answer.own}, arrival {answer.arrival_ms}, {answer.more} more"
