"""Resets of limit keys, and what a node remembers of them, apart from its counters.

A reset is a number in the key's record, higher than any before it. A report, an answer and another region's component
carry the number that they belong to; lower ones count nothing. So nothing from before a reset comes back with a late
report, a refill or a peer. A shard that lost its memory has lost the number, too: it is taught again by whoever heard
of it, whether or not that node still has a counter of the key. (docs/convergence.md, section 11.)
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headgate.limiter.limit import Algorithm, Limit
from headgate.origin.names import exchange_name
from headgate.origin.protocol import BucketReport, Report, WindowReport

MOST_RESETS: Final = 10_000
"""Remembered at once; of more, the one that was heard of first is forgotten. A few megabytes."""
WINDOWS_REMEMBERED: Final = 2
"""Windows of its key for which one is remembered: nothing from before it can matter any longer than that."""
LEAST_REMEMBERED_MS: Final = 20_000
"""The least time, for keys with short windows: longer than a node may be cut off and still report what it admitted."""


@dataclass(frozen=True, slots=True)
class Reset:
    """One reset of one key: enough to tell a shard of it."""

    key: bytes
    place: bytes
    """The bytes that choose the shard."""
    limit: Limit
    number: int
    until_ms: int
    """Time by which it no longer matters, in the shard's time."""

    def report(self, component: bytes, number: int) -> Report:
        """Return a report that tells a shard of it: of nothing that belongs to this reset."""
        limit = self.limit
        if limit.algorithm is Algorithm.GCRA:
            return BucketReport(
                self.key, component, number, 0, 0, limit.requests_per_unit, limit.window_ms, limit.burst,
                limit.precision, True, 0, 0, 0, 0, 0, 0, limit.debt, self.number,
            )  # fmt: skip
        name = exchange_name(self.key, self.place, limit.window_ms) if limit.publish_at else b""
        return WindowReport(
            self.key, component, number, 0, 0, limit.requests_per_unit, limit.window_ms, limit.precision,
            limit.algorithm is Algorithm.SLIDING_WINDOW, True, (), limit.publish_at, name, reset=self.number,
        )  # fmt: skip


class Resets:
    """The resets that a node has heard of lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Reset] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def number_of(self, key: bytes) -> int:
        """Return the highest number that is known of a key; 0 if none is."""
        known = self._known.get(key)
        return 0 if known is None else known.number

    def hear(self, key: bytes, place: bytes, limit: Limit, number: int, now_ms: int) -> bool:
        """Remember one. False: it was known, or a later one is."""
        if number <= self.number_of(key):
            return False
        until_ms = now_ms + max(LEAST_REMEMBERED_MS, WINDOWS_REMEMBERED * limit.window_ms)
        self._known[key] = Reset(key, place, limit, number, until_ms)
        while len(self._known) > MOST_RESETS:
            self._known.popitem(last=False)
        return True

    def live(self, now_ms: int) -> Iterator[Reset]:
        """Yield the resets that still matter; forget the others."""
        for reset in [known for known in self._known.values() if known.until_ms <= now_ms]:
            del self._known[reset.key]
        yield from self._known.values()
