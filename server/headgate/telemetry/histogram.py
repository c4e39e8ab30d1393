"""Histograms that are read and not recorded: the part that counts keeps plain numbers per bucket, and their sum.

OpenTelemetry has observable counters and gauges, and no observable histogram; so does
Prometheus' library. Here a histogram is a row of numbers like any other reading.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One value, and the trace in which it was measured."""

    value: float
    trace_id: str
    span_id: str
    at_s: float
    """Unix time in seconds."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram's counts at one moment."""

    counts: Sequence[int]
    """Number of values in each bucket alone: one per bound, and one for values above the last bound."""
    total: float
    """The sum of all values."""
    exemplars: Sequence[Exemplar | None] = field(default=())
    """One per bucket, the newest; none where nothing is traced."""


class HistogramCounts:
    """Counts values by their buckets. One thread writes; who reads sees each number whole."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        self._exemplars: list[Exemplar | None] = [None] * len(self.counts)

    def add(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def example(self, exemplar: Exemplar) -> None:
        """Keep the trace of a value that was counted."""
        self._exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar

    def read(self) -> Buckets:
        """The counts of this moment."""
        return Buckets(tuple(self.counts), self.total, tuple(self._exemplars))
