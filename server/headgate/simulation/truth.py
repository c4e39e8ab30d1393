"""The true counts of an observer who sees everything: what was admitted and charged, in which cell, by which run.

A cell's truth is the sum, over all components that ever were, of what each admitted or was charged, whichever is more,
and of the counts of other regions. No node and no shard may ever believe more; the committed cost is measured against
the limit by the algorithm's own rule.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.limiter.limit import Algorithm, Limit


@dataclass(slots=True)
class CellTruth:
    """One window of one key."""

    components: dict[bytes, int] = field(default_factory=dict)
    total: int = 0
    committed: int = 0
    foreign: dict[bytes, int] = field(default_factory=dict)
    refunds: dict[bytes, int] = field(default_factory=dict)
    """Most that a shard has ever refunded to each component."""
    refunded: int = 0

    def note_refund(self, component: bytes, value: int) -> None:
        """Raise the refunds of a component to a value."""
        known = self.refunds.get(component, 0)
        if value > known:
            self.refunds[component] = value
            self.refunded += value - known

    def raise_to(self, component: bytes, value: int) -> None:
        known = self.components.get(component, 0)
        if value > known:
            self.components[component] = value
            self.total += value - known

    def subtract(self, component: bytes, value: int) -> None:
        """Subtract a cost that was admitted in another window; the cost that the shard has charged here since stays."""
        moved = min(value, self.components.get(component, 0))
        if moved:
            self.components[component] -= moved
            self.total -= moved

    @property
    def abroad(self) -> int:
        return sum(self.foreign.values())


@dataclass(slots=True)
class BucketTruth:
    """One bucket: the arrival time that all charges and commits together make, in ticks of 1/rate ms.

    Credit counts when it is charged, not when it is spent: it has drained from then on. Beside it
    stands what admissions alone make, each when it was made.
    """

    rate: int
    tat: int = 0
    admitted: int = 0
    has_refunds: bool = False
    """True once anything was refunded."""
    owed: int = 0
    """Refunded cost that no request has used again, in ticks."""
    components: dict[bytes, int] = field(default_factory=dict)
    clean: bool = True
    """False from a disturbance on, until the bucket is full again."""
    disturbed_ms: int = 0

    def disturb(self, now_ms: int) -> None:
        self.clean, self.disturbed_ms = False, now_ms

    def raise_to(self, component: bytes, value: int, limit: Limit, now_ms: int) -> int:
        """Raise a component's total; return by how many ticks the bucket is now above its capacity and `P`, 0 if
        nothing was added.
        """
        cost = value - self.components.get(component, 0)
        if cost <= 0:
            return 0
        self.components[component] = value
        self._restate(limit)
        now = now_ms * self.rate
        # A refund empties a bucket before the admissions that it is for have drained.
        if max(self.tat, self.admitted if self.has_refunds else 0) <= now and now_ms > self.disturbed_ms:
            self.clean = True
        self.tat = max(self.tat, now) + cost * limit.window_ms
        return self.tat - now - (limit.burst + limit.precision) * limit.window_ms

    def admit(self, cost: int, limit: Limit, now_ms: int) -> int:
        """Count an admission; return by how many ticks admissions alone are now above its capacity and `P`."""
        self._restate(limit)
        now = now_ms * self.rate
        owed = min(self.owed, cost * limit.window_ms)
        self.owed -= owed
        self.admitted = max(self.admitted, now) + cost * limit.window_ms - owed
        return self.admitted - now - (limit.burst + limit.precision) * limit.window_ms

    def refund(self, cost: int, limit: Limit, now_ms: int) -> None:
        """Refund a cost, at most the cost in use. The part that is not admitted so far is owed to later admissions."""
        self.has_refunds = True
        now = now_ms * self.rate
        before = self.tat
        self.tat = max(min(self.tat, now), self.tat - cost * limit.window_ms)
        refunded, used = before - self.tat, max(0, self.admitted - now)
        self.admitted -= min(refunded, used)
        self.owed += refunded - min(refunded, used)

    def _restate(self, limit: Limit) -> None:
        rate = max(1, limit.requests_per_unit)
        if rate != self.rate:
            self.tat, self.admitted = -(-self.tat * rate // self.rate), -(-self.admitted * rate // self.rate)
            self.rate = rate


class Excess(NamedTuple):
    """Count above limit and `P` in one cell: wrong, unless something had disturbed it."""

    key: bytes
    sequence: int
    window_ms: int
    at_s: float
    what: str


class Truth:
    """True counts of every key, as one observer who sees all shards would count them."""

    def __init__(self) -> None:
        self.cells: defaultdict[tuple[bytes, int], CellTruth] = defaultdict(CellTruth)
        self.buckets: dict[bytes, BucketTruth] = {}
        self.excesses: dict[tuple[bytes, int], Excess] = {}
        self.resets: dict[bytes, int] = {}
        """The latest reset of each key that was ever reset: what stands here is of since then."""
        self._disturbed: defaultdict[bytes | int, list[tuple[int, int]]] = defaultdict(list)

    def reset(self, key: bytes, number: int) -> bool:
        """Forget the cells of a key that was reset; false if that reset was known."""
        if number <= self.resets.get(key, 0):
            return False
        self.resets[key] = number
        for cell in [cell for cell in self.cells if cell[0] == key]:
            del self.cells[cell]
        return True

    def is_of_now(self, key: bytes, reset: int) -> bool:
        """Return true if a count of this reset of a key matters: false before the latest reset."""
        return reset < 0 or reset >= self.resets.get(key, 0)

    def effective(self, key: bytes, limit: Limit, now_ms: int, refunded: Callable[[int], int]) -> int:
        """True count at a time by the window's own rule, less the cost `refunded` in each cell."""
        sequence = now_ms // limit.window_ms
        current, previous = self.cells.get((key, sequence)), self.cells.get((key, sequence - 1))
        effective = current.total + current.abroad - refunded(sequence) if current else 0
        if limit.algorithm is Algorithm.SLIDING_WINDOW and previous:
            left_ms = limit.window_ms - now_ms % limit.window_ms
            effective += (previous.total + previous.abroad - refunded(sequence - 1)) * left_ms // limit.window_ms
        return effective

    def commit(self, key: bytes, limit: Limit, sequence: int, cost: int, time_ms: int, at_s: float) -> None:
        """Count it, and measure. It was at the latest when its cell ended, however late its reply."""
        window_ms = limit.window_ms
        actual = self.cells[key, sequence]
        actual.committed += cost
        effective = actual.committed - actual.refunded
        if limit.algorithm is Algorithm.SLIDING_WINDOW and (previous := self.cells.get((key, sequence - 1))):
            start_ms = sequence * window_ms
            time_ms = max(start_ms, min(time_ms, start_ms + window_ms - 1))
            left = previous.committed - previous.refunded
            effective += left * (window_ms - time_ms % window_ms) // window_ms
        allowed = limit.requests_per_unit + limit.precision
        if limit.overdraft:
            return  # what is over is charged all the same
        if effective > allowed and (key, sequence) not in self.excesses:
            what = f"{key.decode()}: {effective} kept of {limit.requests_per_unit} with P {limit.precision}"
            self.excesses[key, sequence] = Excess(key, sequence, window_ms, at_s, what)

    def disturb(self, where: bytes | int, from_ms: int, to_ms: int) -> None:
        """A key or a shard was not healthy, in its own time."""
        spans = self._disturbed[where]
        if spans and spans[-1][0] <= from_ms <= spans[-1][1] + 20:
            spans[-1] = (spans[-1][0], max(to_ms, spans[-1][1]))  # the same trouble goes on
        else:
            spans.append((from_ms, to_ms))

    def healthy(self, key: bytes, shard: int, sequence: int, window_ms: int) -> bool:
        """Return true if nothing disturbed this window or the one before."""
        start_ms, end_ms = (sequence - 1) * window_ms, (sequence + 1) * window_ms
        return not any(
            from_ms < end_ms and to_ms >= start_ms
            for where in (key, shard)
            for from_ms, to_ms in self._disturbed.get(where, ())
        )
