"""Traces from end to end: a caller's context in the metadata, a span at the collector, its id on the histogram."""

import contextlib
from collections import Counter
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import MessageToJson
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

from tests.support.collector import Collector
from tests.support.decision_log import decisions
from tests.support.headgate import RULES, Headgate, http_request, run, serve, write_rules
from tests.support.redis_servers import redis_shards, shards_url
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.workers import scrape

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def ask(address: str, flags: str, *, user: str = "alice") -> None:
    entry = RateLimitDescriptor.Entry(key="user", value=user)
    request = RateLimitRequest(domain="edge", descriptors=[RateLimitDescriptor(entries=[entry])] if user else [])
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        metadata = (("traceparent", f"00-{TRACE}-{PARENT}-{flags}"),)
        call(request.SerializeToString(), timeout=PATIENCE_S, metadata=metadata)


def by_path(headgate: Headgate) -> Counter[str]:
    """How many decisions each path has made."""
    decided = Counter[str]()
    for (name, labels), value in scrape(headgate).items():
        if name == "headgate_decisions_total":
            decided[dict(labels)["path"]] += int(value)
    return decided


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_a_callers_trace_goes_on_here(transport: str, tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules")
    with Collector() as collector, redis_shards(1) as servers:
        flags = ("--otlp-endpoint", collector.url, "--traces", "true", "--trace-share", "0", "--transport", transport)
        with serve(rules, *flags, "--origin", shards_url(servers), "--drain-s", "0") as headgate:
            for _ in range(6):
                ask(headgate.grpc, "01")
            ask(headgate.grpc, "00")
            with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
                ask(headgate.grpc, "00", user="")
            wait_until(lambda: len(collector.spans) == 7, "six that are sampled, and the one that failed")
            accept = {"Accept": "application/openmetrics-text"}
            text = http_request(headgate.http, "GET", "/metrics", None, accept).body.decode()
            assert f'# {{trace_id="{TRACE}",span_id="' in text
            decided = by_path(headgate)
            assert headgate.stop() == 0
    *spans, failed = sorted(collector.spans, key=lambda span: span.status.code)
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in collector.spans} == {(TRACE, PARENT)}
    told = [{item.key: item.value.string_value for item in span.attributes} for span in spans]
    assert [attributes["headgate.outcome"] for attributes in told].count("denied") == 1
    # Of all decisions one was not traced; which paths they took depends on how busy the machine is.
    assert (decided - Counter([attributes["headgate.path"] for attributes in told])).total() == 1
    assert decided.total() == 7
    assert failed.status.code == 2


@pytest.mark.parametrize("transport", ["native", "grpcio"])
@pytest.mark.parametrize("origin", ["memory", "redis"])
def test_the_decision_log_names_the_trace(transport: str, origin: str, tmp_path: Path) -> None:
    """Of decisions that are traced, whether made at once or after asking a shard; others name none."""
    rules, data_dir = write_rules(tmp_path / "rules"), tmp_path / "data"
    with Collector() as collector, contextlib.ExitStack() as stack:
        flags = ["--otlp-endpoint", collector.url, "--traces", "true", "--trace-share", "0", "--transport", transport]
        flags += ["--data-dir", str(data_dir), "--decision-log-allowances", "1", "--drain-s", "0"]
        if origin == "redis":
            flags += ["--origin", shards_url(stack.enter_context(redis_shards(1)))]
        with serve(rules, *flags) as headgate:
            for _ in range(6):
                ask(headgate.grpc, "01")
            ask(headgate.grpc, "00")
            ask(headgate.grpc, "01", user="bob")
            assert headgate.stop() == 0
    traces = [record.trace for record in decisions(data_dir)]
    assert traces == [*[TRACE] * 6, "", TRACE]
    told = run("explain", "--data-dir", str(data_dir), "--domain", "edge", "user=bob")
    assert f", trace {TRACE})." in told.stdout


def test_the_decision_log_goes_to_the_collector_and_explain_reads_it_back(tmp_path: Path) -> None:
    """Without a data directory: pods that are gone leave nothing else."""
    rules, shipped = write_rules(tmp_path / "rules"), tmp_path / "shipped.jsonl"
    with Collector() as collector:
        flags = ("--otlp-endpoint", collector.url, "--traces", "true", "--decision-log-otlp", "true", "--drain-s", "0")
        with serve(rules, *flags) as headgate:
            for _ in range(6):
                ask(headgate.grpc, "01")
            wait_until(lambda: any(log.trace_id.hex() == TRACE for log in collector.logs), "the denial")
            assert headgate.stop() == 0
    shipped.write_text("".join([log.body.string_value + "\n" for log in collector.logs]))
    told = run("explain", "--log", str(shipped), "--domain", "edge", "user=alice")
    assert "The request was denied" in told.stdout
    assert f", trace {TRACE})." in told.stdout


def test_lines_alone_tell_what_older_rules_said(tmp_path: Path) -> None:
    """As a collector writes them to a file, batch by batch; contents of rule sets are among them."""
    rules, shipped = write_rules(tmp_path / "rules"), tmp_path / "logs.json"
    log = ("--decision-log-otlp", "true", "--otlp-endpoint")
    with Collector() as collector, serve(rules, *log, collector.url) as headgate:
        for _ in range(4):
            ask(headgate.grpc, "00")
        write_rules(rules, RULES.replace("requests_per_unit: 5", "requests_per_unit: 2"))
        wait_until(lambda: headgate.get("/readyz").json()["rules"]["version"].startswith("2-"), "the new rules")
        ask(headgate.grpc, "00")
        denied = '"allowed": false'
        wait_until(lambda: any(denied in log.body.string_value for log in collector.logs), "the denial")
        assert headgate.stop() == 0
    shipped.write_text("".join([MessageToJson(push, indent=None) + "\n" for push in collector.log_pushes]))
    told = run("explain", "--log", str(shipped), "--domain", "edge", "user=alice")
    assert "The limit was lowered from 5 to 2" in told.stdout
    assert "rules_content" not in told.stdout
