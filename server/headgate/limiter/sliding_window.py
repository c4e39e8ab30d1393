"""Sliding window: the current window, plus the previous one by the share of it still in sight.

effective = current + previous × (window − elapsed) // window + cost
deny iff effective > limit;   remaining = limit − effective
"""

from headgate.limiter.counters import WindowCounter, WindowCounts
from headgate.limiter.limit import Limit
from headgate.limiter.windows import WindowRules
from headgate.window import used


class SlidingWindow(WindowRules):
    """Admits while the current window, with its share of the previous one, stays within the limit."""

    def new_counter(self, key: bytes, limit: Limit, now_ms: int) -> WindowCounter:
        return WindowCounter(key, limit, now_ms // limit.window_ms)

    def used(self, counter: WindowCounts, now_ms: int) -> int:
        """Return this window's count and the share of the one before that is still in sight."""
        return used(counter.current, counter.previous, now_ms, counter.window_ms)

    def retry_ms(self, counter: WindowCounts, limit: Limit, now_ms: int, cost: int) -> int:
        """Return how long until enough of the previous window, or then of this one, no longer counts."""
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


def _decayed_after_ms(count: int, room: int, window_ms: int) -> int:
    """Return the least elapsed time at which `weighted(count, window − elapsed, window)` is at most `room`."""
    if count <= room:
        return 0
    # count × left < (room + 1) × window, for the largest whole `left`.
    left_ms = -(-(room + 1) * window_ms // count) - 1
    return window_ms - left_ms
