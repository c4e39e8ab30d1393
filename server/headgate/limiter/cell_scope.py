"""Measured use of limits of scope `cell`: how much of the whole of a limit this region admitted.

Regions tell each other nothing of such a limit's keys; and when it is exceeded, because they do not hear each other,
they could not. So every node shows its region's use, and whoever reads the metrics of all regions adds it up. Users
are no labels: keys are shown by slots, the same in every region, and of a slot the key that has used most. So the sum
over regions is never below what they admitted of any one key together; it is above it where different keys of a slot
are busy in different regions.
"""

from collections.abc import Iterable
from typing import Final, cast
from zlib import crc32

from headgate.limiter.counters import KeyCounter, WindowCounts
from headgate.limiter.limit import Algorithm, Scope

SLOTS: Final = 256
"""Series of a node at most. Fewer would mix more keys; and every region must have as many."""

LOOKED_AT: Final = 10_000
"""Most recently used counters, which are read at each scrape: a millisecond or two. Busy keys are among them."""


def used_by_slot(counters: Iterable[KeyCounter], now_ms: int) -> dict[int, float]:
    """Return by slot the largest share of a whole limit of scope `cell` that its region admitted on one key."""
    most: dict[int, float] = {}
    for counter in counters:
        limit = counter.limit
        if limit.scope is Scope.CELL and limit.regions > 1 and limit.whole and counter.expires_ms > now_ms:
            slot = crc32(counter.key) % SLOTS
            most[slot] = max(most.get(slot, 0.0), _admitted(counter, now_ms) / limit.whole)
    return most


def _admitted(counter: KeyCounter, now_ms: int) -> float:
    """Return the cost admitted in the current window or in the one before, whichever is more; of a bucket, the cost
    that it holds now."""
    limit = counter.limit
    if limit.algorithm is Algorithm.GCRA:
        return counter.load(now_ms) * limit.burst / 1000
    counts = cast(WindowCounts, counter)
    return max(counts.current, counts.previous)
