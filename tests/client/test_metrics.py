"""Counters as Prometheus and OpenTelemetry collect them."""

from headgate_client.metrics.opentelemetry import instrument
from headgate_client.metrics.prometheus import HeadgateCollector
from headgate_client.testing import FakeServer
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from tests.client.support import Make


def used(make_fake: Make, server: FakeServer) -> Make:
    """A client with something of everything."""
    client = make_fake()
    for _ in range(7):
        client.check(user="alice")
    held = client.reserve(estimate=2, user="carol")
    server.fail()
    for _ in range(6):
        client.check(user="bob")
    client.settle(held.id, 1)
    client._core.denials.dropped = 3
    return client  # type: ignore[return-value]


def test_prometheus(make_fake: Make, headgate_server: FakeServer) -> None:
    registry = CollectorRegistry()
    registry.register(HeadgateCollector(used(make_fake, headgate_server), "search", other=make_fake()))  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    for line in (
        'headgate_client_calls_total{client="search",outcome="allowed"} 6.0',
        'headgate_client_calls_total{client="search",outcome="denied_from_memory"} 1.0',
        'headgate_client_calls_total{client="search",outcome="failed_open"} 6.0',
        'headgate_client_calls_total{client="other",outcome="failed_open"} 0.0',
        'headgate_client_errors_total{client="search",status="UNAVAILABLE"} 5.0',
        'headgate_client_errors_total{client="search",status="BREAKER_OPEN"} 2.0',
        'headgate_client_unsettled_total{client="search"} 1.0',
        'headgate_client_no_rule_total{client="search"} 0.0',
        'headgate_client_denials_dropped_total{client="search"} 3.0',
        'headgate_client_reachable{client="search"} 0.0',
        'headgate_client_reachable{client="other"} 1.0',
    ):
        assert f"\n{line}\n" in text


def test_opentelemetry(make_fake: Make, headgate_server: FakeServer) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    instrument(used(make_fake, headgate_server), "search", meter=provider.get_meter("test"))  # type: ignore[arg-type]
    data = reader.get_metrics_data()
    assert data is not None
    seen = {
        (metric.name, *sorted(map(str, dict(point.attributes or {}).values()))): point.value  # type: ignore[union-attr]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert seen["headgate_client_calls", "allowed", "search"] == 6
    assert seen["headgate_client_calls", "failed_open", "search"] == 6
    assert seen["headgate_client_errors", "UNAVAILABLE", "search"] == 5
    assert seen["headgate_client_unsettled", "search"] == 1
    assert seen["headgate_client_no_rule", "search"] == 0
    assert seen["headgate_client_denials_dropped", "search"] == 3
    assert seen["headgate_client_reachable", "search"] == 0
    provider.shutdown()
