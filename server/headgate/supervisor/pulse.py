"""Heartbeat of a worker's event loop: a line over the channel, twice a second.

Its sockets say nothing of that: the kernel accepts for a process that is stopped, or that spins. The supervisor checks
as often as a worker sends, and counts its checks rather than the time: a supervisor that was stopped itself, with its
workers or without, takes no worker for hanging.
"""

BEAT_S = 0.5
"""Seconds between heartbeats, and between the supervisor's checks. A line of ten bytes each."""
MOST_MISSED = 5
"""Checks in a row without a heartbeat. A loop that is blocked for that long, 2.5 to 3 s, answers no caller; killing it
and starting another takes a second or two more, so that callers are served again within 5 s.
"""

MOST_MISSED_STARTING = 240
"""Checks without a heartbeat that a starting worker may take: it loads, and may compile many rules in one go; two
minutes are many times what the largest rule sets take. A worker that is killed too early would never start.
"""


class WorkerPulse:
    """One worker's signs of life, as the supervisor counts them."""

    def __init__(self) -> None:
        self._missed = 0

    def heard(self) -> None:
        """Note a heartbeat."""
        self._missed = 0

    def check(self, most_missed: int = MOST_MISSED) -> bool:
        """Count one check; true if the worker hangs by it. True once, until it is heard again."""
        self._missed += 1
        return self._missed == most_missed + 1


def no_sign_of_life(most_missed: int) -> str:
    """Reason for ending a worker after this many checks."""
    return f"it hung: no sign of life for {BEAT_S * (most_missed + 1):g} s"
