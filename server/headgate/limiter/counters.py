"""Counters: what a node keeps of one limit key.

A cell is one limit key in one window. A window's counter holds two of them, the current
and the previous cell of its key: they are created and dropped together. A bucket's counter
holds one theoretical arrival time.
"""

from typing import Protocol

from headgate.limiter.limit import Limit
from headgate.limiter.links import Link


class KeyCounter(Link):
    """Base of every algorithm's counter: its key, its last denial, and its links in the table that holds it.

    A denial holds until `deny_until_ms` for costs of at least `deny_cost` under the very
    limit `deny_limit`: counts only grow, so nothing but time or a new rule can undo it.
    """

    __slots__ = ("deny_cost", "deny_limit", "deny_until_ms", "key", "limit")

    def __init__(self, key: bytes, limit: Limit) -> None:
        self.key = key
        self.limit = limit
        """The rule's limit when the counter was made, or later."""
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
