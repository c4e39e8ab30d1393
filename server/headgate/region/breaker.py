"""A circuit breaker for one shard: whether asking it is worth anybody's wait.

Opens when the share of failed samples over a sliding second reaches `error_rate` (with at
least `min_samples`), or after a few failures in a row where there is little traffic. After
a cooldown exactly one probe is let through: its success closes the breaker, its failure
opens it again for longer. No lock, no task, no clock of its own: one thread, and time and
randomness are passed in.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WINDOW_S: Final = 1.0
CONSECUTIVE_FAILURES: Final = 5
"""Under light load a second has too few samples to have a rate; five in a row are no accident."""
COOLDOWN_JITTER: Final = 0.2
"""Upwards, so that the nodes of a region do not probe together."""
ROUNDING_S: Final = 1e-6
"""A caller who slept for `wait_s` may find the clock a rounding short of it: then it is due all the same."""
MAX_SAMPLES: Final = 10_000
"""Kept per second; at more than that the oldest go first, and the rate is that of the newest."""


class BreakerState(StrEnum):
    """Closed: calls pass. Open: none does. Half open: one probe is under way."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Settings of a breaker: shares of failed calls and of missed deadlines, the least number of samples; how long."""

    error_rate: float = 0.01
    min_samples: int = 20
    cooldown_s: float = 0.5
    max_cooldown_s: float = 2.0
    missed_share: float = 0.5


class Breaker:
    """Judges one shard by the calls that are recorded, and says when it may be tried again."""

    def __init__(
        self,
        settings: BreakerSettings,
        *,
        monotonic: Callable[[], float],
        random: random.Random,
        on_change: Callable[[BreakerState, str], None] = lambda state, reason: None,
    ) -> None:
        self.state = BreakerState.CLOSED
        self.trips = 0
        self._settings = settings
        self._monotonic = monotonic
        self._random = random
        self._on_change = on_change
        self._samples: deque[tuple[float, bool]] = deque()
        self._failures = 0
        self._in_a_row = 0
        self._cooldown_s = settings.cooldown_s
        self._open_until_s = 0.0

    @property
    def closed(self) -> bool:
        """True while requests may ask the shard."""
        return self.state is BreakerState.CLOSED

    def wait_s(self) -> float:
        """Return how long until a call may be made; 0 while closed or when a probe is due."""
        if self.state is BreakerState.OPEN:
            return max(0.0, self._open_until_s - self._monotonic())
        return 0.0

    def begin_probe(self) -> bool:
        """The one that may pass after the cooldown; False while it is not due or another is under way."""
        if self.state is not BreakerState.OPEN or self.wait_s() > ROUNDING_S:
            return False
        self._become(BreakerState.HALF_OPEN, "the cooldown is over")
        return True

    def record(self, ok: bool, reason: str = "") -> None:
        """A call answered in time, or not; while not closed only the probe's result counts."""
        if self.state is BreakerState.HALF_OPEN:
            if ok:
                self._close()
            else:
                self._cooldown_s = min(self._settings.max_cooldown_s, self._cooldown_s * 2)
                self._open(reason)
        elif self.state is BreakerState.CLOSED:
            self._sample(ok)
            if not ok and self._too_many():
                self._open(reason)

    def trip(self, reason: str) -> None:
        """Open it for a reason that no single call shows; while not closed it is open already, or a probe decides."""
        if self.state is BreakerState.CLOSED:
            self._open(reason)

    def _sample(self, ok: bool) -> None:
        now_s = self._monotonic()
        samples = self._samples
        while samples and (samples[0][0] <= now_s - WINDOW_S or len(samples) >= MAX_SAMPLES):
            self._failures -= not samples.popleft()[1]
        samples.append((now_s, ok))
        self._failures += not ok
        self._in_a_row = 0 if ok else self._in_a_row + 1

    def _too_many(self) -> bool:
        if self._in_a_row >= CONSECUTIVE_FAILURES:
            return True
        count = len(self._samples)
        return count >= self._settings.min_samples and self._failures >= self._settings.error_rate * count

    def _open(self, reason: str) -> None:
        jitter = 1 + self._random.random() * COOLDOWN_JITTER
        self._open_until_s = self._monotonic() + self._cooldown_s * jitter
        self.trips += 1
        self._forget()
        self._become(BreakerState.OPEN, reason)

    def _close(self) -> None:
        self._cooldown_s = self._settings.cooldown_s
        self._forget()
        self._become(BreakerState.CLOSED, "the probe was answered in time")

    def _forget(self) -> None:
        self._samples.clear()
        self._failures = 0
        self._in_a_row = 0

    def _become(self, state: BreakerState, reason: str) -> None:
        self.state = state
        self._on_change(state, reason)
