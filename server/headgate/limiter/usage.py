"""Usage of a limit at a time, for people who look: nothing is rolled over, or marked as used."""

from typing import Any

from headgate.limiter.limit import Algorithm, Limit
from headgate.window import used as used_in_window


def used_at(counter: Any, limit: Limit, now_ms: int) -> int:
    """Return how much of a limit is in use at `now_ms`, by its algorithm, whenever the counter was last used."""
    if limit.algorithm is Algorithm.GCRA:
        ahead: int = max(0, counter.tat - now_ms * counter.rate)
        return -(-ahead // limit.window_ms)
    # A clock that is behind the counter's window sees that window's begin.
    ended = max(0, now_ms // limit.window_ms - counter.sequence)
    now_ms = max(now_ms, counter.sequence * limit.window_ms)
    current = counter.current if ended == 0 else 0
    if limit.algorithm is Algorithm.FIXED_WINDOW:
        return int(current)
    previous = counter.previous if ended == 0 else counter.current if ended == 1 else 0
    return used_in_window(current, previous, now_ms, limit.window_ms)
