"""Measured use of limits of scope `cell`: how much of the whole of a limit this region admitted.

Regions tell each other nothing of such a limit's keys; and when it is exceeded, because they do not hear each other,
they could not. So every node shows its region's use, and whoever reads the metrics of all regions adds it up. Users
are no labels: keys are shown by slots, the same in every region, and of a slot the key that has used most. So the sum
over regions is never below what they admitted of any one key together; it is above it where different keys of a slot
are busy in different regions.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from zlib import crc32

from headgate.clock import Clock
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.counters import KeyCounter, WindowCounts
from headgate.limiter.limit import Algorithm, Scope
from headgate.limiter.scopes import LimitsOfRegion

SLOTS: Final = 256
"""Series of a node at most. Fewer would mix more keys; and every region must have as many."""

LOOKED_AT: Final = 500
"""Most recently used counters, which are read in one look, ten times a second: under half a millisecond. A key that
has used much was used often, and is among them at one of its uses."""

PERIOD_S: Final = 60.0
"""A share is shown for this time, or twice it: so scrapes see windows shorter than the time between them."""


class CellUse:
    """The use of limits of scope `cell` as one node sees it, over the last minute or two."""

    def __init__(self, counters: CounterTable[Any], limits: LimitsOfRegion, clock: Clock) -> None:
        self._counters = counters
        self._limits = limits
        self._clock = clock
        self._now: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._began_s = clock.monotonic()

    def look(self) -> None:
        """Take in what the most recently used counters hold."""
        if not self._limits.divides:
            return
        self._turn()
        note_use(self._now, self._counters.recent(LOOKED_AT), self._clock.now_ms())

    def by_slot(self) -> Mapping[int, float]:
        """Return by slot the largest share of a whole limit that the region admitted on one key."""
        self._turn()
        return {slot: max(self._now.get(slot, 0.0), self._before.get(slot, 0.0)) for slot in self._now | self._before}

    def _turn(self) -> None:
        passed_s = self._clock.monotonic() - self._began_s
        if passed_s >= PERIOD_S:
            self._before = self._now if passed_s < 2 * PERIOD_S else {}
            self._now = {}
            self._began_s += passed_s


def note_use(most: dict[int, float], counters: Iterable[KeyCounter], now_ms: int) -> None:
    """Raise, by slot, the largest share of a whole limit of scope `cell` to what these counters hold."""
    for counter in counters:
        limit = counter.limit
        if limit.scope is Scope.CELL and limit.regions > 1 and limit.whole and counter.expires_ms > now_ms:
            share = _admitted(counter, now_ms) / limit.whole
            slot = crc32(counter.key) % SLOTS
            if share > most.get(slot, 0.0):
                most[slot] = share


def _admitted(counter: KeyCounter, now_ms: int) -> float:
    """Return the cost admitted in the current window or in the one before, whichever is more; of a bucket, the cost
    that it holds now."""
    limit = counter.limit
    if limit.algorithm is Algorithm.GCRA:
        return counter.load(now_ms) * limit.burst / 1000
    counts = cast(WindowCounts, counter)
    return max(counts.current, counts.previous)
