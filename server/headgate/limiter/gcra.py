"""GCRA: a rate with a burst, kept as one theoretical arrival time (`tat`).

A bucket of `burst` tokens that refills at `requests_per_unit` per window. To be exact
at every rate, `tat` is counted in ticks of 1/rate ms, in which one request is exactly
`window_ms` ticks, and Python's integers do the rest: there is nothing to round. When
the rule's rate changes, the tat is restated in the new ticks, rounded against the caller.
"""

from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import BucketCounter, BucketCounts
from headgate.limiter.limit import Limit


class Gcra:
    """Admits while the bucket has tokens for the cost; what each method promises is in `AlgorithmRules`."""

    def new_counter(self, key: bytes, limit: Limit, now_ms: int) -> BucketCounter:
        return BucketCounter(key, limit)

    def room(self, counter: BucketCounts, limit: Limit, now_ms: int) -> int:
        """Bring the arrival time to now, and to the rule's rate; return the whole tokens in the bucket."""
        rate, window_ms = limit.requests_per_unit, limit.window_ms
        if not rate:
            return OVER
        if rate != counter.rate:
            _restate(counter, rate)
        now = now_ms * rate
        counter.tat = max(counter.tat, now)
        return (limit.burst * window_ms - (counter.tat - now)) // window_ms

    def charge(self, counter: BucketCounts, limit: Limit, now_ms: int, cost: int) -> None:
        """Put the arrival time off by the cost."""
        counter.tat += cost * limit.window_ms

    def take(self, counter: BucketCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Put the arrival time off by the cost if the bucket has tokens for it, else OVER."""
        remaining = self.room(counter, limit, now_ms) - cost
        if remaining < 0:
            return OVER
        counter.tat += cost * limit.window_ms
        return remaining

    def release(self, counter: BucketCounts, limit: Limit, cost: int) -> None:
        """Put the arrival time back by the cost."""
        counter.tat -= cost * limit.window_ms

    def overdraw(self, counter: BucketCounts, limit: Limit, now_ms: int, cost: int) -> None:
        """Put the arrival time off by the cost, at most to a burst and a window's worth from now: the rest is forgiven.

        Without that bound one wrong cost would close a bucket for years.
        """
        if limit.requests_per_unit:
            most = now_ms * counter.rate + (limit.burst + limit.debt) * limit.window_ms
            counter.tat = max(counter.tat, min(counter.tat + cost * limit.window_ms, most))

    def refund(self, counter: BucketCounts, limit: Limit, now_ms: int, cost: int) -> None:
        """Put the arrival time back, to now at most: what has drained is back already."""
        counter.tat = max(min(counter.tat, now_ms * counter.rate), counter.tat - cost * limit.window_ms)

    def remaining(self, counter: BucketCounts, limit: Limit, now_ms: int) -> int:
        """Return the whole tokens in the bucket, at least 0."""
        if not limit.requests_per_unit:
            return 0
        used = max(0, counter.tat - now_ms * counter.rate)
        return max(0, limit.burst * limit.window_ms - used) // limit.window_ms

    def retry_ms(self, counter: BucketCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Return how long until the bucket has tokens for the cost; a window for a cost that never fits."""
        if cost > limit.burst or not limit.requests_per_unit:
            return limit.window_ms  # never; and the bucket may be full now, so its reset says nothing
        fits = counter.tat + (cost - limit.burst) * limit.window_ms
        return max(0, -(-fits // counter.rate) - now_ms)

    def reset_ms(self, counter: BucketCounts, limit: Limit, now_ms: int) -> int:
        """Return how long until the bucket is full."""
        if not limit.requests_per_unit:
            return limit.window_ms
        return max(0, -(-counter.tat // counter.rate) - now_ms)


def _restate(counter: BucketCounts, rate: int) -> None:
    counter.tat = -(-counter.tat * rate // counter.rate)
    counter.rate = rate
