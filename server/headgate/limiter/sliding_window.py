"""Sliding window: the current window, plus the previous one by the share of it still in sight.

effective = current + previous × (window − elapsed) // window + cost
deny iff effective > limit;   remaining = limit − effective
"""

from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import WindowCounter, WindowCounts
from headgate.limiter.limit import Limit


class SlidingWindow:
    """Admits while the current window, with its share of the previous one, stays within the limit."""

    def new_counter(self, key: bytes, limit: Limit, now_ms: int) -> WindowCounter:
        return WindowCounter(key, limit, now_ms // limit.window_ms)

    def take(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Charge the cost if it fits beside this window and what still counts of the one before, else OVER."""
        window_ms = counter.window_ms
        sequence = now_ms // window_ms
        if sequence != counter.sequence:
            counter.roll(sequence)
        left_ms = window_ms - now_ms % window_ms
        remaining = limit.requests_per_unit - counter.current - counter.previous * left_ms // window_ms - cost
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
        """The limit less this window and what still counts of the one before."""
        left_ms = counter.window_ms - now_ms % counter.window_ms
        return max(0, limit.requests_per_unit - counter.current - counter.previous * left_ms // counter.window_ms)

    def standing(self, counter: WindowCounts, limit: Limit, now_ms: int) -> tuple[int, int]:
        """What is left, and until when."""
        window_ms = counter.window_ms
        left_ms = window_ms - now_ms % window_ms
        remaining = limit.requests_per_unit - counter.current - counter.previous * left_ms // window_ms
        return (remaining if remaining > 0 else 0), left_ms

    def retry_ms(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Until enough of the previous window, or then of this one, no longer counts."""
        if cost > limit.requests_per_unit or not limit.requests_per_unit:
            return self.reset_ms(counter, limit, now_ms)
        window_ms = counter.window_ms
        start_ms = counter.sequence * window_ms
        room = limit.requests_per_unit - counter.current - cost
        if room >= 0:  # only the previous window is in the way
            fits_ms = start_ms + _decayed_after_ms(counter.previous, room, window_ms)
        else:  # this window must become the previous one first
            room = limit.requests_per_unit - cost
            fits_ms = start_ms + window_ms + _decayed_after_ms(counter.current, room, window_ms)
        return max(0, fits_ms - now_ms)

    def reset_ms(self, counter: WindowCounts, limit: Limit, now_ms: int) -> int:
        """Until the current window ends."""
        return counter.window_ms - now_ms % counter.window_ms


def _decayed_after_ms(count: int, room: int, window_ms: int) -> int:
    """The least elapsed time at which `count × (window − elapsed) // window` is at most `room`."""
    if count <= room:
        return 0
    # count × left < (room + 1) × window, for the largest whole `left`.
    left_ms = -(-(room + 1) * window_ms // count) - 1
    return window_ms - left_ms
