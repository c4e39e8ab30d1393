"""Counters that have something to report, in the order in which they are due.

One queue per urgency, so that each is in order by itself. A counter stands in a queue with
the time at which it was to be due; if that is no longer the time that the counter itself names, it was
reported meanwhile, or is due earlier in another queue, and the entry is passed over. So nothing is
searched or removed from the middle, and the queues are bounded by the live counters and recent reports.

Reports that are due at a time of their own, at the end of a turn or of an allowance, or with demands that have waited
for long enough, stand in a heap beside these.

What is nearly due goes along with what is: reports in one call cost a fraction of reports in calls of their own.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Final

from headgate.region.counters import SharedCounter
from headgate.region.urgency import CALM, DELAYS_S, Urgency

EARLY: Final = 0.2
"""The last part of a delay, in which a counter goes along with a call that is made anyway."""
EARLY_S: Final = 0.005
"""Time before a report that is due at a time of its own, in which it goes along as well."""


class FlushQueues:
    """The counters that one shard is to hear of, by urgency."""

    def __init__(self) -> None:
        self._queues: tuple[deque[tuple[float, SharedCounter]], ...] = tuple([deque() for _ in Urgency])
        self._timed: list[tuple[float, int, SharedCounter]] = []
        self._added = 0
        """Number of timed reports so far: of two that are due at once the first comes first."""

    def __len__(self) -> int:
        return sum([len(queue) for queue in self._queues]) + len(self._timed)

    def add(self, counter: SharedCounter, urgency: Urgency, now_s: float) -> float | None:
        """Have the counter reported; return when it is due, or None if it was to be reported by then anyway."""
        due_s = now_s + DELAYS_S[urgency]
        if not counter.due_by(due_s, sooner=urgency is not CALM):
            return None
        self._queues[urgency].append((due_s, counter))
        return due_s

    def add_at(self, counter: SharedCounter, due_s: float) -> bool:
        """Have the counter reported at that time; False if it was to be reported by then anyway."""
        if not counter.due_by(due_s, sooner=True):
            return False
        self._added += 1
        heapq.heappush(self._timed, (due_s, self._added, counter))
        return True

    def counters(self) -> Iterator[SharedCounter]:
        """Yield every counter that is to be reported."""
        for due_s, counter in chain(*self._queues):
            if counter.flush_due_s == due_s:
                yield counter
        for due_s, _, counter in self._timed:
            if counter.flush_due_s == due_s:
                yield counter

    def next_due_s(self) -> Iterator[float]:
        """Yield when the first of each queue is due."""
        timed = self._timed
        while timed and timed[0][2].flush_due_s != timed[0][0]:
            heapq.heappop(timed)
        if timed:
            yield timed[0][0]
        for queue in self._queues:
            while queue and queue[0][1].flush_due_s != queue[0][0]:
                queue.popleft()
            if queue:
                yield queue[0][0]

    def take(self, room: int, now_s: float, *, everything: bool = False) -> Iterator[SharedCounter]:
        """Yield up to `room` counters that are due or nearly so, or that are in here at all."""
        timed = self._timed
        while timed and room > 0 and (timed[0][0] <= now_s + EARLY_S or everything):
            due_s, _, counter = heapq.heappop(timed)
            if counter.flush_due_s != due_s:
                continue
            if counter.has_news:
                room -= 1
                yield counter
            else:
                counter.flush_due_s = 0.0  # nobody has asked for it since, and nothing is held
        for urgency, queue in enumerate(self._queues):
            early_s = EARLY * DELAYS_S[urgency]
            while queue and room > 0 and (queue[0][0] <= now_s + early_s or everything):
                due_s, counter = queue.popleft()
                if counter.flush_due_s == due_s:
                    room -= 1
                    yield counter
