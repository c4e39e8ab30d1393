"""Time, as it is injected wherever it is needed. Nothing else in the engine reads a clock.

Two readings, both injected: `now_ms` is unix time for windows, `monotonic` is for
durations and deadlines. `now_ms` is anchored once and then follows the monotonic
clock, so a step of the wall clock, in either direction, moves no window. Randomness
is injected beside it, as a `random.Random`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time, passed in to every part: `SystemClock` in production, clocks of their own in tests and
    simulation.
    """

    def now_ms(self) -> int:
        """Unix time in milliseconds; never goes back."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""


class SystemClock:
    """The process's clock: the wall's reading at start, advanced by the monotonic clock."""

    def __init__(self) -> None:
        self._anchor_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._anchor_ns + time.monotonic_ns()) // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Python's own function, not a method around it: every decision reads it several times."""
