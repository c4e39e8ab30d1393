"""Delay before a worker is started again: longer with every early end."""

import random

FIRST_S = 0.1
"""A worker that served well and was killed is back as soon as it can load."""
GROWTH = 2.0
MAX_S = 30.0
"""Longest delay in seconds. A lasting failure (a full disk, a missing library) costs one start, about a second of CPU,
in this time.
"""
STEADY_S = 10.0
"""Having served for this long is no failed start: the next wait is the first one again."""
LEAST_SHARE = 0.5
"""Waits are between this share and all of the above: workers that fell together don't start together."""


class Backoff:
    """Delays of one worker: they double with each early end, and return to the shortest after a long run."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._next_s = FIRST_S

    def next_s(self, served_s: float) -> float:
        """Delay in seconds after the end of a worker that served for `served_s` (0: it never did)."""
        if served_s >= STEADY_S:
            self._next_s = FIRST_S
        wait_s = self._next_s * self._random.uniform(LEAST_SHARE, 1)
        self._next_s = min(MAX_S, self._next_s * GROWTH)
        return wait_s
