"""Fixed window: what was admitted since the window began; the previous window counts for nothing."""

from headgate.limiter.counters import WindowCounter, WindowCounts
from headgate.limiter.limit import Limit
from headgate.limiter.windows import WindowRules


class FixedWindowCounter(WindowCounter):
    """A counter that expires with its window: the previous window counts for nothing."""

    __slots__ = ()

    @property
    def expires_ms(self) -> int:
        """The end of the current window: the previous one has no weight."""
        return (self.sequence + 1) * self.window_ms


class FixedWindow(WindowRules):
    """Admits while the cost admitted in the current window stays within the limit."""

    def new_counter(self, key: bytes, limit: Limit, now_ms: int) -> FixedWindowCounter:
        return FixedWindowCounter(key, limit, now_ms // limit.window_ms)

    def used(self, counter: WindowCounts, now_ms: int) -> int:
        """Return the current window's count alone."""
        return counter.current

    def retry_ms(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Return how long until the window ends, whatever the cost."""
        return self.reset_ms(counter, limit, now_ms)
