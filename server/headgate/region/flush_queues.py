"""Counters that have something to report, in the order in which they are due.

Four queues, one for each delay, so that each is in order by itself. A counter stands in a queue with
the time at which it was to be due; if that is no longer the time that the counter itself names, it was
reported meanwhile, or is due earlier in another queue, and the entry is passed over. So nothing is
searched or removed from the middle, and the queues are bounded by the live counters and recent reports.

What is nearly due goes along with what is: reports in one call cost a fraction of reports in calls of their own.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from headgate.region.counters import SharedCounter
from headgate.region.refunds import TOLD_AFTER_S

FLUSH_SOON_S: Final = 0.025
"""Near a limit: how long others may not know of an admission. Shorter costs the shard calls."""
FLUSH_LATER_S: Final = 0.250
"""Far from it: a third of the calls."""
FLUSH_CALM_S: Final = 2.0
"""While next to nothing of the grant is used. Grants keep counts safe whatever the delay; a flush makes them
known. With the share that counts as next to nothing (counters.py) this is the most that a node killed outright
takes with it. Well below the 5 s for which a view is fresh, so that a key in use stays fresh by its flushes."""
EARLY: Final = 0.2
"""The last part of a delay, in which a counter goes along with a call that is made anyway."""


class FlushQueues:
    """What one shard is to be told: soon, later, when it is convenient, or when it is time to demand it back."""

    def __init__(self) -> None:
        self._soon: deque[tuple[float, SharedCounter]] = deque()
        self._later: deque[tuple[float, SharedCounter]] = deque()
        self._back: deque[tuple[float, SharedCounter]] = deque()
        self._calm: deque[tuple[float, SharedCounter]] = deque()

    def __len__(self) -> int:
        return len(self._soon) + len(self._later) + len(self._back) + len(self._calm)

    def add(
        self, counter: SharedCounter, *, soon: bool, calm: bool = False, back: bool = False, now_s: float
    ) -> float | None:
        """Have it reported; when it is due, or None if it was to be reported by then anyway."""
        if counter.flush_due_s and calm:
            return None
        delay_s = FLUSH_SOON_S if soon else FLUSH_CALM_S if calm else TOLD_AFTER_S if back else FLUSH_LATER_S
        due_s = now_s + delay_s
        if counter.flush_due_s and counter.flush_due_s <= due_s:
            return None
        counter.flush_due_s = due_s
        queue = self._soon if soon else self._calm if calm else self._back if back else self._later
        queue.append((due_s, counter))
        return due_s

    def next_due_s(self) -> Iterator[float]:
        """When the first of each queue is due."""
        for queue in (self._soon, self._later, self._back, self._calm):
            while queue and queue[0][1].flush_due_s != queue[0][0]:
                queue.popleft()
            if queue:
                yield queue[0][0]

    def take(self, room: int, now_s: float, *, everything: bool = False) -> Iterator[SharedCounter]:
        """Up to `room` counters that are due or nearly so, or that are in here at all."""
        queues = (
            (self._soon, EARLY * FLUSH_SOON_S),
            (self._later, EARLY * FLUSH_LATER_S),
            (self._back, 0.0),  # a demand would not be told early
            (self._calm, EARLY * FLUSH_CALM_S),
        )
        for queue, early_s in queues:
            until_s = now_s + early_s
            while queue and room > 0 and (queue[0][0] <= until_s or everything):
                due_s, counter = queue.popleft()
                if counter.flush_due_s == due_s:
                    room -= 1
                    yield counter
