"""Several servers: asked in turn, and those that are away are left out; names that change are looked up again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from headgate_client import channel

from tests.client.dns import NameServer
from tests.client.support import PATIENT_S, Client, MakeBoth
from tests.support.headgate import Headgate, serve
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

OPTIONS = {"timeout": PATIENT_S, "connect_timeout": PATIENT_S, "keep_denials": 0}


@pytest.mark.parametrize(
    ("addr", "targets"),
    [
        ("localhost:8081", ("dns:///localhost:8081",)),
        ("[::1]:8081", ("dns:///[::1]:8081",)),
        ("dns:///headgate.default.svc:8081", ("dns:///headgate.default.svc:8081",)),
        ("dns://10.0.0.53:53/headgate:8081", ("dns://10.0.0.53:53/headgate:8081",)),
        ("unix:/run/h.sock", ("unix:/run/h.sock",)),
        (["10.0.0.1:8081", "10.0.0.2:8081"], ("ipv4:10.0.0.1:8081,10.0.0.2:8081",)),
        (["[::1]:1", "[::2]:2"], ("ipv6:[::1]:1,[::2]:2",)),
        (["a:1", "10.0.0.1:2", "unix:/x"], ("dns:///a:1", "dns:///10.0.0.1:2", "unix:/x")),
    ],
)
def test_what_is_dialled(addr: channel.Address, targets: tuple[str, ...]) -> None:
    assert channel.targets(addr) == targets


@contextlib.contextmanager
def two_servers(rules: Path) -> Iterator[list[Headgate]]:
    """On one port of two addresses of the loopback."""
    with serve(rules) as first:
        port = first.grpc.rpartition(":")[2]
        with serve(rules, grpc=f"127.0.0.2:{port}") as second:
            yield [first, second]


def allowed(client: Client, user: str) -> int:
    """Of 20; each server by itself allows 5."""
    return sum(client.check(user=user).allowed for _ in range(20))


def kill(server: Headgate) -> None:
    server.process.kill()
    server.wait_exit()


def test_servers_are_asked_in_turn_and_who_is_away_is_left_out(rules: Path, make_both: MakeBoth) -> None:
    """A list of numeric addresses is one channel of gRPC's, and so is a name; a list with names is a channel each."""
    with (
        two_servers(rules) as (first, second),
        NameServer("both.test", ["127.0.0.1", "127.0.0.2"]) as both,
        NameServer("one.test", ["127.0.0.1"]) as one,
    ):
        port = first.grpc.rpartition(":")[2]
        spread = [
            *make_both([first.grpc, second.grpc], "edge", **OPTIONS),
            *make_both([f"localhost:{port}", second.grpc], "edge", **OPTIONS),
            *make_both(f"dns://{both.address}/both.test:{port}", "edge", **OPTIONS),
        ]
        for number, client in enumerate(spread):
            wait_until(lambda c=client: _reaches_both(c), "both to be connected")  # type: ignore[misc]
            assert allowed(client, f"user-{number}") == 10, "five of each"
        # As a headless Service's name does: pods go and come, and it has the addresses of those there are.
        moving = make_both(f"dns://{one.address}/one.test:{port}", "edge", **OPTIONS)
        for number, client in enumerate(moving):
            assert allowed(client, f"moving-{number}") == 5, "the one that the name has"
        one.addresses = ["127.0.0.2"]
        kill(first)
        for number, client in enumerate([*spread, *moving]):
            wait_until(lambda c=client: _undegraded(c), "the one that is left")  # type: ignore[misc]
            assert allowed(client, f"later-{number}") == 5
            assert client.reachable
        assert one.questions >= 4, "asked again after the change, by both"


def _reaches_both(client: Client) -> bool:
    """Users of whom nobody has heard yet, five on each server."""
    return allowed(client, f"warm-{id(client)}-{sum(client.counters.values())}") == 10


def _undegraded(client: Client) -> bool:
    return not any(client.check(bulk="x").degraded for _ in range(20))
