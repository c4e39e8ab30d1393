"""Metrics pushed to a collector; and what a bad collector does to decisions, which is nothing."""

import re
import time
from pathlib import Path

import pytest
from headgate.telemetry import otlp
from headgate.telemetry.metrics import Metrics
from headgate_client import Client
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.support.collector import Collector, attributes_of
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import redis_shards, shards_url
from tests.support.waiting import PATIENCE_S, wait_until

BULK = [{"bulk": "x"}]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules")


def pushes(headgate: Headgate) -> dict[str, int]:
    text = headgate.get("/metrics").body.decode()
    found = re.findall(r'^headgate_otlp_pushes_total{result="(\w+)"} (\S+)$', text, re.MULTILINE)
    return {result: int(float(count)) for result, count in found}


def waits(push: ExportMetricsServiceRequest) -> int:
    """How many requests of one process have waited for the origin."""
    metrics = push.resource_metrics[0].scope_metrics[0].metrics
    found = [metric.histogram for metric in metrics if metric.name == "headgate.origin_wait"]
    return sum(point.count for histogram in found for point in histogram.data_points)


def test_a_collector_gets_the_metrics_and_whose_they_are(rules: Path) -> None:
    with Collector() as collector:
        flags = ("--otlp-endpoint", collector.url, "--otlp-interval-s", "0.1", "--region", "eu", "--node-id", "n-1")
        with serve(rules, *flags) as headgate, Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
            for _ in range(7):
                client.should_rate_limit("edge", BULK)
            wait_until(lambda: bool(collector.pushes) and collector.value("headgate.decisions") == 7, "the seven")
            assert set(collector.paths) == {"/v1/metrics"}
            told = attributes_of(collector.pushes[-1])
            assert {name: value for name, value in told.items() if not name.startswith("telemetry.sdk.")} == {
                "service.name": "headgate",
                "service.version": headgate.get("/version").json()["version"],
                "service.instance.id": "n-1",
                "headgate.region": "eu",
            }
            assert pushes(headgate)["sent"] >= 1
            # A scrape has the same figures, whether or not anything is pushed.
            assert b'headgate_decisions_total{outcome="admitted",path="local"} 7.0' in headgate.get("/metrics").body


def test_the_last_figures_are_pushed_when_the_process_ends(rules: Path) -> None:
    with Collector() as collector:
        flags = ("--otlp-endpoint", f"{collector.url}/own/path", "--otlp-interval-s", "3600", "--drain-s", "0")
        with serve(rules, *flags) as headgate:
            with Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
                client.should_rate_limit("edge", BULK)
            assert headgate.stop() == 0
        assert collector.paths == ["/own/path"], "as it was given"
        assert collector.value("headgate.decisions") == 1


@pytest.mark.parametrize("behaviour", ["stalls", "errors", "refuses"])
def test_a_bad_collector_is_not_noticed(behaviour: str, rules: Path) -> None:
    with Collector(behaviour) as collector:
        flags = ("--otlp-endpoint", collector.url, "--otlp-interval-s", "0.1", "--drain-s", "0")
        with serve(rules, *flags) as headgate, Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
            # The exporter holds on to its first snapshot: it waits, or tries again and again.
            wait_until(lambda: pushes(headgate)["skipped"] >= 3, "snapshots that were skipped")
            assert pushes(headgate)["sent"] == 0
            for _ in range(200):
                assert client.should_rate_limit("edge", BULK).admitted
            wait_until(lambda: pushes(headgate)["skipped"] >= 6, "it to be still so")
            client.close()
            assert headgate.stop() == 0


async def test_closing_does_not_wait_for_a_collector_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "SEND_TIMEOUT_S", 10 * PATIENCE_S)
    metrics = Metrics(node="n", region="eu")
    metrics.gauge("headgate_test", "Something to push.", lambda: 1)
    with Collector("stalls") as collector:
        push = otlp.MetricsPush(collector.url, 3600, metrics.snapshots)
        await push.push()
        wait_until(lambda: collector.connections == 1, "an export that stalls")
        began_s = time.monotonic()
        push.close()
        assert time.monotonic() - began_s < PATIENCE_S


def test_every_worker_pushes_and_so_does_their_supervisor(rules: Path) -> None:
    with Collector() as collector, redis_shards(1) as servers:
        flags = ("--otlp-endpoint", collector.url, "--otlp-interval-s", "0.1", "--node-id", "n", "--workers", "2")
        with serve(rules, *flags, "--origin", shards_url(servers), "--drain-s", "0") as headgate:

            def instances() -> set[str]:
                """Without what makes each run of a worker another one."""
                found = {attributes_of(push)["service.instance.id"] for push in list(collector.pushes)}
                return {re.sub("-[0-9a-f]{8}$", "", instance) for instance in found}

            wait_until(lambda: instances() == {"n", "n-w0", "n-w1"}, "all three")
            with Client(headgate.grpc, timeout_s=10) as client:
                client.should_rate_limit("edge", BULK)
            wait_until(lambda: 1 in map(waits, list(collector.pushes)), "the cold request's wait in a histogram")
            assert headgate.stop() == 0
