"""The rules that fixed and sliding windows share: counting in the current window and the one before."""

from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import WindowCounts
from headgate.limiter.limit import Limit


class WindowRules:
    """Base of the window algorithms; each says how much of its two windows counts."""

    def used(self, counter: WindowCounts, now_ms: int) -> int:
        """Return the count that is held against the limit at `now_ms`, in the counter's current window."""
        raise AssertionError("every window algorithm says what counts")

    def room(self, counter: WindowCounts, limit: Limit, now_ms: int) -> int:
        """Bring the counter to its window; return the limit less what counts."""
        sequence = now_ms // counter.window_ms
        if sequence != counter.sequence:
            counter.roll(sequence)
        if not limit.requests_per_unit:
            return OVER
        return limit.requests_per_unit - self.used(counter, now_ms)

    def take(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Charge the cost if it fits; return the room after it, else OVER."""
        remaining = self.room(counter, limit, now_ms) - cost
        if remaining < 0:
            return OVER
        counter.current += cost
        return remaining

    def release(self, counter: WindowCounts, limit: Limit, cost: int) -> None:
        """Take the cost out of the current window again."""
        counter.current -= cost

    def overdraw(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> None:
        """Add the cost to the current window, whatever the limit is."""
        counter.current += cost

    def refund(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> None:
        """Take the cost out of this window, then out of the one before; never below nothing."""
        of_this = min(cost, counter.current)
        counter.current -= of_this
        counter.previous -= min(cost - of_this, counter.previous)

    def remaining(self, counter: WindowCounts, limit: Limit, now_ms: int) -> int:
        """Return the limit less what counts, at least 0."""
        return max(0, self.room(counter, limit, now_ms))

    def reset_ms(self, counter: WindowCounts, limit: Limit, now_ms: int) -> int:
        """Return how long until the current window ends."""
        return counter.window_ms - now_ms % counter.window_ms
