"""Time, real and simulated. Nothing else in the engine reads a clock.

Two readings, both injected: `now_ms` is unix time for windows, `monotonic` is for
durations and deadlines. `now_ms` is anchored once and then follows the monotonic
clock, so a step of the wall clock, in either direction, moves no window. Randomness
is injected beside it, as a `random.Random`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Unix time in milliseconds; never goes back."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""
        ...


class SystemClock:
    """The process's clock: the wall's reading at start, advanced by the monotonic clock."""

    def __init__(self) -> None:
        self._anchor_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._anchor_ns + time.monotonic_ns()) // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands until it is moved: for exact tests and for simulation."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError("time passes forwards; use step() for a wall clock that is set back")
        self._now_ms += ms
        self._monotonic_ms += ms

    def step(self, ms: int) -> None:
        """Set the wall clock by `ms`, either way, while no time passes."""
        self._now_ms += ms
