"""Plain counters of a node's decisions. The engine counts, the metrics read."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

WAIT_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""By which waits are counted: fine around the deadlines that people set (5 ms, up to a second)."""


@dataclass(slots=True)
class RegionalStats:
    """What a node counts of its own decisions; every number only grows."""

    asked: int = 0
    """Requests that waited for a shard."""
    deadline_missed: int = 0
    """Requests whose deadline passed before every shard had answered."""
    unplaced: int = 0
    """Requests on new keys for which the full table had no room: every counter was unacknowledged."""
    degraded: Counter[int] = field(default_factory=Counter)
    """Per shard: costs that a policy decided, because the shard could not be asked or did not answer."""
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BOUNDS_S) + 1))
    """Waits by how long they took, from the question to the decision: up to each bound, and longer."""
    waits_sum_s: float = 0.0
    """What these waits took together."""
