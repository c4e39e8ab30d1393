"""Callers who mean harm, against a real process: memory stays bounded, and nobody's limit is lifted."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate.transport.http_listener import HttpLimits
from headgate_client import Client, RateLimitError

from tests.support.headgate import FREE_PORTS, Headgate, serve, start, write_rules
from tests.support.waiting import wait_until

RULES = """
domain: edge
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 3}
- key: wide
  rate_limit: {unit: hour, requests_per_unit: 1000}
"""
MB = 1_000_000


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


def resident_bytes(node: Headgate) -> float:
    name = "process_resident_memory_bytes "
    (line,) = samples(node, name)
    return float(line.removeprefix(name))


def test_long_values_cost_no_more_memory_than_short_ones(rules: Path) -> None:
    """3,000 different values of 50 KB: kept as they are, they would be 150 MB, and as much again for plans."""
    with serve(rules) as headgate, Client(headgate.grpc, timeout_s=60) as client:
        before = resident_bytes(headgate)
        for number in range(3_000):
            for _ in range(1 + number % 2):
                assert client.should_rate_limit("edge", [{"wide": f"{number}" + "x" * 50_000}]).admitted
        assert resident_bytes(headgate) - before < 50 * MB


def samples(node: Headgate, name: str) -> list[str]:
    return [line for line in node.get("/metrics").body.decode().splitlines() if line.startswith(name)]


def test_a_flood_of_http_connections_takes_a_bounded_number_of_descriptors(rules: Path) -> None:
    with serve(rules) as headgate, Client(headgate.grpc, timeout_s=60) as client, ExitStack() as stack:
        assert client.should_rate_limit("edge", [{"wide": "x"}]).admitted
        before = headgate.descriptors()
        for _ in range(400):
            stack.enter_context(connection_to(headgate.http))
        for _ in range(20):
            assert headgate.get("/healthz").status == 200
        assert headgate.descriptors() - before <= HttpLimits().max_connections
        assert samples(headgate, 'headgate_http_connections_cut_total{reason="silent"}')
        assert client.should_rate_limit("edge", [{"wide": "x"}]).admitted


def test_health_is_answered_when_callers_on_loopback_leave_no_descriptor(rules: Path) -> None:
    """There is no guard on loopback, and the native transport accepts whoever comes."""
    with start("serve", "--rules", str(rules), *FREE_PORTS, max_files=200) as headgate, ExitStack() as stack:
        headgate.wait_ready()
        client = stack.enter_context(Client(headgate.grpc, timeout_s=60))
        assert client.should_rate_limit("edge", [{"wide": "x"}]).admitted
        flood = [stack.enter_context(connection_to(headgate.grpc)) for _ in range(250)]
        wait_until(lambda: headgate.descriptors() >= 199, "no descriptor is left")
        for _ in range(20):
            assert headgate.get("/healthz").status == 200
        assert client.should_rate_limit("edge", [{"wide": "x"}]).admitted
        for connection in flood:
            connection.close()
        wait_until(lambda: headgate.descriptors() < 50, "they are free again")
        assert headgate.get("/healthz").status == 200


def connection_to(address: str) -> socket.socket:
    """One that says nothing; it need not be accepted."""
    host, _, port = address.rpartition(":")
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex((host, int(port)))
    return connection


def test_a_flood_of_new_values_does_not_reset_who_is_over_a_limit(rules: Path) -> None:
    with serve(rules, "--max-cells", "1000") as headgate, Client(headgate.grpc, timeout_s=60) as client:
        for _ in range(3):
            assert client.should_rate_limit("edge", [{"user": "mallory"}]).admitted
        assert not client.should_rate_limit("edge", [{"user": "mallory"}]).admitted
        for number in range(3_000):
            client.should_rate_limit("edge", [{"wide": f"flood{number}"}])
        assert not client.should_rate_limit("edge", [{"user": "mallory"}]).admitted


@pytest.mark.parametrize("descriptors", [[{"wide": "x"}] * 33, [{f"k{number}": "x" for number in range(33)}]])
def test_a_request_that_is_too_wide_is_refused_and_the_process_goes_on(
    rules: Path, descriptors: list[dict[str, str]]
) -> None:
    with serve(rules) as headgate, Client(headgate.grpc, timeout_s=60) as client:
        with pytest.raises(RateLimitError, match="accepted are 1 to 32"):
            client.should_rate_limit("edge", descriptors)
        assert client.should_rate_limit("edge", [{"wide": "x"}]).admitted
