"""Servers with TLS, and so with a guard: in several processes, and when callers take all connections."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate_client import Client, Tls
from prometheus_client.parser import text_string_to_metric_families

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import FREE_PORTS, Headgate, start, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until
from tests.support.workers import serve_workers

CA = authority("ca")
BULK = [{"bulk": "x"}]
TIMEOUT_S = 20.0


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules")


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    cert, key = issued_by(CA, "server").write(tmp_path, "server")
    return ("--tls-cert", cert, "--tls-key", key)


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(ca=Path(CA.write(tmp_path, "ca")[0]), server_name="localhost")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def samples(headgate: Headgate, name: str) -> "Counter[str]":
    """By the label that tells them apart."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(headgate.get("/metrics").body.decode()):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels.get("reason") or sample.labels.get("worker", "")] += int(sample.value)
    return found


def test_workers_have_a_guard_each_on_one_port(
    rules: Path, redis: RedisServer, flags: tuple[str, ...], tls: Tls
) -> None:
    with serve_workers(rules, redis.url, 2, *flags) as headgate, ExitStack() as stack:
        assert headgate.get("/version").json()["transport"] == "guarded"
        for _ in range(24):
            client = stack.enter_context(Client(headgate.grpc, tls=tls, timeout_s=TIMEOUT_S))
            assert client.should_rate_limit("edge", BULK).admitted
        live = samples(headgate, "headgate_grpc_connections")
        assert sum(live.values()) == 24
        assert len(+live) == 2, "24 connections ended at one worker"


def test_health_callers_and_newcomers_are_served_while_others_take_all_connections(
    rules: Path, flags: tuple[str, ...], tls: Tls
) -> None:
    """The process may open few files, and many connections come that say nothing."""
    flags += ("--rules", str(rules), "--max-connections-per-address", "1000", *FREE_PORTS)
    with start("serve", *flags, max_files=200) as headgate, ExitStack() as stack:
        headgate.wait_ready()
        lowered = headgate.wait_for_event("max_connections_lowered")
        assert 1 < lowered["max_connections"] < 70
        client = stack.enter_context(Client(headgate.grpc, tls=tls, timeout_s=TIMEOUT_S))
        assert client.should_rate_limit("edge", BULK).admitted
        host, _, port = headgate.grpc.rpartition(":")
        for _ in range(400):
            stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S))
        wait_until(lambda: samples(headgate, "headgate_grpc_connections_closed_total")["room"] > 300, "room made")
        for _ in range(20):
            assert headgate.get("/healthz").status == 200
        assert client.should_rate_limit("edge", BULK).admitted
        assert samples(headgate, "headgate_grpc_connections")[""] == lowered["max_connections"]
        newcomer = stack.enter_context(Client(headgate.grpc, tls=tls, timeout_s=TIMEOUT_S))
        assert newcomer.should_rate_limit("edge", BULK).admitted
        # The first caller has still its connection.
        assert client.should_rate_limit("edge", BULK).admitted
        assert samples(headgate, "headgate_grpc_connections_accepted_total")[""] == 402
