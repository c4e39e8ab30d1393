"""Counters by the second in which they may expire.

A counter is filed once, under its expiry at that time. When that time comes and it has been used since, it is filed
again: using it costs nothing. A tick's counters are a ring of links, so that a flood of keys that all expire in one
second costs no more per key than any other.
"""

import heapq
from typing import Final, Generic, TypeVar, cast

from headgate.limiter.links import Link

WHEEL_TICK_MS: Final = 1_000
"""Resolution of the wheel. Finer costs a ring per tick; coarser keeps dead counters longer."""

C = TypeVar("C", bound=Link)


class ExpiryWheel(Generic[C]):
    """Ticks with the counters that are filed under them."""

    def __init__(self) -> None:
        self._ends: dict[int, Link] = {}
        """Ends of the rings, by tick: each stands behind the last counter and before the first."""
        self._ticks: list[int] = []
        """A heap of the same ticks."""

    def file(self, counter: C, expires_ms: int) -> None:
        """File a counter that is not in the wheel."""
        # Rounded up, and so always after the tick that is due: a sweep never meets its own filings.
        tick = expires_ms // WHEEL_TICK_MS + 1
        end = self._ends.get(tick)
        if end is None:
            end = self._begin(tick)
        last = end.wheel_before
        counter.wheel_before, counter.wheel_after = last, end
        last.wheel_after = end.wheel_before = counter

    def take_due(self, now_ms: int) -> C | None:
        """Take out a counter whose tick has come; None: there is none."""
        while self._ticks and self._ticks[0] <= now_ms // WHEEL_TICK_MS:
            end = self._ends[self._ticks[0]]
            last = end.wheel_before
            if last is not end:
                self.remove(cast(C, last))
                return cast(C, last)
            del self._ends[heapq.heappop(self._ticks)]
        return None

    def remove(self, counter: C) -> None:
        """Take out a counter."""
        before, after = counter.wheel_before, counter.wheel_after
        before.wheel_after, after.wheel_before = after, before
        counter.wheel_before = counter.wheel_after = _NOWHERE

    def _begin(self, tick: int) -> Link:
        end = self._ends[tick] = Link()
        end.wheel_before = end.wheel_after = end
        heapq.heappush(self._ticks, tick)
        return end


_NOWHERE: Final = Link()
"""The neighbour of a counter that was taken out: it holds on to no other one."""
