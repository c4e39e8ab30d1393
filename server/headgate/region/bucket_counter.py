"""A region's counter of a key under gcra: one arrival time, as the region and this node together make it.

`tat`, which the algorithm reads, is the arrival time of the last answer, moved on by what this node
has admitted since. (docs/convergence.md, section 7.)
"""

from collections.abc import Callable
from typing import Any, Final

from headgate.limiter.counters import bucket_load
from headgate.limiter.gcra import Gcra
from headgate.limiter.limit import Limit
from headgate.origin.protocol import Answer, BucketReport, Demand, Report
from headgate.region.cells import Hold
from headgate.region.counters import SharedCounter
from headgate.region.refunds import GIVEN_UP_MS
from headgate.region.shard import Shard

RULES: Final = Gcra()


class SharedBucket(SharedCounter):
    """A bucket of one limit key, as this node knows it. Implements the limiter's `BucketCounts`."""

    __slots__ = (
        "_reserved",
        "_since_report_ms",
        "answered_arrival",
        "own",
        "rate",
        "since_ms",
        "tat",
        "total",
        "vain",
    )

    sequence = 0

    def __init__(self, key: bytes, place: bytes, component: bytes, shard: Shard[SharedCounter], limit: Limit) -> None:
        super().__init__(key, place, component, shard, limit)
        self.rate = max(1, limit.requests_per_unit)
        self.tat = 0
        self.total = 0
        """The cost that this node has ever admitted here, and `vain`. The engine raises it with every admission."""
        self.vain = 0
        """Cost that was charged and spent on nobody: it drains, and pays for nothing."""
        self._reserved = 0
        self.own = 0
        """This node's component as the shard has it. Answers raise it; it never falls."""
        self.answered_arrival = (0, 0)
        """The arrival time in the last answer: whole ms, and a rest in 1/rate ms. It never falls."""
        self.since_ms = 0
        """Time at which the first cost that is not acknowledged was admitted; 0 when there is none."""
        self._since_report_ms = 0
        """Time of the first cost that is not acknowledged and that the call under way does not carry."""

    @property
    def expires_ms(self) -> int:
        full_ms = -(-self.tat // self.rate)
        if self.refunds is not None and self.refunds.waiting:
            return max(full_ms, self.refunds.since_ms + GIVEN_UP_MS)
        return full_ms

    def load(self, now_ms: int) -> int:
        return bucket_load(self, self.limit, now_ms)

    def advance(self, now_ms: int) -> int:
        """A bucket has no windows. One that lies too far ahead was filled by a clock that was wrong."""
        limit = self.limit
        used = self.tat - now_ms * self.rate
        if used > (limit.burst + limit.precision + limit.debt + self.rate) * limit.window_ms:
            self.begin_anew()
        if self.refunds is not None:
            self.refunds.give_up(now_ms)
        return now_ms

    def begin_anew(self) -> None:
        super().begin_anew()
        self.tat = self.total = self.own = self._reserved = self.vain = 0
        self.answered_arrival = (0, 0)
        self.since_ms = self._since_report_ms = 0

    @property
    def credit(self) -> int:
        return 0

    def conclude(
        self, report: Report, answer: Answer, limit: Limit, refused: int, sent_s: float, chance: Callable[[], float]
    ) -> None:
        self._void_credit(self.own)
        super().conclude(report, answer, limit, refused, sent_s, chance)

    def _void_credit(self, most: int) -> None:
        """Count as spent, on nobody, what was charged and not spent: it drains from the bucket from now on."""
        vain = min(self.own - self.total - self._reserved, most)
        if vain > 0:
            self.total += vain
            self.vain += vain

    @property
    def unacked(self) -> int:
        return max(0, self.total + self._reserved - self.own)

    @property
    def uncovered(self) -> int:
        return max(0, self.total + self._reserved - max(self.own, self.total))

    @property
    def most(self) -> int:
        return self.limit.burst

    @property
    def spare(self) -> int:
        return self.room(self.shard.now_ms())

    @property
    def reserved(self) -> int:
        return self._reserved

    @property
    def own_admitted(self) -> int:
        """The unacknowledged cost: there is no window to count by."""
        return self.unacked

    @property
    def own_unacked(self) -> int:
        return self.unacked

    def fits_instead(self, cost: int, now_ms: int) -> bool:
        window_ms = self.limit.window_ms
        used = max(0, self.tat - now_ms * self.rate)
        known = max(0, used - self.unacked * window_ms)
        return known + cost * window_ms <= self.limit.burst * window_ms

    def room(self, now_ms: int) -> int:
        return RULES.room(self, self.limit, now_ms)

    def has_room_by(self, time_ms: int) -> bool:
        return self.room(time_ms) > 0

    def reset_ms(self, now_ms: int) -> int:
        return RULES.reset_ms(self, self.limit, now_ms)

    def spend(self, cost: int, missing: int, now_ms: int) -> None:
        self.use(missing)
        RULES.charge(self, self.limit, now_ms, missing)
        self._began(now_ms)
        self.total += cost

    def overdraw(self, cost: int, missing: int, now_ms: int) -> None:
        self.use(missing)
        RULES.overdraw(self, self.limit, now_ms, missing)
        self._began(now_ms)
        self.total += cost

    def countable(self, cost: int, now_ms: int) -> int:
        """Return what takes the bucket up to its burst and a window's worth: more is forgiven (Gcra.overdraw)."""
        limit = self.limit
        used = max(0, self.tat - now_ms * self.rate)
        return min(cost, max(0, (limit.burst + limit.debt) - used // limit.window_ms))

    def unspend(self, cost: int) -> None:
        unacked = self.unacked
        self.total -= cost
        self.allowance += unacked - self.unacked
        self._put_back(unacked)

    def uncharge(self, cost: int, now_ms: int) -> None:
        """Undo no more than the bucket has in use, and what the shard has not heard of: the rest has drained back, or
        does so."""
        used, unacked = -(-max(0, self.tat - now_ms * self.rate) // self.limit.window_ms), self.unacked
        self.total -= min(cost, used, max(0, self.total - self.own))
        self._put_back(unacked)
        self.forget_denial()

    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        unacked = self.unacked
        if charged is None:
            self._began(now_ms)
        self._reserved += cost
        if self.unacked > unacked:
            tat = max(self.tat, now_ms * self.rate)
            self.tat = tat + (self.unacked - unacked) * self.limit.window_ms
        return Hold(self.component, None, cost, self.use(self.unacked - unacked), self.limit)

    def settle(self, hold: Hold, *, commit: bool) -> None:
        if hold.component != self.component:  # the counter has begun anew
            if commit:
                self._take(hold.cost)
            return
        unacked = self.unacked
        self._reserved -= hold.cost
        if commit:
            self.total += hold.cost
        else:
            uncharged = unacked - self.unacked
            if hold.limit is self.limit:
                self.allowance += min(hold.used, uncharged)
            # The rest of it was charged. What a call has charged for others may not be held yet.
            self._void_credit(hold.cost - uncharged)
        self._put_back(unacked)

    def report(self, number: int, wanted: int, want: int, leaving: bool, now_s: float) -> Report:
        limit = self.limit
        self._since_report_ms = 0
        return BucketReport(
            self.key,
            self.component,
            number,
            self.allowance + self.uncovered,
            want,
            limit.requests_per_unit,
            limit.window_ms,
            limit.burst,
            limit.precision,
            leaving,
            self.total,
            self._reserved,
            self.own,
            *self.answered_arrival,
            self.since_ms,
            limit.debt,
            self.reset,
            self._demand(leaving, now_s),
            self.shard.within,
        )

    def _demand(self, leaving: bool, now_s: float) -> tuple[Demand] | None:
        """Return one demand for all time; it also says to which refunds the reported arrival time belongs."""
        if self.demands(0, leaving, now_s) is None or self.refunds is None:
            return None
        back = self.refunds.current
        return (back.demand(0, back.region, remembers=leaving or self.shard.remembers(now_s)),)

    def learn(self, answer: Any) -> bool:
        self.own = max(self.own, answer.own)
        self.answered_arrival = self._arrival(answer)
        self.since_ms = self._since_report_ms
        self.rate = max(1, self.limit.requests_per_unit)
        tat = answer.arrival_ms * self.rate + answer.arrival_rest
        if self.unacked:
            tat = max(tat, self.since_ms * self.rate) + self.unacked * self.limit.window_ms
            if self.limit.debt:
                tat = self._at_most_full(tat)
        self.tat = tat
        if not self.has_answer:
            self.forget_denial()  # as for windows
        # Every report carries the total and the last arrival time: no answer can be below them.
        return True

    def _arrival(self, answer: Any) -> tuple[int, int]:
        """Return the last arrival time told; only what was given back puts it back."""
        told = (answer.arrival_ms, answer.arrival_rest)
        if self.refunds is not None and answer.refund is not None:
            known = self.refunds.current.region
            self.refunds.current.learn(answer.refund)
            if answer.refund.region != known:
                return told
        return max(self.answered_arrival, told)

    def lacks(self, answer: Any) -> bool:
        return False

    def _began(self, now_ms: int) -> None:
        if not self.unacked:
            self.since_ms = now_ms
        self._since_report_ms = self._since_report_ms or now_ms

    def _at_most_full(self, tat: int) -> int:
        """Cut the arrival time as the shard will: late costs of other nodes may have filled the bucket meanwhile."""
        limit = self.limit
        most = limit.burst + limit.precision + limit.debt
        return min(tat, self.shard.now_ms() * self.rate + most * limit.window_ms)

    def _take(self, cost: int) -> None:
        now_ms = self.shard.now_ms()
        self._began(now_ms)
        self.total += cost
        self.tat = max(self.tat, now_ms * self.rate) + cost * self.limit.window_ms

    def _put_back(self, unacked_before: int) -> None:
        """Put the arrival time back by what is no longer unacknowledged."""
        self.tat -= (unacked_before - self.unacked) * self.limit.window_ms
