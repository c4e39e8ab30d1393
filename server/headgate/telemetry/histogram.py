"""Histograms that are read and not recorded: whoever counts keeps plain numbers per bucket, and their sum.

OpenTelemetry has observable counters and gauges, and no observable histogram. So a
histogram is rendered here twice, from one reading: for a Prometheus registry as a
collector's family, for an OpenTelemetry exporter as a data point of cumulative counts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from opentelemetry.sdk.metrics.export import AggregationTemporality, HistogramDataPoint, Metric
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram's counts at one moment."""

    counts: Sequence[int]
    """How many values lie in each bucket alone: one per bound, and one for values above the last bound."""
    total: float
    """The sum of all values."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """One histogram without labels: its name, its upper bounds in rising order, and what reads its counts."""

    name: str
    description: str
    bounds: Sequence[float]
    read: Callable[[], Buckets]

    def family(self) -> HistogramMetricFamily:
        """For Prometheus: `name_bucket{le}`, each with all that lies below its bound, `name_count` and `name_sum`."""
        buckets = self.read()
        names = [*map(floatToGoString, self.bounds), "+Inf"]
        cumulative = list(zip(names, accumulate(buckets.counts), strict=True))
        return HistogramMetricFamily(self.name, self.description, buckets=cumulative, sum_value=buckets.total)

    def metric(self, start_ns: int, now_ns: int) -> Metric:
        """For OpenTelemetry: counts since `start_ns`, per bucket."""
        buckets = self.read()
        unknown: Any = None  # the format allows it: nobody keeps the smallest and the largest value
        point = HistogramDataPoint(
            attributes={},
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            count=sum(buckets.counts),
            sum=buckets.total,
            bucket_counts=list(buckets.counts),
            explicit_bounds=list(self.bounds),
            min=unknown,
            max=unknown,
        )
        return Metric(self.name, self.description, "", HistogramData([point], AggregationTemporality.CUMULATIVE))


class HistogramCollector(Collector):
    """Gives a Prometheus registry the families of all histograms in a list that may grow."""

    def __init__(self, histograms: Iterable[Histogram]) -> None:
        self._histograms = histograms

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """Nothing is known when it is registered, and nothing may be read then."""
        return []

    def collect(self) -> Iterable[HistogramMetricFamily]:
        return [histogram.family() for histogram in self._histograms]
