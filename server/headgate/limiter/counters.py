"""Counters of limit keys, and the bounded table that holds a node's.

A cell is one limit key in one window. A window's counter holds two of them, the current
and the previous cell of its key: they are created and dropped together. A slot's counter
holds one theoretical arrival time. The table promises never to hold more than `max_cells`
counters: expired ones go first, then the lightest of the least recently used, and both are counted. It
relies on being used by one thread.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from headgate.limiter.limit import Limit

WHEEL_TICK_MS: Final = 1_000
"""Resolution of the expiry wheel. Finer costs a dict per tick; coarser keeps dead counters longer."""

ROOM_STEPS: Final = 16
"""Counters that one insertion into a full table looks at, among the due ones and of the live ones.

Most due ones have expired and most live ones may go, so one step is enough; the bound
keeps an insertion O(1) when all of them are in use."""


LIGHT: Final = 10
"""In thousandths of its limit: a counter that holds so little is let go without looking for a lighter one."""
DENIES: Final = 1 << 30
"""The weight of a counter that denies: heavier than any that does not."""


class KeyCounter:
    """Base of every algorithm's counter: its key, its place in the expiry wheel, its last denial.

    A denial holds until `deny_until_ms` for costs of at least `deny_cost` under the very
    limit `deny_limit`: counts only grow, so nothing but time or a new rule can undo it.
    """

    __slots__ = ("deny_cost", "deny_limit", "deny_until_ms", "key", "limit", "wheel_slot")

    def __init__(self, key: bytes, limit: Limit) -> None:
        self.key = key
        self.limit = limit
        """The rule's limit when the counter was made, or later."""
        self.wheel_slot: dict[Any, None] | None = None
        """The tick of the expiry wheel in which it is filed; None while it is in no table."""
        self.deny_until_ms = 0
        self.deny_cost = 0
        self.deny_limit: Limit | None = None

    def denies(self, cost: int, limit: Limit, now_ms: int) -> bool:
        """Return whether the denial that is kept covers this cost under this limit at `now_ms`."""
        return now_ms < self.deny_until_ms and cost >= self.deny_cost and limit is self.deny_limit

    def keep_denial(self, cost: int, limit: Limit, until_ms: int) -> None:
        """Deny costs of this much or more under this limit from memory, until `until_ms`."""
        self.deny_until_ms = until_ms
        self.deny_cost = cost
        self.deny_limit = limit

    def forget_denial(self) -> None:
        """Decide the next cost by the counts: room may have come back, or a denial holds for longer."""
        self.deny_until_ms = 0

    @property
    def expires_ms(self) -> int:
        """The time from which on the counter is as good as a new one."""
        raise AssertionError("every algorithm's counter says when it expires")

    def load(self, now_ms: int) -> int:
        """Return how much of its limit is in use, in thousandths: the more, the longer a full table keeps it."""
        raise AssertionError("every algorithm's counter says how much of its limit is in use")


class WindowCounts(Protocol):
    """Counts of a key's current and previous cell, as the window algorithms read and write them."""

    window_ms: int
    sequence: int
    current: int
    previous: int

    def roll(self, sequence: int) -> None:
        """Go on to a later window; what was current is previous if it has just ended, else gone."""


class BucketCounts(Protocol):
    """A theoretical arrival time in ticks of 1/rate ms, as gcra reads and writes it."""

    rate: int
    tat: int


class WindowCounter(KeyCounter):
    """Two cells of one limit key: the cost admitted in its current window, `sequence`, and in the one before."""

    __slots__ = ("current", "previous", "sequence", "window_ms")

    def __init__(self, key: bytes, limit: Limit, sequence: int) -> None:
        super().__init__(key, limit)
        self.window_ms = limit.window_ms
        self.sequence = sequence
        self.current = 0
        self.previous = 0

    def roll(self, sequence: int) -> None:
        """Go on to another window: the current cell becomes the previous one if it is the next, else both are empty."""
        self.previous = self.current if sequence == self.sequence + 1 else 0
        self.current = 0
        self.sequence = sequence

    @property
    def expires_ms(self) -> int:
        """The end of the window after the current one: by then the current one has lost all weight."""
        return (self.sequence + 2) * self.window_ms

    def load(self, now_ms: int) -> int:
        """Return how full it is, in thousandths of its limit."""
        return window_load(self, self.limit)


