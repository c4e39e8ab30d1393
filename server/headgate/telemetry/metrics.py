"""Metrics that cost the request path nothing, with a number of series that is known beforehand.

Whoever counts keeps plain integers; an instrument is a name, a help text and a
function that reads them when somebody scrapes. Labels take their values from fixed
sets (outcomes, paths, reasons), never from requests. The registry is private: what
other libraries put into the global one does not appear here.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from headgate import __version__
from headgate.telemetry.histogram import Buckets, Histogram, HistogramCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST

Reading = int | float
Labels = Mapping[str, str]
ReadOne = Callable[[], Reading]
ReadMany = Callable[[], Iterable[tuple[Reading, Labels]]]


class Metrics:
    """The metrics of one process: parts register functions that read numbers, scrapes and pushes call them."""

    def __init__(self, *, node: str, region: str) -> None:
        """`node` and `region` are attributes of what is pushed. A scrape has neither: a scraper names whom it asks."""
        self._registry = CollectorRegistry()
        self._histograms: list[Histogram] = []
        self._registry.register(HistogramCollector(self._histograms))
        self._start_ns = time.time_ns()
        scraped = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self._registry)
        self._pushed = InMemoryMetricReader()
        resource = Resource(
            {
                "service.name": "headgate",
                "service.version": __version__,
                "service.instance.id": node,
                "headgate.region": region,
            }
        )
        self._provider = MeterProvider([scraped, self._pushed], resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("headgate")

    def counter(self, name: str, description: str, read: ReadOne) -> None:
        """A total that only grows; exported as `name_total`."""
        self.labelled_counter(name, description, lambda: [(read(), {})])

    def labelled_counter(self, name: str, description: str, read: ReadMany) -> None:
        """A total that only grows for each set of labels; exported as `name_total`."""
        self._meter.create_observable_counter(name, [_callback(read)], description=description)

    def gauge(self, name: str, description: str, read: ReadOne) -> None:
        """A value that goes up and down."""
        self.labelled_gauge(name, description, lambda: [(read(), {})])

    def labelled_gauge(self, name: str, description: str, read: ReadMany) -> None:
        """A value that goes up and down for each set of labels."""
        self._meter.create_observable_gauge(name, [_callback(read)], description=description)

    def histogram(self, name: str, description: str, bounds: Sequence[float], read: Callable[[], Buckets]) -> None:
        """How values spread over buckets; exported as `name_bucket{le}`, `name_count` and `name_sum`."""
        self._histograms.append(Histogram(name, description, bounds, read))

    def render(self) -> bytes:
        """All series in the Prometheus text format."""
        return generate_latest(self._registry)

    def snapshot(self) -> Any:
        """All series as OpenTelemetry's data, for an exporter."""
        data = self._pushed.get_metrics_data()
        return self._with_histograms(data) if data is not None and self._histograms else data

    def close(self) -> None:
        self._provider.shutdown()

    def _with_histograms(self, data: MetricsData) -> MetricsData:
        """The SDK's data of its one resource and one scope, with our histograms among the scope's metrics."""
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        now_ns = time.time_ns()
        metrics = [*scope.metrics, *(histogram.metric(self._start_ns, now_ns) for histogram in self._histograms)]
        scope = dataclasses.replace(scope, metrics=metrics)
        return MetricsData([dataclasses.replace(resource, scope_metrics=[scope])])


def _callback(read: ReadMany) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: Any) -> list[Observation]:
        return [Observation(value, dict(labels)) for value, labels in read()]

    return observe
