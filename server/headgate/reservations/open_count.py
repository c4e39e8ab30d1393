"""Counts of open reservations, by the limit key that was charged: neither settled nor expired, as far as a node knows.

Whoever fills the count of a key has charged that key as often, so nobody can take the places of others. A settlement
frees a place at the node that gets it, which need not be the one that reserved: of many, each gets as many as it gives.
Bounded in keys: of the one that was reserved for longest ago the count is forgotten, because an open reservation costs
nothing to hold.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

MOST_OPEN: Final = 100_000
"""Open reservations of one key: each may leave a name in the origin for as long as its id is good."""
MOST_KEYS: Final = 10_000
"""Keys that are counted: with all their steps 20 MB at the very most."""
STEPS: Final = 16
"""Parts of the longest time to live in which expiry is counted: the place of one that expires is free a part later."""


class OpenReservations:
    """Numbers of open reservations by limit key, and of all."""

    def __init__(self, longest_ttl_ms: int) -> None:
        self._step_ms = max(1, longest_ttl_ms // STEPS)
        self._all: Counter[int] = Counter()
        """Reservations by the step in which they expire."""
        self._by_key: OrderedDict[bytes, Counter[int]] = OrderedDict()

    def count(self, now_ms: int) -> int:
        """Return the number of open reservations of this node."""
        return self._live(self._all, now_ms)

    def full(self, keys: Iterable[bytes], now_ms: int) -> bool:
        """Tell whether one of these keys has as many as it may."""
        return any(key in self._by_key and self._live(self._by_key[key], now_ms) >= MOST_OPEN for key in keys)

    def add(self, keys: Iterable[bytes], expires_ms: int) -> None:
        """Count one that was made."""
        step = expires_ms // self._step_ms
        self._all[step] += 1
        for key in keys:
            self._by_key.setdefault(key, Counter())[step] += 1
            self._by_key.move_to_end(key)
        while len(self._by_key) > MOST_KEYS:
            self._by_key.popitem(last=False)

    def remove(self, keys: Iterable[bytes], expires_ms: int) -> None:
        """Free the place of one that was settled."""
        step = expires_ms // self._step_ms
        _take_one(self._all, step)
        for key in keys:
            counts = self._by_key.get(key)
            if counts is not None:
                _take_one(counts, step)
                if not counts:
                    del self._by_key[key]

    def _live(self, counts: Counter[int], now_ms: int) -> int:
        """Forget what has expired; return the number of the others."""
        over = now_ms // self._step_ms
        for step in [step for step in counts if step < over]:
            del counts[step]
        return counts.total()


def _take_one(counts: Counter[int], step: int) -> None:
    if counts[step] > 1:
        counts[step] -= 1
    else:
        del counts[step]
