"""For callers of limited services: how often and how long to wait for one that says "later"."""

import email.utils
import math
import time
from dataclasses import dataclass, field

from headgate_client.arguments import check_seconds
from headgate_client.backoff import Backoff
from headgate_client.clock import SYSTEM_CLOCK, Clock


@dataclass(frozen=True, slots=True)
class Obey:
    """At most `attempts` tries of a call, and no more than `max_wait` seconds between them all together.

    Each wait is what the server said and full jitter after it: who was told the same comes back apart.
    """

    attempts: int = 3
    max_wait: float = 30.0
    backoff: Backoff = field(default_factory=Backoff)
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValueError(f"attempts: 1 or more, got {self.attempts!r}")
        check_seconds("max_wait", self.max_wait, zero=True)

    def waits(self) -> "Waits":
        """For one call."""
        return Waits(self)


class Waits:
    """The waits of one call."""

    def __init__(self, obey: Obey) -> None:
        self._obey = obey
        self._tries = 0
        self._left_s = obey.max_wait

    def next_s(self, said_s: float | None) -> float | None:
        """Seconds until the next try of a call that was denied; None when there is none."""
        self._tries += 1
        if self._tries >= self._obey.attempts:
            return None
        wait_s = self._obey.backoff.wait_s(said_s or 0.0, self._tries - 1, self._obey.clock.random())
        if wait_s > self._left_s:
            return None
        self._left_s -= wait_s
        return wait_s


def parse_retry_after(text: str | None) -> float | None:
    """Seconds, from a number of them or a date; None for anything else."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
