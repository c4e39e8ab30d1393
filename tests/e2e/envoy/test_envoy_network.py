"""Envoy's network (L4) filter: connections are counted, and closed when there are too many."""

import contextlib
import http.client
from pathlib import Path

import pytest

from tests.e2e.envoy.conftest import TRANSPORTS
from tests.support.envoy import Envoy, run_envoy
from tests.support.envoy_config import network_config
from tests.support.headgate import serve, write_rules
from tests.support.waiting import PATIENCE_S, wait_until

RULES = """\
domain: edge
descriptors:
- key: listener
  value: front
  rate_limit: {unit: year, requests_per_unit: 3}
"""


def answered(envoy: Envoy) -> bool:
    """Whether a new connection is served, or closed without an answer."""
    connection = http.client.HTTPConnection(envoy.address, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except (http.client.RemoteDisconnected, ConnectionError):
            return False


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_as_many_connections_as_the_limit_are_served(tmp_path: Path, transport: str) -> None:
    rules = write_rules(tmp_path / "rules", RULES)
    descriptor = {"entries": [{"key": "listener", "value": "front"}]}
    with serve(rules, "--transport", transport) as headgate:
        config = network_config(headgate=[headgate.grpc], descriptors=[descriptor], failure_mode_deny=True)
        with run_envoy(config) as envoy:
            assert [answered(envoy) for _ in range(5)] == [True] * 3 + [False] * 2
            wait_until(
                lambda: envoy.counters("ratelimit.front")["ratelimit.front.cx_closed"] == 2, "both to be counted"
            )
            assert envoy.counters("ratelimit.front")["ratelimit.front.error"] == 0


def test_requests_of_one_connection_are_one(tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules", RULES)
    descriptor = {"entries": [{"key": "listener", "value": "front"}]}
    with serve(rules) as headgate:
        config = network_config(headgate=[headgate.grpc], descriptors=[descriptor], failure_mode_deny=True)
        with run_envoy(config) as envoy, contextlib.closing(http.client.HTTPConnection(envoy.address)) as connection:
            for _ in range(10):
                connection.request("GET", "/")
                response = connection.getresponse()
                assert (response.status, response.read()) == (200, b"hello\n")
