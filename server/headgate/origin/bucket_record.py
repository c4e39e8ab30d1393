"""One limit key under GCRA, as the origin keeps it: one arrival time, and each run's total.

Times of arrival are a pair, whole milliseconds and a rest in 1/rate ms, so that they
stay exact in Lua's doubles too.
"""

from typing import Final

from headgate.origin.allowances import GENERATION_MS, Allowances, Holding, reserve
from headgate.origin.protocol import OVERTAKEN, UNBOUND, BucketAnswer, BucketReport, Demand, Refund

Arrival = tuple[int, int]
OVER: Final = -1
"""Room of a bucket that lets nothing in: not even a cost of 0."""


class BucketComponent(Holding):
    """Cost that one run of a node has ever charged to the bucket. Only grows."""

    __slots__ = ("demanded", "own")

    def __init__(self) -> None:
        super().__init__()
        self.own = 0
        self.demanded = 0
        """Part of the run's demands that was dealt with."""


class BucketRecord:
    """One limit key: its arrival time, who holds an allowance, and everybody's component."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.arrival: Arrival = (0, 0)
        self.allowances = Allowances()
        self.components: dict[bytes, BucketComponent] = {}
        self.reset = 0
        """Number of the key's reset to which all of it belongs. Never falls while the record lives."""
        self.refunded = 0
        """Requests by which the arrival time was ever put back. Never falls while the record lives."""

    def expires_ms(self, now_ms: int) -> int:
        """Time at which the bucket is full again, no allowance counts, and no retry can come any more."""
        return max(self.arrival[0] + 1, now_ms) + 2 * GENERATION_MS

    def report(self, report: BucketReport, now_ms: int) -> int:
        """Merge a report, with what is left of its run's allowance; OVERTAKEN if a later one was there first."""
        self._restate(report.rate)
        most = report.burst + report.precision + report.debt
        latest_ms = self._after((now_ms, 0), report, most)[0] + report.window_ms
        self._come_to(now_ms, latest_ms)
        if not self._belongs(report.reset):
            return OVERTAKEN
        component = self._component(report.component)
        unmerged = report.total - max(component.own, report.acknowledged)
        if report.answered_ms <= latest_ms:
            self.arrival = max(self.arrival, self._told(report))
        if unmerged > 0:
            start = max(self.arrival, (report.since_ms, 0))
            # Up to `P` may have been admitted on top of a full burst: cut that off, and it is
            # forgiven at every flush, for a rate that stays above the limit.
            full = self._after((now_ms, 0), report, most)
            self.arrival = max(self.arrival, min(self._after(start, report, unmerged), full))
        component.own = max(component.own, report.total)
        for demand in report.demands or ():
            self._refund(component, demand, report, most, now_ms)
        if report.number <= component.number:
            return OVERTAKEN
        component.number = report.number
        self.allowances.keep(component, 0 if report.leaving else report.rest, now_ms)
        return 0

    def missing(self, report: BucketReport, charged: int, cost: int) -> int:
        """All of a cost: what was charged before and not spent drains, and pays for nothing."""
        return cost

    def fits(self, report: BucketReport, now_ms: int, missing: int) -> bool:
        """Say if so much more fits beside all allowances; note it where those alone are in the way."""
        room = self.room(report, now_ms)
        if missing <= self.allowances.free(room, report.precision):
            return True
        if missing <= room:
            self.allowances.press()
        return False

    def room(self, report: BucketReport, now_ms: int) -> int:
        """Whole requests that the bucket has room for; below 0 where more is in it than its burst."""
        if not report.rate:
            return OVER
        ms, rest = max(self.arrival, (now_ms, 0))
        return report.burst - -(-((ms - now_ms) * self.rate + rest) // report.window_ms)

    def offer(self, report: BucketReport, now_ms: int) -> tuple[int, int]:
        """Set more aside for the run: how much more, and how much is left then."""
        refill_ms = max(1, report.burst * report.window_ms // self.rate)
        room, kept = self.room(report, now_ms), reserve(report.burst, refill_ms)
        want = 0 if report.leaving else report.want
        component = self._component(report.component)
        return self.allowances.offer(component, want, room, report.burst, kept, report.precision, within=report.within)

    def charge(self, report: BucketReport, missing: int, now_ms: int) -> None:
        """Move the arrival time on, and raise the run's component."""
        component = self._component(report.component)
        if missing:
            self.arrival = self._after(max(self.arrival, (now_ms, 0)), report, missing)
        component.own += missing

    def answer(self, report: BucketReport, more: int, left: int) -> BucketAnswer:
        """Answer to the reporting run."""
        component = self._component(report.component)
        refund = None if report.demands is None else Refund(component.demanded, 0, self.refunded)
        return BucketAnswer(component.own, *self.arrival, more, left, self.reset, refund)

    def _told(self, report: BucketReport) -> Arrival:
        """The arrival time that the run was told: it is no earlier now, but for what was given back since."""
        told = (report.answered_ms, report.answered_rest)
        if report.demands is None:
            # Of before or after a refund, nobody can say.
            return (0, 0) if self.refunded else told
        since = self.refunded - report.demands[0].refunded
        self.refunded = max(self.refunded, report.demands[0].refunded)
        return self._before(told, report, since) if since > 0 else told

    def _refund(self, component: BucketComponent, demand: Demand, report: BucketReport, most: int, now_ms: int) -> None:
        """Refund what is new in a demand, as far as the bucket has it in use: the rest has drained back already."""
        dealt_with = max(component.demanded, demand.settled)
        component.demanded = max(dealt_with, demand.demanded)
        # No bucket holds more than its burst, `P`, a debt, and what a clock may be off by.
        asked = min(max(0, demand.demanded - dealt_with), most + self.rate + 1)
        if asked and self.arrival > (now_ms, 0):
            self.arrival = max((now_ms, 0), self._before(self.arrival, report, asked))
            self.refunded += asked

    def _belongs(self, reset: int) -> bool:
        """Say if what is of this reset counts here. A later one than is known empties the record."""
        if reset > self.reset:
            self.reset = reset
            self.arrival = (0, 0)
            self.refunded = 0
            self.allowances = Allowances()
            self.components.clear()
        return reset in (UNBOUND, self.reset)

    def _component(self, name: bytes) -> BucketComponent:
        return self.components.setdefault(name, BucketComponent())

    def _come_to(self, now_ms: int, latest_ms: int) -> None:
        """The shard's clock may be set: what a wrong one wrote lies ahead, and would never age."""
        if self.arrival[0] > latest_ms:
            self.arrival = (0, 0)
        elif not self.allowances.ahead(now_ms):
            return
        self.allowances = Allowances()
        self.components.clear()

    def _after(self, arrival: Arrival, report: BucketReport, cost: int) -> Arrival:
        """The arrival time `cost` requests later."""
        whole, rest = divmod(arrival[1] + cost * report.window_ms, self.rate)
        return arrival[0] + whole, rest

    def _before(self, arrival: Arrival, report: BucketReport, cost: int) -> Arrival:
        """The arrival time `cost` requests earlier; 0 if there was no such time."""
        # One that was told at another rate may have a rest that is too large for this one.
        whole, rest = divmod(min(arrival[1], self.rate - 1) - cost * report.window_ms, self.rate)
        return (arrival[0] + whole, rest) if arrival[0] + whole >= 0 else (0, 0)

    def _restate(self, rate: int) -> None:
        if rate and rate != self.rate:
            ms, rest = self.arrival
            whole, rest = divmod(-(-rest * rate // self.rate), rate)
            self.arrival = (ms + whole, rest)
            self.rate = rate
