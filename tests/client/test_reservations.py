"""Reserve and settle in the client: for threads and asyncio, with the fake and with a real server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headgate_client import AsyncHeadgate, Headgate, RateLimited, RateLimitError
from headgate_client.testing import FakeServer

from tests.client.support import Make
from tests.support.headgate import Headgate as Process
from tests.support.headgate import serve, write_rules
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def server() -> FakeServer:
    server = FakeServer()
    server.limit("edge", "100/hour", user="*")
    return server


def left(client: Headgate) -> int | None:
    return client.check([{"user": "ann"}], cost=0).remaining


def test_leaving_the_block_settles_with_what_it_came_to(server: FakeServer) -> None:
    client = server.client("edge", keep_denials=0)
    with client.reserve(estimate=40, user="ann") as reservation:
        assert reservation
        assert left(client) == 60
        reservation.actual = 10
    assert left(client) == 90
    with client.reserve(estimate=40, user="ann") as reservation:
        reservation.actual = 70
    assert left(client) == 20


def test_an_exception_settles_too_and_without_an_actual_the_estimate_stands(server: FakeServer) -> None:
    client = server.client("edge")

    def fails(*, known: bool) -> None:
        with client.reserve(estimate=40, user="ann") as reservation:
            if known:
                reservation.actual = 5
            raise KeyError

    with pytest.raises(KeyError):
        fails(known=True)
    assert left(client) == 95
    with pytest.raises(KeyError):
        fails(known=False)
    assert left(client) == 55


def test_the_first_settlement_stands_and_others_are_told_so(server: FakeServer) -> None:
    client = server.client("edge", keep_denials=0)
    with client.reserve(estimate=40, user="ann") as reservation:
        assert reservation.settle(10)
        assert reservation.settle(10), "the server has it settled with that"
        assert not reservation.settle(20), "another amount was said before"
        assert reservation.actual == 10
    assert left(client) == 90
    assert not client.settle(reservation.id, 20)
    assert client.settle(reservation.id, 10)
    assert left(client) == 90
    assert client.unsettled == 0, "the server was told each time"


def test_a_reservation_says_how_it_stands(server: FakeServer) -> None:
    client = server.client("edge")
    reservation = client.reserve(estimate=40, user="ann")
    assert repr(reservation) == "<Reservation of 40: open>"
    assert reservation.id not in repr(reservation)
    reservation.settle(7)
    assert repr(reservation) == "<Reservation of 40: settled with 7>"
    assert repr(client.reserve(estimate=101, user="ann")).startswith("<Reservation of 101: denied, again in ")
    assert repr(client.reserve(estimate=1, nobody="limits")) == "<Reservation of 1: admitted, nothing to settle>"
    server.fail()
    assert repr(client.reserve(estimate=1, user="bob")) == (
        "<Reservation of 1: not decided by the server (UNAVAILABLE: the test says so)>"
    )

    async def with_asyncio() -> str:
        return repr(await server.async_client("edge").reserve(estimate=2, user="zoe"))

    server.recover()
    assert asyncio.run(with_asyncio()) == "<AsyncReservation of 2: open>"


def test_a_denied_estimate_raises_in_a_block_and_is_false_without_one(server: FakeServer) -> None:
    client = server.client("edge")
    denied = client.reserve(estimate=101, user="ann")
    assert not denied
    assert not denied.settle(1)
    with pytest.raises(RateLimited), client.reserve(estimate=101, user="ann"):
        pytest.fail("not entered")
    assert left(client) == 100


def test_what_is_given_back_is_there_for_whoever_was_denied(make_fake: Make, headgate_server: FakeServer) -> None:
    """The client remembers denials; a settlement of its own that makes room has it ask again."""
    client = make_fake()
    held = client.reserve(estimate=5, user="ann")
    assert not client.check(user="ann")
    assert not client.check(user="ann")
    assert not client.reserve(estimate=2, user="ann")
    assert client.counters["denied_from_memory"] == 1
    assert client.settle(held.id, 1)
    assert client.check(user="ann")
    assert client.reserve(estimate=2, user="ann")


def test_a_denied_estimate_is_no_denial_of_what_it_comes_to(make_fake: Make, headgate_server: FakeServer) -> None:
    """Under `overdraft` an estimate that does not fit is denied, and the same cost afterwards is charged."""
    limit = {"unit": "minute", "requests_per_unit": 10, "overdraft": True}
    headgate_server._rules.load({"domain": "edge", "descriptors": [{"key": "tokens", "rate_limit": limit}]})
    client = make_fake()
    assert not client.reserve(estimate=30, tokens="a")
    assert client.check(tokens="a", cost=0).remaining == 10
    assert not client.check(tokens="a", cost=30)
    assert not client.check(tokens="a", cost=0)
    assert client.counters["denied_from_memory"] == 0


def test_a_settlement_after_the_end_says_so(make_fake: Make) -> None:
    client = make_fake()
    held = client.reserve(estimate=5, user="ann")
    client.close()
    assert not client.settle(held.id, 1)
    assert client.errors == {"CLOSED": 1}


def test_it_counts_once_however_often_it_is_settled(server: FakeServer) -> None:
    client = server.client("edge")
    with client.reserve(estimate=40, user="ann") as reservation:
        assert reservation.settle(10)
        assert reservation.settle(10)
        assert client.settle(reservation.id, 10)
    assert left(client) == 90


def test_a_server_that_is_away_lets_the_block_run_by_policy(server: FakeServer) -> None:
    client = server.client("edge")
    server.fail()
    with client.reserve(estimate=40, user="ann") as reservation:
        assert reservation.decision.degraded
        reservation.actual = 10
    assert (reservation.id, client.unsettled) == ("", 0)
    with pytest.raises(RateLimited), client.reserve(estimate=40, user="ann", on_error="closed"):
        pytest.fail("not entered")
    with pytest.raises(RateLimitError):
        client.reserve(estimate=40, user="ann", on_error="raise")


def test_a_settlement_that_fails_is_counted_and_not_raised(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = server.client("edge")
    with client.reserve(estimate=40, user="ann") as reservation:
        server.fail()
        reservation.actual = 10
    assert client.unsettled == 1
    assert "was not told what a reservation came to" in caplog.text
    server.recover()
    server.clock.advance(60)
    assert reservation.settle(10), "it may be sent again"
    strict = server.client("edge", on_error="raise")
    held = strict.reserve(estimate=1, user="ann")
    server.fail("NOT_FOUND")
    with pytest.raises(RateLimitError, match="NOT_FOUND"):
        held.settle(1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"estimate": 0}, "estimate: from 1"),
        ({"estimate": 2**32}, "estimate: from 1"),
        ({"estimate": "5"}, "estimate: an int"),
        ({"estimate": True}, "estimate: an int"),
        ({"estimate": 1, "ttl": 90_000}, "ttl: at most"),
        ({"estimate": 1, "ttl": 0}, "ttl"),
    ],
)
def test_what_can_not_be_meant_is_refused_by_name(server: FakeServer, arguments: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        server.client("edge").reserve(user="ann", **arguments)
    held = server.client("edge").reserve(estimate=1, user="ann")
    for actual in (-1, 2**32, "1", True):
        with pytest.raises((TypeError, ValueError), match="actual"):
            held.settle(actual)  # type: ignore[arg-type]


def test_asyncio_has_the_same(server: FakeServer) -> None:
    async def use() -> None:
        client = server.async_client("edge", keep_denials=0)
        async with client.reserve(estimate=40, user="ann") as reservation:
            reservation.actual = 10
        assert (await client.check([{"user": "ann"}], cost=0)).remaining == 90
        held = await client.reserve(estimate=40, user="ann")
        assert held
        assert await held.settle(50)
        assert await client.settle(held.id, 50)
        assert (await client.check([{"user": "ann"}], cost=0)).remaining == 40
        with pytest.raises(RateLimited):
            async with client.reserve(estimate=41, user="ann"):
                pytest.fail("not entered")
        server.fail()
        assert not await held.settle(1)
        assert client.unsettled == 1

    asyncio.run(use())


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    rules = """
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 100}
- key: tokens
  rate_limit: {unit: year, requests_per_unit: 100, overdraft: true}
