"""Histograms: plain counts in, what `histogram_quantile` and a collector read out."""

from headgate.telemetry.histogram import Buckets
from headgate.telemetry.metrics import Metrics
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.parser import text_string_to_metric_families

BOUNDS = (0.001, 0.5, 1.0)


def with_histogram(buckets: list[Buckets]) -> Metrics:
    metrics = Metrics(node="n", region="r")
    metrics.counter("headgate_hits", "Hits.", lambda: 5)
    metrics.histogram("headgate_wait_seconds", "Waits.", BOUNDS, lambda: buckets[-1])
    return metrics


def test_prometheus_reads_a_histogram_with_cumulative_buckets() -> None:
    readings = [Buckets([0, 0, 0, 0], 0.0)]
    metrics = with_histogram(readings)
    readings.append(Buckets([4, 0, 2, 1], 6.5))
    _, _, family = text_string_to_metric_families(metrics.render().decode())
    assert (family.name, family.type, family.documentation) == ("headgate_wait_seconds", "histogram", "Waits.")
    assert [(sample.name, sample.labels, sample.value) for sample in family.samples] == [
        ("headgate_wait_seconds_bucket", {"le": "0.001"}, 4),
        ("headgate_wait_seconds_bucket", {"le": "0.5"}, 4),
        ("headgate_wait_seconds_bucket", {"le": "1.0"}, 6),
        ("headgate_wait_seconds_bucket", {"le": "+Inf"}, 7),
        ("headgate_wait_seconds_count", {}, 7),
        ("headgate_wait_seconds_sum", {}, 6.5),
    ]


def test_a_collector_gets_the_same_beside_all_other_metrics() -> None:
    metrics = with_histogram([Buckets([4, 0, 2, 1], 6.5)])
    first, second = (encode_metrics(metrics.snapshot()[0]) for _ in range(2))
    (resource,) = second.resource_metrics
    (scope,) = resource.scope_metrics
    assert [metric.name for metric in scope.metrics] == ["headgate.hits", "headgate.wait"]
    assert [metric.unit for metric in scope.metrics] == ["", "s"]
    assert scope.metrics[0].sum.data_points[0].as_int == 5
    histogram = scope.metrics[1].histogram
    assert histogram.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([4, 0, 2, 1], list(BOUNDS))
    assert (point.count, point.sum, point.HasField("min"), point.HasField("max")) == (7, 6.5, False, False)
    (before,) = first.resource_metrics[0].scope_metrics[0].metrics[1].histogram.data_points
    assert before.start_time_unix_nano == point.start_time_unix_nano <= before.time_unix_nano <= point.time_unix_nano
