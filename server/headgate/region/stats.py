"""Plain counters of a node's decisions. The engine counts, the metrics read."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

CALL_BOUNDS_S: Final[tuple[float, ...]] = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""Bounds of the histogram of answered calls: fine below the usual deadline, up to when a call is given up."""
WAIT_BOUNDS_S: Final[tuple[float, ...]] = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Bounds of the histogram of waits: fine around the deadlines that people set (5 ms, up to a second)."""


@dataclass(slots=True)
class RegionalStats:
    """Counts of a node's own decisions; every number only grows."""

    asked: int = 0
    """Requests that waited for a shard."""
    deadline_missed: int = 0
    """Requests whose deadline passed before every shard had answered."""
    unplaced: int = 0
    """Requests on new keys for which the full table had no room: every counter was unacknowledged."""
    degraded: Counter[int] = field(default_factory=Counter)
    """Costs per shard that a policy decided, because the shard could not be asked or did not answer."""
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BOUNDS_S) + 1))
    """Waits by their length, from the question to the decision: up to each bound, and longer."""
    waits_sum_s: float = 0.0
    """Seconds that these waits took together."""


@dataclass(slots=True)
class SessionStats:
    """Counts of a node's calls to one shard; every number only grows."""

    calls: int = 0
    failures: int = 0
    reports: int = 0
    wants: int = 0
    refills: int = 0
    clock_steps: int = 0
    """Times that the shard's clock was found to have been set."""
    unreadable: int = 0
    """Reports of keys whose records the shard could not read."""
    over_limit: int = 0
    """Answers that showed more admitted in a window than the limit and its precision allow."""
    durations: list[int] = field(default_factory=lambda: [0] * (len(CALL_BOUNDS_S) + 1))
    """Answered calls by their length: up to each bound, and longer."""
    durations_sum_s: float = 0.0

    def answered(self, took_s: float) -> None:
        """Count an answered call."""
        self.durations[bisect_left(CALL_BOUNDS_S, took_s)] += 1
        self.durations_sum_s += took_s