"""
    with serve(write_rules(tmp_path_factory.mktemp("rules") / "rules", rules)) as headgate:
        yield headgate


def test_a_real_server_settles_what_threads_reserve(real: Process, tmp_path: Path) -> None:
    with Headgate(real.grpc, "edge", timeout=PATIENCE_S, on_error="raise", keep_denials=0) as client:
        with client.reserve(estimate=40, user="ann") as reservation:
            reservation.actual = 10
        assert left(client) == 90
        assert not client.settle(reservation.id, 99), "it was settled with 10"
        assert client.settle(reservation.id, 10)
        assert left(client) == 90
        with pytest.raises(RateLimitError, match="INVALID_ARGUMENT"):
            client.settle("made up", 1)


def test_a_real_server_settles_what_tasks_reserve(real: Process) -> None:
    async def use() -> None:
        async with AsyncHeadgate(real.grpc, "edge", timeout=PATIENCE_S, on_error="raise") as client:
            async with client.reserve(estimate=40, user="bob") as reservation:
                reservation.actual = 60
            assert (await client.check([{"user": "bob"}], cost=0)).remaining == 40

    asyncio.run(use())


def test_a_real_server_is_told_of_every_late_cost(real: Process) -> None:
    with Headgate(real.grpc, "edge", timeout=PATIENCE_S, on_error="raise") as client:
        assert client.check(tokens="ann", cost=60)
        assert [bool(client.check(tokens="ann", cost=60)) for _ in range(3)] == [False] * 3
        assert [bool(client.check(tokens="ann", cost=0)) for _ in range(3)] == [False] * 3
        outcomes = [client.counters[name] for name in ("allowed", "denied", "denied_from_memory")]
        assert outcomes == [1, 4, 2], "late costs are always told, looks are remembered"
