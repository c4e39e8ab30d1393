"""A task's deadline is kept by its own loop: when the server is late, and not when the loop is."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from headgate_client import RateLimitError
from headgate_client.deadline import AWAY_S, IN_FLIGHT, LONGEST_AWAY_S, Lane
from headgate_client.testing import FakeServer
from headgate_client.testing.server import FakeAsyncHeadgate

from tests.support.waiting import PATIENCE_S, until

Answer = Callable[..., Awaitable[bytes]]


async def client_of(server: FakeServer, call: Answer, timeout_s: float) -> FakeAsyncHeadgate:
    """One that is connected, to a server that answers so."""
    client = server.async_client("edge", timeout=timeout_s)
    await client.check(user="alice")
    (connections,) = client._loops.values()
    for link in connections.links or ():
        link.call = call
    return client


async def test_a_call_that_nobody_answers_ends(headgate_server: FakeServer) -> None:
    ended: list[str] = []

    async def never(payload: bytes, **_: object) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the call")
        return b""

    client = await client_of(headgate_server, never, 0.01)
    decision = await asyncio.wait_for(client.check(user="alice"), PATIENCE_S)
    assert str(decision.error) == "DEADLINE_EXCEEDED: no answer in 10 ms"
    assert ended == ["the call"], "nothing goes on behind it"
    assert client.reachable, "one late answer opens no breaker"
    assert client.errors == {"DEADLINE_EXCEEDED": 1}


async def test_an_answer_that_waits_for_a_loop_that_is_busy_is_not_late(headgate_server: FakeServer) -> None:
    """The loop stands still for longer than the deadline, as one does whose tasks compute; then the answer is there."""

    async def answered_meanwhile(payload: bytes, **_: object) -> bytes:
        time.sleep(0.05)  # noqa: ASYNC251  that is the point
        for _turn in range(3):
            await asyncio.sleep(0)
        return headgate_server.answer(payload)

    client = await client_of(headgate_server, answered_meanwhile, 0.01)
    assert [(await client.check(user="alice")).degraded for _ in range(5)] == [False] * 5


async def test_only_so_many_are_under_way_and_the_others_cost_no_call(headgate_server: FakeServer) -> None:
    made: list[bytes] = []

    async def never(payload: bytes, **_: object) -> bytes:
        made.append(payload)
        await asyncio.Event().wait()
        return b""

    client = await client_of(headgate_server, never, PATIENCE_S)
    under_way = [asyncio.create_task(client.check(user="alice")) for _ in range(IN_FLIGHT)]
    await until(lambda: len(made) == IN_FLIGHT, "all of them")
    decisions = await asyncio.gather(*(client.check(user="alice", timeout=0.01) for _ in range(50)))
    said = {str(decision.error) for decision in decisions}
    assert said == {"DEADLINE_EXCEEDED: not sent in 10 ms: 100 calls are under way"}
    assert len(made) == IN_FLIGHT
    under_way.pop().cancel()
    waiting = asyncio.create_task(client.check(user="alice"))
    await until(lambda: len(made) == IN_FLIGHT + 1, "the next one's turn")
    for task in [*under_way, waiting]:
        task.cancel()
    await asyncio.gather(*under_way, waiting, return_exceptions=True)
    (connections,) = client._loops.values()
    assert not connections.lane.slots.locked(), "all have left"


async def test_one_whose_turn_comes_too_late_is_not_sent() -> None:
    lane = Lane()
    with lane.deadline(0.02) as deadline:
        time.sleep(0.02)  # noqa: ASYNC251
        assert deadline.send() == 0.02, "it did not wait for its turn: the loop was busy"
    lane.slots = asyncio.Semaphore(0)
    with lane.deadline(0.02) as deadline:
        time.sleep(0.02)  # noqa: ASYNC251
        with pytest.raises(RateLimitError, match="not sent in 20 ms"):
            deadline.send()


async def test_whoever_cancels_a_task_cancels_it(headgate_server: FakeServer) -> None:
    began = asyncio.Event()

    async def never(payload: bytes, **_: object) -> bytes:
        began.set()
        await asyncio.Event().wait()
        return b""

    client = await client_of(headgate_server, never, PATIENCE_S)
    task = asyncio.create_task(client.check(user="alice"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_grpcs_own_timer_is_later_while_the_loop_is_away_often() -> None:
    lane = Lane()
    with lane.deadline(1.0) as deadline:
        assert 0 < deadline.send() <= 1.0
    lane.away_s = 0.1
    with lane.deadline(1.0) as deadline:
        assert deadline.send() > 1.0
    for _ in range(100):
        with lane.deadline(1.0):
            pass
    assert lane.away_s < 0.001, "that passes"


@pytest.mark.slow
async def test_what_is_added_is_bounded() -> None:
    """A loop that is never in time does not keep its callers for ever."""
    lane = Lane()

    async def busy() -> None:
        while True:
            time.sleep(3 * AWAY_S)  # noqa: ASYNC251
            await asyncio.sleep(0)

    keeping = asyncio.create_task(busy())
    try:
        deadline = lane.deadline(0.01)
        with pytest.raises(RateLimitError), deadline:
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        assert 0 < deadline._added_s <= LONGEST_AWAY_S
        assert lane.away_s <= LONGEST_AWAY_S
    finally:
        keeping.cancel()
