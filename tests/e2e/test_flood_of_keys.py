"""A flood of new keys from one address, at a real server before a real Redis that is slow: others are asked for."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate_client import Client
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

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
CONNECTIONS = 40
MOST = 4_000_000_000
ORDER = f"""\
- key: order
  rate_limit: {{unit: year, requests_per_unit: {MOST}}}
"""


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


def test_who_calls_beside_a_flood_is_decided_before_most_of_it(tmp_path: Path) -> None:
    """Each call counts on one key too: what is left of its limit says how many were decided before."""
    rules = write_rules(tmp_path / "rules", RULES + ORDER)
    with serve(rules, grpc="0.0.0.0:0") as headgate, ExitStack() as stack:
        address = f"127.0.0.1:{headgate.grpc.rpartition(':')[2]}"
        flood = [load.Connection(address, METHOD, source="127.0.0.2") for _ in range(CONNECTIONS)]
        honest = load.Connection(address, METHOD)
        for connection in (honest, *flood):
            stack.callback(connection.socket.close)
        assert decided_before(honest) == 0
        for number, connection in enumerate(flood):
            for call in range(CALLS):
                keys = [("user", f"{number}.{call}.{key}") for key in range(KEYS - 1)]
                connection.call(call, request(*keys, ("order", ""), domain="edge"))
        for connection in flood:
            connection.send()
        before = [decided_before(honest) for _ in range(3)]
        assert before[-1] < CONNECTIONS * CALLS / 2, before


def decided_before(connection: load.Connection) -> int:
    """Call, and return how many calls were decided before that one."""
    answers: list[bytes | None] = []
    connection.call(0, request(("order", ""), domain="edge"))
    connection.send()
    while not answers:
        connection.receive(lambda _number, message: answers.append(message))
    return MOST - 1 - RateLimitResponse.FromString(answers[0] or b"").statuses[0].limit_remaining


def new_keys(name: str) -> bytes:
    """A request that asks for keys that nobody has asked for."""
    return request(*[("user", f"{name}.{key}") for key in range(KEYS)], domain="edge")
