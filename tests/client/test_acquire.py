"""Waiting for room: never before the server said, and never all together."""

import asyncio
import bisect

import pytest
from headgate_client import Backoff, Decision
from headgate_client.testing import FakeClock, FakeServer

from tests.client.support import Make
from tests.support.waiting import until


def test_a_wait_is_what_the_server_said_and_full_jitter_after_it() -> None:
    backoff = Backoff(base=0.1, cap=5.0)
    assert [backoff.wait_s(2.0, n, 1.0) for n in range(4)] == [2.1, 2.2, 2.4, 2.8]
    assert backoff.wait_s(2.0, 3, 0.0) == 2.0
    assert backoff.wait_s(2.0, 3, 0.5) == 2.4
    assert backoff.wait_s(0.0, 10, 1.0) == 5.0, "the cap"
    assert backoff.wait_s(0.0, 100_000, 1.0) == 5.0


def test_it_waits_until_there_is_room(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake()
    for _ in range(5):
        client.check(user="alice")
    retry_after = client.check(user="alice").retry_after
    began_s = headgate_server.clock.now_s()
    assert client.acquire(user="alice")
    waited_s = headgate_server.clock.now_s() - began_s
    assert retry_after <= waited_s <= retry_after + 0.1
    assert client.acquire(user="bob"), "where there is room nobody waits"
    assert headgate_server.clock.now_s() - began_s == waited_s


def test_a_wait_that_would_be_in_vain_is_not_begun(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake()
    for _ in range(5):
        client.check(user="alice")
    began_s = headgate_server.clock.now_s()
    denied = client.acquire(user="alice", timeout=client.check(user="alice").retry_after - 0.001)
    assert not denied
    assert denied.retry_after > 0
    assert headgate_server.clock.now_s() == began_s
    assert not client.acquire(user="alice", timeout=0)


def test_a_server_that_is_away_is_waited_for_where_that_denies(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake(on_error="closed")
    headgate_server.fail()
    began_s = headgate_server.clock.now_s()
    assert not client.acquire(user="alice", timeout=3)
    assert 0 < headgate_server.clock.now_s() - began_s <= 3
    assert len(headgate_server.requests) < 20, "with pauses, and the breaker in between"
    assert client.acquire(user="alice", on_error="open"), "or not, where it doesn't"


def test_a_closed_client_is_not_waited_for(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake(on_error="closed")
    client.check(user="alice")
    client.close()
    assert not client.acquire(user="alice")


@pytest.mark.slow
async def test_ten_thousand_that_one_reset_releases_are_spread_out() -> None:
    """No more than a tenth of the retries comes in any hundredth of their spread."""
    callers = 10_000
    limit = {"unit": "minute", "requests_per_unit": callers, "algorithm": "fixed_window"}
    tries: list[float] = []

    class Noting(FakeServer):
        def answer(self, payload: bytes) -> bytes:
            tries.append(self.clock.now_s())
            return super().answer(payload)

    server = Noting({"domain": "edge", "descriptors": [{"key": "pool", "rate_limit": limit}]}, clock=FakeClock(seed=7))
    client = server.async_client("edge", keep_denials=0)
    assert await client.check(pool="a", cost=callers)
    released_s = server.clock.now_s() + 60
    decisions = await asyncio.gather(*(client.acquire(pool="a") for _ in range(callers)))
    assert all(decisions)

    retries = sorted(tries[1 + callers :])
    assert len(retries) == callers, "the reset has room for all of them"
    assert retries[0] >= released_s, "nobody comes before the time that was named"
    share_s = (retries[-1] - retries[0]) / 100
    assert max(bisect.bisect_right(retries, at + share_s) - n for n, at in enumerate(retries)) <= callers / 10


async def test_a_caller_that_is_cancelled_leaves_nothing_behind(headgate_server: FakeServer) -> None:
    headgate_server.clock = FakeClock(auto=False)
    headgate_server.limit("edge", "1/day", user="*")
    client = headgate_server.async_client("edge")
    await client.check(user="alice")
    waiting = asyncio.create_task(client.acquire(user="alice"))
    await until(lambda: headgate_server.clock.sleepers, "a sleeper")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_time_that_the_test_moves_wakes_sleepers_in_their_order(headgate_server: FakeServer) -> None:
    headgate_server.clock = clock = FakeClock(auto=False)
    headgate_server.limit("edge", "1/minute", user="*")
    client = headgate_server.async_client("edge")
    done: list[Decision] = []
    await client.check(user="alice")

    async def acquire() -> None:
        done.append(await client.acquire(user="alice"))

    task = asyncio.create_task(acquire())
    await until(lambda: clock.sleepers, "a sleeper")
    clock.advance(60)
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == [], "a window that slides still holds it"
    clock.advance(70)
    await task
    assert done[0].allowed
