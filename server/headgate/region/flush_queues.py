"""Counters that have something to report, in the order in which they are due.

Two queues, one for each delay, so that each is in order by itself. A counter stands in a queue with
the time at which it was to be due; if that is no longer the time that the counter itself names, it was
reported meanwhile, or is due earlier in the other queue, and the entry is passed over. So nothing is
searched or removed from the middle, and the queues are bounded by the live counters and recent reports.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from headgate.region.counters import SharedCounter

FLUSH_SOON_S: Final = 0.025
"""Near a limit: how long others may not know of an admission. Shorter costs the shard calls."""
FLUSH_LATER_S: Final = 0.250
"""Far from it: a third of the calls. Also the most that a node killed outright takes with it."""


class FlushQueues:
    """What one shard is to be told, soon or later."""

    def __init__(self) -> None:
        self._soon: deque[tuple[float, SharedCounter]] = deque()
        self._later: deque[tuple[float, SharedCounter]] = deque()

    def __len__(self) -> int:
        return len(self._soon) + len(self._later)

    def add(self, counter: SharedCounter, *, soon: bool, now_s: float) -> float | None:
        """Have it reported; when it is due, or None if it was to be reported by then anyway."""
        if counter.flush_due_s and not soon:
            return None
        due_s = now_s + (FLUSH_SOON_S if soon else FLUSH_LATER_S)
        if counter.flush_due_s and counter.flush_due_s <= due_s:
            return None
        counter.flush_due_s = due_s
        (self._soon if soon else self._later).append((due_s, counter))
        return due_s

    def next_due_s(self) -> Iterator[float]:
        """When the first of each queue is due."""
        for queue in (self._soon, self._later):
            while queue and queue[0][1].flush_due_s != queue[0][0]:
                queue.popleft()
            if queue:
                yield queue[0][0]

    def take(self, room: int, now_s: float, *, everything: bool = False) -> Iterator[SharedCounter]:
        """Up to `room` counters that are due, or that are in here at all."""
        for queue in (self._soon, self._later):
            while queue and room > 0 and (queue[0][0] <= now_s or everything):
                due_s, counter = queue.popleft()
                if counter.flush_due_s == due_s:
                    room -= 1
                    yield counter
