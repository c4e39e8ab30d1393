"""The bounded table that holds a node's counters.

It promises never to hold more than `max_cells` counters: expired ones go first, then the lightest of the least
recently used, and both are counted. And no addition takes long, however many there are: by key they are in dicts of
bounded size (by_key.py), and links from one to the next keep them in order (links.py). It relies on being used by one
thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from headgate.limiter.by_key import ByKey
from headgate.limiter.counters import KeyCounter
from headgate.limiter.expiry_wheel import ExpiryWheel
from headgate.limiter.use_order import UseOrder

ROOM_STEPS: Final = 16
"""Counters that one insertion into a full table looks at, among the due ones and of the live ones.

Most due ones have expired and most live ones may go, so one step is enough; the bound
keeps an insertion O(1) when all of them are in use."""

LIGHT: Final = 10
"""In thousandths of its limit: a counter that holds so little is let go without looking for a lighter one."""
DENIES: Final = 1 << 30
"""The weight of a counter that denies: heavier than any that does not."""


@dataclass(slots=True)
class CounterStats:
    """Plain counters, read by whoever exports them."""

    created: int = 0
    expired: int = 0
    evicted: int = 0
    evicted_denying: int = 0
    """Evicted counters that were denying: there was nothing lighter to let go."""

    restarted: int = 0
    """Begun anew where they were, because the clock of their shard had been set back."""

    incarnation: int = 0
    """Another number after any counter went or began anew: what names the next one's component."""


C = TypeVar("C", bound=KeyCounter)


class CounterTable(ByKey[C]):
    """All live counters: by key, in the order of their use, and by when each may expire."""

    def __init__(self, max_cells: int, evictable: Callable[[C], bool] | None = None) -> None:
        super().__init__(max_cells)
        self.max_cells = max_cells
        self.stats = CounterStats()
        self.order: UseOrder[C] = UseOrder()
        self._evictable = evictable
        self._wheel: ExpiryWheel[C] = ExpiryWheel()

    def recent(self, number: int) -> list[C]:
        """The most recently used ones, the last first."""
        return list(islice(self.order.newest_first(), number))

    def add(self, counter: C, now_ms: int) -> bool:
        """Take in a new counter as the most recently used one, making room where there is none.

        False: there is none to be made, because no counter may go.
        """
        if self.put(counter, now_ms):
            return True
        return (self._expire_one(now_ms) or self._evict_one(now_ms)) and self.put(counter, now_ms)

    def put(self, counter: C, now_ms: int = 0) -> bool:
        """Take in a new counter if there is room already; the time may be left out."""
        if self._len >= self.max_cells:
            return False
        self.keep(counter.key, counter)
        self.order.add(counter)
        self._wheel.file(counter, max(counter.expires_ms, now_ms))
        self.stats.created += 1
        return True

    def drop(self, key: bytes) -> bool:
        """Let one counter go, whatever it holds. False: there is none."""
        counter = self.find(key)
        if counter is None:
            return False
        self._wheel.remove(counter)
        self._let_go(counter)
        self.stats.restarted += 1
        return True

    def sweep(self, now_ms: int, max_steps: int) -> bool:
        """Drop expired counters, looking at no more than `max_steps`; True while more may be due."""
        for _ in range(max_steps):
            counter = self._wheel.take_due(now_ms)
            if counter is None:
                return False
            self._expire_or_refile(counter, now_ms)
        return True

    def _expire_one(self, now_ms: int) -> bool:
        for _ in range(ROOM_STEPS):
            counter = self._wheel.take_due(now_ms)
            if counter is None:
                return False
            if self._expire_or_refile(counter, now_ms):
                return True
        return False

    def _expire_or_refile(self, counter: C, now_ms: int) -> bool:
        """Let go of a counter that was taken out of the wheel, or file it again: it was used since."""
        expires_ms = counter.expires_ms
        if expires_ms > now_ms:
            self._wheel.file(counter, expires_ms)
            return False
        self._let_go(counter)
        self.stats.expired += 1
        return True

    def _evict_one(self, now_ms: int) -> bool:
        """Let the lightest of the least recently used ones go: a flood of new keys must not reset who is at a limit."""
        lightest: C | None = None
        least = DENIES + 1
        for _ in range(min(ROOM_STEPS, self._len)):
            counter = self.order.oldest()
            if self._evictable is None or self._evictable(counter):
                weight = DENIES if counter.deny_until_ms > now_ms else min(counter.load(now_ms), DENIES - 1)
                if weight < least:
                    lightest, least = counter, weight
                if weight <= LIGHT:
                    break
            self.order.touch(counter)  # in use, or heavy: as good as used just now
        if lightest is None:
            return False
        self._wheel.remove(lightest)
        self._let_go(lightest)
        self.stats.evicted += 1
        self.stats.evicted_denying += least == DENIES
        return True

    def _let_go(self, counter: C) -> None:
        """Take a counter out that is not in the wheel any more."""
        self.forget(counter.key)
        self.order.remove(counter)
        self.stats.incarnation += 1
