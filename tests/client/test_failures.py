"""The server killed, stalled and restarted under calls: nobody is hurt, and limits hold again after it."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from headgate_client import AsyncHeadgate, Decision
from headgate_client import Headgate as ThreadsHeadgate

from tests.client.support import PATIENT_S, Client, Make, MakeBoth
from tests.support.headgate import Headgate, serve
from tests.support.waiting import PATIENCE_S, undisturbed, until, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stoppable(rules: Path) -> Iterator[Headgate]:
    with serve(rules) as served:
        yield served


@pytest.fixture
def server(stoppable: Headgate) -> Iterator[Headgate]:
    """To be stopped and woken."""
    yield stoppable
    stoppable.send(signal.SIGCONT)


def decided(client: Client) -> bool:
    """Whether the server decided, whatever it said."""
    return not client.check(bulk="x").degraded


def asked(client: Client) -> int:
    """Calls in vain for which somebody was asked."""
    return sum(count for status, count in client.errors.items() if status != "BREAKER_OPEN")


def test_killed_and_restarted(rules: Path, make_both: MakeBoth) -> None:
    with serve(rules) as first:
        address = first.grpc
        clients = make_both(address, "edge", timeout=PATIENT_S, connect_timeout=PATIENT_S)
        for client in clients:
            assert decided(client)
        first.process.kill()
        first.wait_exit()
    for client in clients:
        wait_until(lambda client=client: not decided(client) and not client.reachable, "the breaker")  # type: ignore[misc]
        assert client.check(user="alice").allowed
        assert not client.check(user="alice", on_error="closed").allowed
        before = asked(client)
        for _ in range(1000):
            client.check(user="alice")
        assert asked(client) - before < 100, "nobody is asked, but for a probe now and then"
    with serve(rules, grpc=address):
        for client in clients:
            wait_until(lambda client=client: decided(client), "decisions of the new server")  # type: ignore[misc]
            assert client.reachable
            assert not any(client.check(user="bob").degraded for _ in range(10))


def test_stalled_and_awake_again(server: Headgate, make: Make) -> None:
    client = make(server.grpc, "edge", timeout=0.03, connect_timeout=PATIENT_S)
    wait_until(lambda: decided(client), "a first decision")
    server.send(signal.SIGSTOP)
    wait_until(lambda: not decided(client) and not client.reachable, "the breaker")
    assert client.errors["DEADLINE_EXCEEDED"] >= 20, "no single late answer opened it"
    assert client.check(user="alice").allowed
    server.send(signal.SIGCONT)
    wait_until(lambda: decided(client), "decisions again")


def test_nothing_there_at_the_first_use(make: Make) -> None:
    client = make("127.0.0.1:1", "edge", timeout=PATIENT_S, connect_timeout=PATIENT_S)
    first = client.check(user="alice")
    assert first.allowed
    assert first.error is not None
    assert first.error.status == "UNAVAILABLE"
    assert "Connection refused" in first.error.message, "it says why"
    wait_until(lambda: not decided(client) and not client.reachable, "the breaker")


def test_a_first_use_to_which_nobody_answers_ends_with_connect_timeout(server: Headgate, make: Make) -> None:
    """A connection is made and nothing comes of it: the first call waits for that once, the others don't."""
    server.send(signal.SIGSTOP)
    client = make(server.grpc, "edge", timeout=0.2, connect_timeout=0.2)
    decision = client.check(user="alice")
    assert decision.allowed
    # On a machine that is too busy gRPC gives the connection up first, and says so in its own words.
    assert "no connection was made in time" in str(decision.error) or decision.degraded
    server.send(signal.SIGCONT)
    wait_until(lambda: decided(client), "decisions")


def test_the_wait_for_a_connection_is_not_the_calls(server: Headgate, make: Make) -> None:
    """A connection that takes twice the deadline of a call, and then a call that keeps its own."""

    def attempt(_: int) -> str:
        server.send(signal.SIGSTOP)
        wake = threading.Timer(1.0, server.send, [signal.SIGCONT])
        wake.start()
        client = make(server.grpc, "edge", timeout=0.5, connect_timeout=PATIENT_S)
        decision = client.check(bulk="x")
        wake.join()
        assert decision.error is None or decision.error.status == "DEADLINE_EXCEEDED"
        return str(decision.error or "")

    undisturbed(attempt)


def test_calls_of_threads_that_are_under_way_end_with_the_client(server: Headgate) -> None:
    client = ThreadsHeadgate(server.grpc, "edge", timeout=PATIENCE_S, connect_timeout=PATIENT_S)
    assert client.check(bulk="x")
    server.send(signal.SIGSTOP)
    ends: list[Decision] = []
    calls = [threading.Thread(target=lambda: ends.append(client.check(bulk="x"))) for _ in range(5)]
    for call in calls:
        call.start()
    client.close()
    for call in calls:
        call.join(PATIENCE_S)
    assert [str(decision.error) for decision in ends] == ["CLOSED: this client is closed"] * 5


async def test_calls_of_tasks_that_are_under_way_end_with_the_client(server: Headgate) -> None:
    client = AsyncHeadgate(server.grpc, "edge", timeout=PATIENCE_S, connect_timeout=PATIENT_S)
    assert await client.check(bulk="x")
    server.send(signal.SIGSTOP)
    calls = [asyncio.create_task(client.check(bulk="x")) for _ in range(5)]
    await asyncio.sleep(0)
    await client.close()
    assert [str((await call).error) for call in calls] == ["CLOSED: this client is closed"] * 5


async def test_a_task_that_is_cancelled_ends_as_it_should(server: Headgate) -> None:
    async with AsyncHeadgate(server.grpc, "edge", timeout=PATIENCE_S, connect_timeout=PATIENT_S) as client:
        server.send(signal.SIGSTOP)
        call = asyncio.create_task(client.check(bulk="x"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.send(signal.SIGCONT)
        await until(lambda: client.reachable, "the server")
        assert not (await client.check(bulk="x")).degraded
