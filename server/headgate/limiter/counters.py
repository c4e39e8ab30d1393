"""Cells: what a node keeps per limit key, and the bounded table that holds them.

A window cell holds the current and the previous window of one key together: they are
created and evicted together. A bucket holds one theoretical arrival time. The table
promises never to hold more than `max_cells`: expired cells go first, then the least
recently used, and both are counted. It relies on being used by one thread.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from headgate.limiter.limit import Limit

WHEEL_TICK_MS: Final = 1_000
"""How finely expiry is remembered. Finer costs a bucket per tick; coarser keeps dead cells longer."""

ROOM_STEPS: Final = 16
"""How many cells one insertion into a full table looks at, of the due ones and of the live ones.

Most due cells have expired and most live ones may go, so one step is enough; the bound
keeps an insertion O(1) when all of them are in use."""


class KeyCounter:
    """What every algorithm's cell has: its key, its place in the expiry wheel, its last denial.

    A denial holds until `deny_until_ms` for costs of at least `deny_cost` under the very
    limit `deny_limit`: counts only grow, so nothing but time or a new rule can undo it.
    """

    __slots__ = ("bucket", "deny_cost", "deny_limit", "deny_until_ms", "key")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.bucket: dict[Any, None] | None = None
        self.deny_until_ms = 0
        self.deny_cost = 0
        self.deny_limit: Limit | None = None

    @property
    def expires_ms(self) -> int:
        """From when on the cell is as good as a new one."""
        raise AssertionError("every algorithm's cell says when it expires")


class WindowCounter(KeyCounter):
    """Admitted cost of one limit key in its current window, `sequence`, and in the one before."""

    __slots__ = ("current", "previous", "sequence", "window_ms")

    def __init__(self, key: bytes, window_ms: int, sequence: int) -> None:
        super().__init__(key)
        self.window_ms = window_ms
        self.sequence = sequence
        self.current = 0
        self.previous = 0

    def roll(self, sequence: int) -> None:
        """Go on to a later window; what was current is previous if it has just ended, else gone."""
        self.previous = self.current if sequence == self.sequence + 1 else 0
        self.current = 0
        self.sequence = sequence

    @property
    def expires_ms(self) -> int:
        return (self.sequence + 2) * self.window_ms


class BucketCounter(KeyCounter):
    """The theoretical arrival time of one limit key, in ticks of 1/rate ms (see gcra.py)."""

    __slots__ = ("rate", "tat")

    def __init__(self, key: bytes, rate: int) -> None:
        super().__init__(key)
        self.rate = rate
        self.tat = 0

    @property
    def expires_ms(self) -> int:
        return -(-self.tat // self.rate)


@dataclass(slots=True)
class CounterStats:
    """Plain counters, read by whoever exports them."""

    created: int = 0
    expired: int = 0
    evicted: int = 0

    @property
    def gone(self) -> int:
        return self.expired + self.evicted


C = TypeVar("C", bound=KeyCounter)


class CounterTable(Generic[C]):
    """All live cells, the least recently used first, and a wheel of when each may expire.

    A cell is filed in the wheel once, under its expiry at that time. When that time
    comes and the cell has been used since, it is filed again: using it costs nothing.
    """

    def __init__(self, max_cells: int, evictable: Callable[[C], bool] | None = None) -> None:
        self.max_cells = max_cells
        self.stats = CounterStats()
        self._evictable = evictable
        self._cells: OrderedDict[bytes, C] = OrderedDict()
        # Dicts for sets: they are in order of insertion, so that a run does not depend on where cells lie in memory.
        self._wheel: dict[int, dict[C, None]] = {}
        self._ticks: list[int] = []
        # The request path calls this one directly: a cell, or None.
        self.find = self._cells.get
        self.touch = self._cells.move_to_end

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[C]:
        return iter(self._cells.values())

    def add(self, cell: C, now_ms: int) -> bool:
        """Take in a new cell as the most recently used one, making room where there is none.

        False: there is none to be made, because no cell may go.
        """
        if len(self._cells) >= self.max_cells and not self._expire_one(now_ms) and not self._evict_one():
            return False
        self._cells[cell.key] = cell
        self.stats.created += 1
        self._file(cell, max(cell.expires_ms, now_ms))
        return True

    def sweep(self, now_ms: int, max_steps: int) -> bool:
        """Drop expired cells, looking at no more than `max_steps`; True while more are due."""
        while (bucket := self._due(now_ms)) is not None:
            while bucket:
                if max_steps <= 0:
                    return True
                max_steps -= 1
                self._expire_or_refile(bucket.popitem()[0], now_ms)
        return False

    def _expire_one(self, now_ms: int) -> bool:
        for _ in range(ROOM_STEPS):
            bucket = self._due(now_ms)
            if bucket is None:
                return False
            if self._expire_or_refile(bucket.popitem()[0], now_ms):
                return True
        return False

    def _due(self, now_ms: int) -> dict[C, None] | None:
        """A non-empty bucket whose time has come, or None; empty ones are thrown away on the way."""
        while self._ticks and self._ticks[0] <= now_ms // WHEEL_TICK_MS:
            bucket = self._wheel[self._ticks[0]]
            if bucket:
                return bucket
            del self._wheel[heapq.heappop(self._ticks)]
        return None

    def _expire_or_refile(self, cell: C, now_ms: int) -> bool:
        expires_ms = cell.expires_ms
        if expires_ms > now_ms:
            self._file(cell, expires_ms)
            return False
        cell.bucket = None
        del self._cells[cell.key]
        self.stats.expired += 1
        return True

    def _evict_one(self) -> bool:
        for _ in range(ROOM_STEPS):
            key, cell = next(iter(self._cells.items()))
            if self._evictable is None or self._evictable(cell):
                del self._cells[key]
                if cell.bucket is not None:
                    cell.bucket.pop(cell, None)
                    cell.bucket = None
                self.stats.evicted += 1
                return True
            self._cells.move_to_end(key)  # in use: as good as used just now
        return False

    def _file(self, cell: C, expires_ms: int) -> None:
        # Rounded up, and so always after the tick that is due: a sweep never meets its own filings.
        tick = expires_ms // WHEEL_TICK_MS + 1
        bucket = self._wheel.get(tick)
        if bucket is None:
            bucket = self._wheel[tick] = {}
            heapq.heappush(self._ticks, tick)
        bucket[cell] = None
        cell.bucket = bucket
