"""`limit(…)` on functions and blocks: done within the limits, or not at all."""

import asyncio
from typing import Any

import pytest
from headgate_client import RateLimited
from headgate_client.testing import FakeServer


@pytest.fixture
def server(headgate_server: FakeServer) -> FakeServer:
    headgate_server.limit("edge", "2/minute", user="*")
    headgate_server.limit("edge", "10/minute", tokens="*")
    return headgate_server


def test_a_function_is_called_within_its_limits(server: FakeServer) -> None:
    limiter = server.client("edge")
    done: list[str] = []

    @limiter.limit(key=lambda user, **_: {"user": user})
    def search(user: str, *, text: str) -> str:
        """Searches."""
        done.append(text)
        return text

    assert (search.__name__, search.__doc__) == ("search", "Searches.")
    assert [search("alice", text="a"), search("alice", text="b")] == ["a", "b"]
    with pytest.raises(RateLimited, match=r"over the limit: try again in \d+\.\d+ s") as caught:
        search("alice", text="c")
    assert caught.value.retry_after == caught.value.decision.retry_after > 0
    assert search("bob", text="d") == "d"
    assert done == ["a", "b", "d"]


async def test_a_coroutine_function_too(server: FakeServer) -> None:
    limiter = server.async_client("edge")

    @limiter.limit(key=lambda user: [{"user": user}])
    async def search(user: str) -> str:
        return user

    assert [await search("alice"), await search("alice")] == ["alice", "alice"]
    with pytest.raises(RateLimited):
        await search("alice")
    assert list(await asyncio.gather(search("bob"), search("bob"))) == ["bob", "bob"]


async def test_blocks(server: FakeServer) -> None:
    limiter = server.client("edge")
    for left in (1, 0):
        with limiter.limit(user="alice") as decision:
            assert decision.remaining == left
    with pytest.raises(RateLimited), limiter.limit(user="alice"):
        raise AssertionError("not reached")
    async_limiter = server.async_client("edge")
    async with async_limiter.limit({"user": "bob"}) as decision:
        assert decision.remaining == 1
    with pytest.raises(KeyError, match="its own"):
        async with async_limiter.limit([{"user": "bob"}]):
            raise KeyError("its own")


def test_an_exempt_call_asks_nobody(server: FakeServer) -> None:
    limiter = server.client("edge")

    @limiter.limit(key=lambda user: None if user == "admin" else {"user": user})
    def search(user: str) -> str:
        return user

    assert [search("admin") for _ in range(5)] == ["admin"] * 5
    assert server.requests == []


def test_the_cost_may_depend_on_the_call(server: FakeServer) -> None:
    limiter = server.client("edge")

    @limiter.limit(key={"tokens": "shared"}, cost=lambda prompt: len(prompt.split()))
    def complete(prompt: str) -> None: ...

    complete("one two three four five six")
    with pytest.raises(RateLimited):
        complete("one two three four five")
    complete("one two three four")


def test_room_can_be_waited_for(server: FakeServer) -> None:
    limiter = server.client("edge")

    @limiter.limit(key={"user": "batch"}, wait=120)
    def work() -> float:
        return server.clock.now_s()

    began_s = server.clock.now_s()
    at = [work() - began_s for _ in range(4)]
    assert at[:2] == [0, 0]
    assert 60 < at[2] <= at[3] <= 180
    limiter.check([{"user": "batch"}], cost=0)
    with pytest.raises(RateLimited), limiter.limit({"user": "batch"}, wait=0.001):
        raise AssertionError("not reached")


async def test_async_room_can_be_waited_for(server: FakeServer) -> None:
    limiter = server.async_client("edge")
    began_s = server.clock.now_s()
    for _ in range(3):
        async with limiter.limit({"user": "batch"}, wait=120):
            pass
    assert server.clock.now_s() - began_s > 60


def test_a_dead_server_opens_or_closes_as_told(server: FakeServer) -> None:
    server.fail()
    limiter = server.client("edge")
    with limiter.limit(user="alice") as decision:
        assert decision.degraded
    with (
        pytest.raises(RateLimited, match=r"over the limit \(UNAVAILABLE: the test says so\)$"),
        limiter.limit(user="alice", on_error="closed"),
    ):
        raise AssertionError("not reached")


@pytest.mark.parametrize("arguments", [((), {}), (({"user": "a"},), {"user": "b"})])
def test_what_is_limited_must_be_said_once(server: FakeServer, arguments: Any) -> None:
    args, entries = arguments
    with pytest.raises(TypeError, match="key: give a descriptor, a list of them or a function"):
        server.client("edge").limit(*args, **entries)


async def test_functions_and_blocks_of_the_wrong_kind_are_refused(server: FakeServer) -> None:
    async def coroutine() -> None: ...
    def function() -> None: ...

    with pytest.raises(TypeError, match="is a coroutine function; AsyncHeadgate limits those"):
        server.client("edge").limit(user="a")(coroutine)
    with pytest.raises(TypeError, match="is no coroutine function; Headgate limits those"):
        server.async_client("edge").limit(user="a")(function)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a `with` block has none"), server.client("edge").limit(lambda: {"user": "a"}):
        raise AssertionError("not reached")