class BucketCounter(KeyCounter):
    """The theoretical arrival time of one limit key, in ticks of 1/rate ms (see gcra.py)."""

    __slots__ = ("rate", "tat")

    def __init__(self, key: bytes, limit: Limit) -> None:
        super().__init__(key, limit)
        self.rate = max(1, limit.requests_per_unit)
        self.tat = 0

    @property
    def expires_ms(self) -> int:
        """The time at which the bucket is full again."""
        return -(-self.tat // self.rate)

    def load(self, now_ms: int) -> int:
        """Return how full of admitted cost it is, in thousandths of its burst."""
        return bucket_load(self, self.limit, now_ms)


def window_load(counts: WindowCounts, limit: Limit) -> int:
    """Thousandths of a window's limit that its two cells hold."""
    return (counts.current + counts.previous) * 1000 // max(1, limit.requests_per_unit)


def bucket_load(counts: BucketCounts, limit: Limit, now_ms: int) -> int:
    """Thousandths of a bucket's burst that are in use."""
    used = max(0, counts.tat - now_ms * counts.rate)
    return used * 1000 // max(1, limit.burst * limit.window_ms)


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


class CounterTable(Generic[C]):
    """All live counters, the least recently used first, and a wheel of when each may expire.

    A counter is filed in the wheel once, under its expiry at that time. When that time
    comes and it has been used since, it is filed again: using it costs nothing.
    """

    def __init__(self, max_cells: int, evictable: Callable[[C], bool] | None = None) -> None:
        self.max_cells = max_cells
        self.stats = CounterStats()
        self._evictable = evictable
        self._counters: OrderedDict[bytes, C] = OrderedDict()
        # Dicts for sets: they are in order of insertion, so that a run does not depend on where they lie in memory.
        self._wheel: dict[int, dict[C, None]] = {}
        self._ticks: list[int] = []
        # The request path calls these directly: a counter, or None.
        self.find = self._counters.get
        self.touch = self._counters.move_to_end

    def __len__(self) -> int:
        return len(self._counters)

    def __iter__(self) -> Iterator[C]:
        return iter(self._counters.values())

    def recent(self, number: int) -> list[C]:
        """The most recently used ones, the last first."""
        return list(islice(reversed(self._counters.values()), number))

    def add(self, counter: C, now_ms: int) -> bool:
        """Take in a new counter as the most recently used one, making room where there is none.

        False: there is none to be made, because no counter may go.
        """
        if self.put(counter, now_ms):
            return True
        return (self._expire_one(now_ms) or self._evict_one(now_ms)) and self.put(counter, now_ms)

    def put(self, counter: C, now_ms: int = 0) -> bool:
        """Take in a new counter if there is room already; the time may be left out."""
        counters = self._counters
        if len(counters) >= self.max_cells:
            return False
        counters[counter.key] = counter
        self.stats.created += 1
        expires_ms = max(counter.expires_ms, now_ms)
        # As `_file` does, without a call: this is done for every new key.
        slot = self._wheel.get(expires_ms // WHEEL_TICK_MS + 1)
        if slot is None:
            self._file(counter, expires_ms)
        else:
            slot[counter] = None
            counter.wheel_slot = slot
        return True

    def drop(self, key: bytes) -> bool:
        """Let one counter go, whatever it holds. False: there is none."""
        counter = self._counters.get(key)
        if counter is None:
            return False
        self._drop(counter)
        self.stats.restarted += 1
        self.stats.incarnation += 1
        return True

    def sweep(self, now_ms: int, max_steps: int) -> bool:
        """Drop expired counters, looking at no more than `max_steps`; True while more are due."""
        while (slot := self._due(now_ms)) is not None:
            while slot:
                if max_steps <= 0:
                    return True
                max_steps -= 1
                self._expire_or_refile(slot.popitem()[0], now_ms)
        return False

    def _expire_one(self, now_ms: int) -> bool:
        for _ in range(ROOM_STEPS):
            slot = self._due(now_ms)
            if slot is None:
                return False
            if self._expire_or_refile(slot.popitem()[0], now_ms):
                return True
        return False

    def _due(self, now_ms: int) -> dict[C, None] | None:
        """A tick's counters, if its time has come, or None; empty ones are thrown away on the way."""
        while self._ticks and self._ticks[0] <= now_ms // WHEEL_TICK_MS:
            slot = self._wheel[self._ticks[0]]
            if slot:
                return slot
            del self._wheel[heapq.heappop(self._ticks)]
        return None

    def _expire_or_refile(self, counter: C, now_ms: int) -> bool:
        expires_ms = counter.expires_ms
        if expires_ms > now_ms:
            self._file(counter, expires_ms)
            return False
        counter.wheel_slot = None
        del self._counters[counter.key]
        self.stats.expired += 1
        self.stats.incarnation += 1
        return True

    def _evict_one(self, now_ms: int) -> bool:
        """Let the lightest of the least recently used ones go: a flood of new keys must not reset who is at a limit."""
        lightest: C | None = None
        least = DENIES + 1
        for _ in range(min(ROOM_STEPS, len(self._counters))):
            key, counter = next(iter(self._counters.items()))
            if self._evictable is None or self._evictable(counter):
                weight = DENIES if counter.deny_until_ms > now_ms else min(counter.load(now_ms), DENIES - 1)
                if weight < least:
                    lightest, least = counter, weight
                if weight <= LIGHT:
                    break
            self._counters.move_to_end(key)  # in use, or heavy: as good as used just now
        if lightest is None:
            return False
        self._drop(lightest)
        self.stats.evicted += 1
        self.stats.incarnation += 1
        self.stats.evicted_denying += least == DENIES
        return True

    def _drop(self, counter: C) -> None:
        del self._counters[counter.key]
        if counter.wheel_slot is not None:
            counter.wheel_slot.pop(counter, None)
            counter.wheel_slot = None

    def _file(self, counter: C, expires_ms: int) -> None:
        # Rounded up, and so always after the tick that is due: a sweep never meets its own filings.
        tick = expires_ms // WHEEL_TICK_MS + 1
        slot = self._wheel.get(tick)
        if slot is None:
            slot = self._wheel[tick] = {}
            heapq.heappush(self._ticks, tick)
        slot[counter] = None
        counter.wheel_slot = slot
