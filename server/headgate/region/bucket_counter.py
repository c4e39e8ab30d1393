"""A region's counter of a key under gcra: one arrival time, as the region and this node together make it.

`tat`, which the algorithm reads, is the arrival time of the last answer, moved on by what this node
has admitted since. (docs/convergence.md, section 7.)
"""

from typing import Any

from headgate.limiter.counters import bucket_load
from headgate.limiter.limit import Limit
from headgate.origin.protocol import Answer, BucketReport, Report
from headgate.region.counters import Hold, SharedCounter
from headgate.region.shard import Shard


class SharedBucket(SharedCounter):
    """A bucket of one limit key, as this node knows it. Implements the limiter's `BucketCounts`."""

    __slots__ = ("_reserved", "_since_report_ms", "answered_arrival", "own", "rate", "since_ms", "tat", "total")

    def __init__(self, key: bytes, component: bytes, shard: Shard, limit: Limit) -> None:
        super().__init__(key, component, shard, limit)
        self.rate = max(1, limit.requests_per_unit)
        self.tat = 0
        self.total = 0
        """The cost that this node has ever admitted here. The engine raises it with every admission."""
        self._reserved = 0
        self.own = 0
        """This node's component as the shard has it. Answers raise it; it never falls."""
        self.answered_arrival = (0, 0)
        """The arrival time in the last answer: whole ms, and a rest in 1/rate ms. It never falls."""
        self.since_ms = 0
        """When the first cost that is not acknowledged was admitted; 0 when there is none."""
        self._since_report_ms = 0
        """The same for cost that the call under way does not carry."""

    @property
    def expires_ms(self) -> int:
        return -(-self.tat // self.rate)

    def load(self, now_ms: int) -> int:
        return bucket_load(self, self.limit, now_ms)

    def advance(self, now_ms: int) -> int:
        """A bucket has no windows. One that lies too far ahead was filled by a clock that was wrong."""
        limit = self.limit
        used = self.tat - now_ms * self.rate
        if used > (limit.burst + limit.precision + self.rate) * limit.window_ms:
            self.begin_anew()
        return now_ms

    def begin_anew(self) -> None:
        super().begin_anew()
        self.tat = self.total = self.own = self._reserved = 0
        self.answered_arrival = (0, 0)
        self.since_ms = self._since_report_ms = 0

    @property
    def credit(self) -> int:
        return max(0, self.own - self.total - self._reserved)

    @property
    def unacked(self) -> int:
        return max(0, self.total + self._reserved - self.own)

    @property
    def reserved(self) -> int:
        return self._reserved

    @property
    def own_admitted(self) -> int:
        """What is unacknowledged: there is no window to count by."""
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
        self._reserved += cost
        if self.unacked > unacked:
            tat = max(self.tat, now_ms * self.rate)
            self.tat = tat + (self.unacked - unacked) * self.limit.window_ms
        return Hold(self, self.component, None, cost)

    def settle(self, hold: Hold, *, commit: bool) -> None:
        if hold.component != self.component:  # the counter has begun anew
            if commit:
                self._take(hold.cost)
            return
        unacked = self.unacked
        self._reserved -= hold.cost
        if commit:
            self.total += hold.cost
        self._give_back(unacked)

    def report(self, number: int, wanted: int, *, leaving: bool, now_s: float) -> Report:
        limit = self.limit
        self._since_report_ms = 0
        self.credit_offered = self.credit if wanted else 0
        return BucketReport(
            self.key,
            self.component,
            number,
            self.held(now_s),
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
        )

    def learn(self, answer: Any) -> bool:
        self.own = max(self.own, answer.own)
        self.answered_arrival = max(self.answered_arrival, (answer.arrival_ms, answer.arrival_rest))
        self.since_ms = self._since_report_ms
        self.rate = max(1, self.limit.requests_per_unit)
        tat = answer.arrival_ms * self.rate + answer.arrival_rest
        if self.unacked:
            tat = max(tat, self.since_ms * self.rate) + self.unacked * self.limit.window_ms
        self.tat = tat
        if self.credit or not self.has_answer:
            self.deny_until_ms = 0  # as for windows
        # Every report carries the total and the last arrival time: no answer can be below them.
        return True

    def lacks(self, answer: Any) -> bool:
        return False

    def _began(self, now_ms: int) -> None:
        if not self.unacked:
            self.since_ms = now_ms
        self._since_report_ms = self._since_report_ms or now_ms

    def _take(self, cost: int) -> None:
        now_ms = self.shard.now_ms()
        self._began(now_ms)
        self.total += cost
        self.tat = max(self.tat, now_ms * self.rate) + cost * self.limit.window_ms

    def _give_back(self, unacked_before: int) -> None:
        self.tat -= (unacked_before - self.unacked) * self.limit.window_ms
