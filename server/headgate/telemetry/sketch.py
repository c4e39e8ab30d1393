"""Most frequent names of a stream in bounded memory: a Misra–Gries summary, fed in batches.

It keeps up to `size` names. When a batch brings more, the count of the first that does not fit is subtracted from all,
and names without a rest are dropped (Agarwal and others, Mergeable Summaries, 2012). So a count is never too high, and
too low by `error` at most; `error` is at most the number of all events ÷ (size + 1), and 0 while there are no more than
`size` names. A name with more than that share of the events is certainly there.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from heapq import nlargest
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)


class Sketch(Generic[N]):
    """The most frequent names of a stream."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.error = 0
        """Most by which a count may be too low."""
        self.counts: Counter[N] = Counter()

    def take(self, batch: Iterable[N]) -> None:
        """Count each of them."""
        self.counts.update(batch)
        if len(self.counts) > self.size:
            cut = nlargest(self.size + 1, self.counts.values())[-1]
            self.counts = Counter({name: count - cut for name, count in self.counts.items() if count > cut})
            self.error += cut


class Recent(Generic[N]):
    """The most frequent names of the last one to two periods: what is older is forgotten."""

    def __init__(self, size: int, period_s: float) -> None:
        self._size = size
        self._period_s = period_s
        self._now: Sketch[N] = Sketch(size)
        self._before: Sketch[N] = Sketch(size)
        self._began_s = float("-inf")

    def take(self, batch: Iterable[N], now_s: float) -> None:
        """Count each of them, as of `now_s` (monotonic)."""
        self.forget_old(now_s)
        self._now.take(batch)

    def forget_old(self, now_s: float) -> None:
        """Forget what is older than two periods."""
        if now_s - self._began_s < self._period_s:
            return
        late = now_s - self._began_s >= 2 * self._period_s
        self._before = Sketch(self._size) if late else self._now
        self._now, self._began_s = Sketch(self._size), now_s

    @property
    def error(self) -> int:
        """Most by which a count may be too low."""
        return self._now.error + self._before.error

    def most(self, number: int) -> list[tuple[N, int]]:
        """The most frequent ones, the first first."""
        return (self._now.counts + self._before.counts).most_common(number)
