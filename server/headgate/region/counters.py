"""Cells of a key that a whole region counts: what this node did, and what it was told.

The counts that the algorithms read (`current`, `previous`, `tat`) are all that is known
of the region, this node's own unacknowledged cost included. Beside them stands this
node's own part. Nothing here is ever taken back but reservations: what a node was told
is merged by max, and a late or lost answer changes nothing that a later one would not.

A key is created cold: it is not fresh, it holds no grant, and its component is new.
"""

from typing import Any, Protocol

from headgate.limiter.counters import BucketCounter, WindowCounter
from headgate.limiter.limit import Algorithm, Limit
from headgate.origin.protocol import (
    NO_GRANT,
    Answer,
    BucketReport,
    CellReport,
    Count,
    Report,
    WindowAnswer,
    WindowReport,
)


class CellView:
    """This node's side of one cell of a window."""

    __slots__ = ("foreign", "n", "others", "reserved", "seen", "sent", "sequence", "sure", "total")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.total = 0
        self.reserved = 0
        self.n = 0
        self.others = 0
        self.sure = 0
        """What others had at least, whatever was lost in between."""
        self.foreign = 0
        self.seen = 0
        self.sent = 0

    @property
    def known(self) -> int:
        """The region's count as this node knows it; what it has been charged in vain counts too."""
        return self.others + self.foreign + max(self.n, self.total + self.reserved)

    @property
    def unacked(self) -> int:
        return max(0, self.total + self.reserved - self.n)

    def learn(self, count: Count) -> bool:
        """Merge what the origin told. False: it knows less than it once did."""
        self.n = max(self.n, count.n)
        # After a loss the shard may know less of this node than it was told: the rest is in t, once.
        self.others = max(self.others, count.t - self.n)
        self.foreign = max(self.foreign, count.f)
        self.sent = max(self.sent, count.n)
        remembers = count.t >= self.seen
        # A shard that lost its memory may take what it never told this node of for lost. What others had
        # for certain, and what this node was charged, is there: no more than `sent` of any total was its own.
        self.sure = max(self.sure, count.t - self.sent)
        self.seen = max(self.seen, count.t, self.sure + self.n)
        return remembers

    def report(self) -> CellReport:
        return CellReport(self.sequence, self.total, self.reserved, self.seen, self.sent)


class Hold:
    """A reservation: cost that a waiting request will commit or release, where it was made."""

    __slots__ = ("cell", "cost", "part")

    def __init__(self, cell: Any, part: CellView | None, cost: int) -> None:
        self.cell = cell
        self.part = part
        self.cost = cost

    @property
    def closed(self) -> bool:
        """Whether the window in which it was made is over."""
        return isinstance(self.part, CellView) and self.part.sequence < self.cell.part.sequence


class ShardTime(Protocol):
    known: bool
    """Whether a shard has answered, and its time is known."""


class Link:
    """A cell's relation to its shard: whose component it is, and what the node may do on its own."""

    __slots__ = (
        "ahead",
        "answered",
        "component",
        "credit_offered",
        "flush_at_s",
        "grant",
        "in_call",
        "limit",
        "own_time",
        "refill",
        "shard",
        "usable_until_s",
        "wanted",
    )

    def __init__(self, component: bytes, shard: int, limit: Limit, own_time: ShardTime | None = None) -> None:
        self.own_time = own_time
        """Set until the first answer if the cell was made by this node's own clock."""
        self.component = component
        self.shard = shard
        self.limit = limit
        self.grant = 0
        self.usable_until_s = 0.0
        """Until when the view is fresh and the grant may be used: 5 s from sending the last answered call."""
        self.flush_at_s = 0.0
        """When the next flush is due; 0 when nothing waits for one."""
        self.refill = False
        """The shard has lost something: report every live cell, acknowledged or not."""
        self.credit_offered = 0
        """Credit that the call under way lets the shard spend on its wants: nobody else may, meanwhile."""
        self.in_call = 0
        """Calls and requests that hold on to the cell: it is not evicted meanwhile."""
        self.answered = False
        self.wanted = 0
        """Before the first answer, the most that a call asked for: it is charged in the window of the shard's time."""
        self.ahead = False
        """No answer from this window yet: the shard may still charge in the one before, and must be told of it."""

    def held(self, now_s: float) -> int:
        """The grant that may be in use: none of it once its time is up, and no more than the rule allows now."""
        return min(self.grant, self.limit.precision) if now_s < self.usable_until_s else 0

    def renew(self, grant: int, usable_until_s: float) -> None:
        self.answered = True
        if grant != NO_GRANT:
            self.grant = grant
            self.usable_until_s = usable_until_s


