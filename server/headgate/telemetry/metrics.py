"""Metrics that cost the request path nothing, with a number of series that is known beforehand.

Whoever counts keeps plain integers; an instrument is a name, a help text and a
function that reads them when somebody scrapes. Labels take their values from fixed
sets (outcomes, paths, reasons), never from requests. The registry is private: what
other libraries put into the global one does not appear here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from headgate import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST

Reading = int | float
Labels = Mapping[str, str]
ReadOne = Callable[[], Reading]
ReadMany = Callable[[], Iterable[tuple[Reading, Labels]]]


class Metrics:
    """The process's instruments and how a scrape reads them."""

    def __init__(self, *, node: str, region: str) -> None:
        """`node` and `region` are in a snapshot, in OpenTelemetry's words; who scrapes knows whom it asks."""
        self._registry = CollectorRegistry()
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
        self._meter.create_observable_counter(name, [_callback(read)], description=description)

    def gauge(self, name: str, description: str, read: ReadOne) -> None:
        """A value that goes up and down."""
        self.labelled_gauge(name, description, lambda: [(read(), {})])

    def labelled_gauge(self, name: str, description: str, read: ReadMany) -> None:
        self._meter.create_observable_gauge(name, [_callback(read)], description=description)

    def render(self) -> bytes:
        """All series in the Prometheus text format."""
        return generate_latest(self._registry)

    def snapshot(self) -> Any:
        """All series as OpenTelemetry's data, for an exporter."""
        return self._pushed.get_metrics_data()

    def close(self) -> None:
        self._provider.shutdown()


def _callback(read: ReadMany) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: Any) -> list[Observation]:
        return [Observation(value, dict(labels)) for value, labels in read()]

    return observe
