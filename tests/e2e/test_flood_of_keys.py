"""A flood of new keys from one address, at a real server before a real Redis that is slow: others are asked for."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate_client import Client

from benchmarks import load
from benchmarks.attacks import Attacker, message
from benchmarks.processes import METHOD
from benchmarks.traffic import request
from tests.support.fault_proxy import Fault, FaultProxies
from tests.support.headgate import serve, write_rules
from tests.support.redis_servers import RedisServer

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 1000, on_error: closed}
"""
FLOOD = ("127.0.0.2", "127.0.0.2")
"""Connections of the flood, by their address."""
CALLS = 90
KEYS = 32
"""New keys per call: those of all calls take two seconds to ask for, twice what anybody waits."""
ROUND_TRIP_S = 0.02
CONNECTIONS = 20


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_who_asks_beside_a_flood_of_new_keys_is_not_denied(tmp_path: Path, redis: RedisServer, transport: str) -> None:
    rules = write_rules(tmp_path / "rules", RULES)
    with FaultProxies([redis.port]) as proxies, ExitStack() as stack:
        origin = ("--origin", f"redis://127.0.0.1:{proxies.ports[0]}", "--origin-deadline-ms", "1000")
        headgate = stack.enter_context(serve(rules, *origin, "--transport", transport, grpc="0.0.0.0:0"))
        address = f"127.0.0.1:{headgate.grpc.rpartition(':')[2]}"
        client = stack.enter_context(Client(address, timeout_s=30))
        assert client.should_rate_limit("edge", [{"user": "first"}]).admitted
        proxies.set(0, Fault("slow", delay_s=ROUND_TRIP_S / 2))
        for connection, source in enumerate(FLOOD):
            attacker = Attacker(address, source)
            stack.callback(attacker.close)
            attacker.speak()
            for call in range(CALLS):
                attacker.send(attacker.call(message(new_keys(f"{connection}.{call}")), end=True))
        asked = [client.should_rate_limit("edge", [{"user": f"honest {number}"}]) for number in range(10)]
        assert [each.admitted for each in asked] == [True] * 10


def test_who_calls_beside_a_flood_is_answered_before_it_is(tmp_path: Path) -> None:
    """Deciding the flood takes more than half a second: whoever calls meanwhile takes turns with it."""
    rules = write_rules(tmp_path / "rules", RULES)
    with serve(rules, grpc="0.0.0.0:0") as headgate, ExitStack() as stack:
        address = f"127.0.0.1:{headgate.grpc.rpartition(':')[2]}"
        client = stack.enter_context(Client(address, timeout_s=30))
        assert client.should_rate_limit("edge", [{"user": "first"}]).admitted
        flood = [load.Connection(address, METHOD, source="127.0.0.2") for _ in range(CONNECTIONS)]
        for number, connection in enumerate(flood):
            stack.callback(connection.socket.close)
            for call in range(CALLS):
                connection.call(call, new_keys(f"{number}.{call}"))
        for connection in flood:
            connection.send()
        for number in range(10):
            assert client.should_rate_limit("edge", [{"user": f"honest {number}"}]).admitted
        assert sum(map(not_answered, flood)) > CONNECTIONS * CALLS / 4, "the flood was decided first"


def not_answered(connection: load.Connection) -> int:
    """Calls to which no answer is there."""
    connection.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            connection.receive(lambda _number, _message: None)
    return connection.under_way


def new_keys(name: str) -> bytes:
    """A request that asks for keys that nobody has asked for."""
    return request(*[("user", f"{name}.{key}") for key in range(KEYS)], domain="edge")
