"""Readings as OpenTelemetry's data, for its exporter.

Names and units follow its conventions: `headgate_origin_wait_seconds` is `headgate.origin_wait`
in `s`. A collector that speaks to Prometheus makes the first of the second again, so
queries and dashboards are the same on both ways.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from opentelemetry.sdk.metrics import Exemplar as OtelExemplar
from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from headgate.telemetry.histogram import Buckets, Exemplar
from headgate.telemetry.instrument import Instrument, InstrumentKind

PARTS_PER_MESSAGE: Final = 10
"""Parts, each made in one step of the loop, that are joined to a message: about 2,000 points, under a megabyte."""

SCOPE: Final = InstrumentationScope("headgate")

CONVENTIONAL: Final = {
    "process_cpu_seconds": "process.cpu.time",
    "process_resident_memory_bytes": "process.memory.usage",
    "process_virtual_memory_bytes": "process.memory.virtual",
    "process_open_fds": "process.open_file_descriptor.count",
}
"""Names of process metrics that differ between OpenTelemetry's conventions and Prometheus'."""

_SUFFIX: Final = {"s": "_seconds", "By": "_bytes"}


def otel_name(instrument: Instrument) -> str:
    """The name by OpenTelemetry's conventions."""
    if instrument.name in CONVENTIONAL:
        return CONVENTIONAL[instrument.name]
    space, _, rest = instrument.name.partition("_")
    return f"{space}.{rest.removesuffix(_SUFFIX.get(instrument.unit, ' '))}"


def parts(
    instruments: Iterable[Instrument], resource: Resource, start_ns: int, series: int
) -> Iterator[otel.MetricsData]:
    """All readings, in parts of about `series` series each; one instrument may be in several."""
    metrics: list[otel.Metric] = []
    room = series
    for instrument in instruments:
        points: list[Any] = []
        for reading, labels in instrument.read():
            points.append(_point(instrument, reading, dict(labels), start_ns))
            room -= 1
            if room <= 0:
                metrics.append(_metric(instrument, points))
                yield _message(metrics, resource)
                metrics, points, room = [], [], series
        if points:
            metrics.append(_metric(instrument, points))
    if metrics:
        yield _message(metrics, resource)


def messages(pieces: Sequence[otel.MetricsData]) -> Iterator[otel.MetricsData]:
    """Join parts to fewer, larger messages: a collector takes a thousand points as easily as a hundred."""
    for first in range(0, len(pieces), PARTS_PER_MESSAGE):
        resources = [piece.resource_metrics[0] for piece in pieces[first : first + PARTS_PER_MESSAGE]]
        metrics = [metric for resource in resources for metric in resource.scope_metrics[0].metrics]
        yield _message(metrics, resources[0].resource)


def _message(metrics: list[otel.Metric], resource: Resource) -> otel.MetricsData:
    return otel.MetricsData([otel.ResourceMetrics(resource, [otel.ScopeMetrics(SCOPE, metrics, "")], "")])


def _metric(instrument: Instrument, points: list[Any]) -> otel.Metric:
    data: Any
    if instrument.kind is InstrumentKind.HISTOGRAM:
        data = otel.Histogram(points, otel.AggregationTemporality.CUMULATIVE)
    elif instrument.kind is InstrumentKind.COUNTER:
        data = otel.Sum(points, otel.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = otel.Gauge(points)
    return otel.Metric(otel_name(instrument), instrument.description, instrument.unit, data)


def _point(instrument: Instrument, reading: Any, attributes: dict[str, str], start_ns: int) -> Any:
    now_ns = time.time_ns()
    if not isinstance(reading, Buckets):
        return otel.NumberDataPoint(attributes, start_ns, now_ns, reading)
    unknown: Any = None  # the format allows it: the smallest and the largest value are not kept
    return otel.HistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=start_ns,
        time_unix_nano=now_ns,
        count=sum(reading.counts),
        sum=reading.total,
        bucket_counts=list(reading.counts),
        explicit_bounds=list(instrument.bounds),
        min=unknown,
        max=unknown,
        exemplars=[_exemplar(exemplar) for exemplar in reading.exemplars if exemplar is not None],
    )


def _exemplar(exemplar: Exemplar) -> OtelExemplar:
    at_ns = int(exemplar.at_s * 1e9)
    return OtelExemplar({}, exemplar.value, at_ns, int(exemplar.span_id, 16), int(exemplar.trace_id, 16))