class SharedWindow(WindowCounter):
    __slots__ = ("last", "link", "part")

    def __init__(self, key: bytes, link: Link, now_ms: int) -> None:
        window_ms = link.limit.window_ms
        super().__init__(key, window_ms, now_ms // window_ms)
        self.link = link
        self.part = CellView(self.sequence)
        self.last = CellView(self.sequence - 1)

    def roll(self, sequence: int) -> None:
        """A cell that follows a warm one starts at known zero and inherits its freshness."""
        if sequence > self.sequence + 1 and self.link.own_time is not None and self.link.own_time.known:
            # Not much time has passed: this node's clock was slow.
            self._restate(sequence)
            return
        self.last = self.part if sequence == self.sequence + 1 else CellView(sequence - 1)
        self.part = CellView(sequence)
        self.link.ahead = True
        self.sequence = sequence
        self.refresh()

    def refresh(self) -> None:
        self.current = self.part.known
        self.previous = self.last.known

    def advance(self, now_ms: int) -> int:
        """Come to `now_ms`, or stay where an answer has already brought the cell; the time it is there."""
        sequence = now_ms // self.window_ms
        if sequence > self.sequence:
            self.roll(sequence)
        return max(now_ms, self.sequence * self.window_ms)

    @property
    def credit(self) -> int:
        """What was charged for this node and not spent yet."""
        part = self.part
        return max(0, part.n - part.total - part.reserved)

    def missing(self, cost: int) -> int:
        """What of a cost no credit covers."""
        return cost - min(cost, self.credit)

    @property
    def unacked(self) -> int:
        return self.part.unacked + self.last.unacked

    @property
    def own_total(self) -> int:
        """What this node itself admitted in the current window."""
        return self.part.total + self.part.reserved

    def spend(self, cost: int, now_ms: int) -> None:
        """Commit at once. The count has the missing part already, from the algorithm's take."""
        self.part.total += cost

    def unspend(self, cost: int) -> None:
        self.part.total -= cost
        self.refresh()

    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        """Reserve: in the cell that the origin charged, else in the current one."""
        part = self.part
        if isinstance(charged, WindowAnswer) and charged.sequence == self.last.sequence:
            part = self.last
        part.reserved += cost
        self.refresh()
        return Hold(self, part, cost)

    def settle(self, hold: Hold, *, commit: bool) -> None:
        part = hold.part or self.part
        part.reserved -= hold.cost
        if commit:
            part.total += hold.cost
        self.refresh()

    @property
    def reserved(self) -> int:
        return self.part.reserved + self.last.reserved

    def report(self, number: int, wanted: int, *, leaving: bool, now_s: float) -> Report:
        """What to tell the shard; `wanted` is what this call asks for on top."""
        cells = [self.part.report()]
        if self.link.refill or self.link.ahead or self.last.unacked:
            cells.append(self.last.report())
        for part in (self.part, self.last):
            part.sent = max(part.sent, part.total + part.reserved)
        self.part.sent = max(self.part.sent, self.part.total + self.part.reserved + wanted)
        if not self.link.answered:
            self.link.wanted = max(self.link.wanted, wanted)
        self.link.credit_offered = self.credit if wanted else 0
        limit = self.link.limit
        return WindowReport(
            self.key,
            self.link.component,
            number,
            self.link.held(now_s),
            limit.requests_per_unit,
            self.window_ms,
            limit.precision,
            limit.algorithm is Algorithm.SLIDING_WINDOW,
            leaving,
            tuple(cells),
        )

    def learn(self, answer: Any) -> bool:
        """Merge a WindowAnswer. False: the shard knows less than it once did."""
        if not self.link.answered and not 0 <= answer.sequence - self.sequence <= 1:
            self._restate(answer.sequence)
        self.link.own_time = None
        if answer.sequence > self.sequence:
            self.roll(answer.sequence)
        self.link.ahead = answer.sequence < self.sequence
        remembers = True
        for sequence, count in ((answer.sequence, answer.current), (answer.sequence - 1, answer.previous)):
            for part in (self.part, self.last):
                if part.sequence == sequence:
                    remembers &= part.learn(count)
        self.refresh()
        if self.credit or not self.link.answered:
            # There is credit, and what did not fit may be paid for now; or a first answer, and
            # what was denied until then was denied by this node's own clock.
            self.deny_until_ms = 0
        return remembers

    def lacks(self, answer: Any) -> bool:
        """After `learn`: whether the shard has less than was certainly there, and must be told so."""
        counts = {answer.sequence: answer.current, answer.sequence - 1: answer.previous}
        return any(part.sequence in counts and counts[part.sequence].t < part.seen for part in (self.part, self.last))

    def _restate(self, sequence: int) -> None:
        """Created by this node's own clock, which was off: what was admitted belongs where the shard is.

        Off by one window, what this node took for the previous one is already counted in the current one.
        Of what was sent for other windows the shard took nothing, so it can't have been lost there.
        """
        part, last = self.part, self.last
        part.sent = self.link.wanted
        if sequence == self.sequence - 1:
            part.total += last.total
            part.sent += last.sent
            last = self.last = CellView(sequence - 1)
        self.sequence = part.sequence = sequence
        last.sequence = sequence - 1
        self.link.own_time = None
        self.refresh()


class SharedBucket(BucketCounter):
    __slots__ = ("arrival", "link", "n", "reserved", "since_ms", "since_report_ms", "total")

    def __init__(self, key: bytes, link: Link) -> None:
        super().__init__(key, max(1, link.limit.requests_per_unit))
        self.link = link
        self.total = 0
        self.reserved = 0
        self.n = 0
        self.arrival = (0, 0)
        """The arrival time in the last answer."""
        self.since_ms = 0
        """When the first cost that is not acknowledged was admitted; 0 when there is none."""
        self.since_report_ms = 0
        """The same for cost that the call under way does not carry."""

    def advance(self, now_ms: int) -> int:
        """A bucket has no windows."""
        return now_ms

    @property
    def credit(self) -> int:
        return max(0, self.n - self.total - self.reserved)

    def missing(self, cost: int) -> int:
        return cost - min(cost, self.credit)

    @property
    def unacked(self) -> int:
        return max(0, self.total + self.reserved - self.n)

    @property
    def own_total(self) -> int:
        """What this node itself has in the bucket: there is no window to count it by."""
        return self.unacked

    def spend(self, cost: int, now_ms: int) -> None:
        self._began(now_ms)
        self.total += cost

    def unspend(self, cost: int) -> None:
        unacked = self.unacked
        self.total -= cost
        self._give_back(unacked)

    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        unacked = self.unacked
        if charged is None:
            self._began(now_ms)
        self.reserved += cost
        if self.unacked > unacked:
            tat = max(self.tat, now_ms * self.rate)
            self.tat = tat + (self.unacked - unacked) * self.link.limit.window_ms
        return Hold(self, None, cost)

    def settle(self, hold: Hold, *, commit: bool) -> None:
        unacked = self.unacked
        self.reserved -= hold.cost
        if commit:
            self.total += hold.cost
        self._give_back(unacked)

    def report(self, number: int, wanted: int, *, leaving: bool, now_s: float) -> Report:
        limit = self.link.limit
        self.since_report_ms = 0
        self.link.credit_offered = self.credit if wanted else 0
        return BucketReport(
            self.key,
            self.link.component,
            number,
            self.link.held(now_s),
            limit.requests_per_unit,
            limit.window_ms,
            limit.burst,
            limit.precision,
            leaving,
            self.total,
            self.reserved,
            self.n,
            *self.arrival,
            self.since_ms,
        )

    def learn(self, answer: Any) -> bool:
        """Merge a BucketAnswer."""
        self.n = max(self.n, answer.n)
        self.arrival = max(self.arrival, (answer.tat_ms, answer.tat_rest))
        self.since_ms = self.since_report_ms
        self.rate = max(1, self.link.limit.requests_per_unit)
        tat = answer.tat_ms * self.rate + answer.tat_rest
        if self.unacked:
            tat = max(tat, self.since_ms * self.rate) + self.unacked * self.link.limit.window_ms
        self.tat = tat
        if self.credit or not self.link.answered:
            self.deny_until_ms = 0  # as for windows
        # Every report carries the total and the last arrival time: no answer can be below them.
        return True

    def lacks(self, answer: Any) -> bool:
        return False

    def _began(self, now_ms: int) -> None:
        if not self.unacked:
            self.since_ms = now_ms
        self.since_report_ms = self.since_report_ms or now_ms

    def _give_back(self, unacked_before: int) -> None:
        self.tat -= (unacked_before - self.unacked) * self.link.limit.window_ms


SharedCounter = SharedWindow | SharedBucket


def new_shared_counter(key: bytes, link: Link, now_ms: int) -> SharedCounter:
    if link.limit.algorithm is Algorithm.GCRA:
        return SharedBucket(key, link)
    return SharedWindow(key, link, now_ms)
