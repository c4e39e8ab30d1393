"""How long to wait before a denied call is tried again.

A limit that resets releases everybody who waits for it at one instant. Full jitter spreads them:
each waits until the server said, and then `min(cap, base·2ⁿ) × U(0,1)` more, n being the number of its denials before.
"""

from dataclasses import dataclass
from typing import Final

from headgate_client.arguments import check_seconds
from headgate_client.clock import Clock
from headgate_client.values import Decision

CLOSED: Final = "CLOSED"
"""The status of calls on a closed client."""
CLOSED_MESSAGE: Final = "this client is closed"


@dataclass(frozen=True, slots=True)
class Backoff:
    """In seconds. A longer `base` spreads more callers out, and makes each wait longer."""

    base: float = 0.1
    cap: float = 5.0

    def __post_init__(self) -> None:
        for name, value in (("base", self.base), ("cap", self.cap)):
            check_seconds(f"backoff.{name}", value)

    def wait_s(self, retry_after: float, denials_before: int, uniform: float) -> float:
        """Never before `retry_after`, and after it at an instant that nobody else has."""
        # Beyond 2⁶⁴ the cap has long been reached, and floats would overflow.
        return retry_after + min(self.cap, self.base * 2.0 ** min(denials_before, 64)) * uniform


class Waiting:
    """One caller's wait: how long until its next try, and whether there is one."""

    def __init__(self, backoff: Backoff, clock: Clock, timeout_s: float | None) -> None:
        self._backoff = backoff
        self._clock = clock
        self._deadline_s = None if timeout_s is None else clock.now_s() + timeout_s
        self._denials = 0

    def next_s(self, decision: Decision) -> float | None:
        """Seconds until the next try; None when the decision is final: allowed, or no time is left for another."""
        if decision.allowed or (decision.error is not None and decision.error.status == CLOSED):
            return None
        wait_s = self._backoff.wait_s(decision.retry_after, self._denials, self._clock.random())
        self._denials += 1
        if self._deadline_s is not None and self._clock.now_s() + wait_s > self._deadline_s:
            return None
        return wait_s
