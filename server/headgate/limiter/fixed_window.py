"""Fixed window: what was admitted since the window began; the previous window counts for nothing."""

from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import WindowCounter, WindowCounts
from headgate.limiter.limit import Limit


class FixedWindowCounter(WindowCounter):
    """A counter that expires with its window: the previous window counts for nothing."""

    __slots__ = ()

    @property
    def expires_ms(self) -> int:
        """At the end of the current window: the previous one has no weight."""
        return (self.sequence + 1) * self.window_ms


class FixedWindow:
    """Admits while the cost admitted in the current window stays within the limit."""

    def new_counter(self, key: bytes, limit: Limit, now_ms: int) -> FixedWindowCounter:
        return FixedWindowCounter(key, limit, now_ms // limit.window_ms)

    def take(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Charge the cost if the current window's stays within the limit, else OVER."""
        sequence = now_ms // counter.window_ms
        if sequence != counter.sequence:
            counter.roll(sequence)
        remaining = limit.requests_per_unit - counter.current - cost
        if remaining < 0 or not limit.requests_per_unit:  # a limit of 0 denies a cost of 0 too
            return OVER
        counter.current += cost
        return remaining

    def release(self, counter: WindowCounts, limit: Limit, cost: int) -> None:
        """Take the cost out of the current window again."""
        counter.current -= cost

    def overdraw(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> None:
        """Add the cost to the current window, whatever the limit is; follows a `take` of the same instant."""
        counter.current += cost

    def give_back(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> None:
        """Out of this window, then out of the one before; never below nothing."""
        of_this = min(cost, counter.current)
        counter.current -= of_this
        counter.previous -= min(cost - of_this, counter.previous)

    def remaining(self, counter: WindowCounts, limit: Limit, now_ms: int) -> int:
        """The limit less what the current window has admitted."""
        return max(0, limit.requests_per_unit - counter.current)

    def standing(self, counter: WindowCounts, limit: Limit, now_ms: int) -> tuple[int, int]:
        """What is left, and until when."""
        return self.remaining(counter, limit, now_ms), self.reset_ms(counter, limit, now_ms)

    def retry_ms(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Until the window ends, whatever the cost."""
        return self.reset_ms(counter, limit, now_ms)

    def reset_ms(self, counter: WindowCounts, limit: Limit, now_ms: int) -> int:
        """Until the window ends."""
        return counter.window_ms - now_ms % counter.window_ms
