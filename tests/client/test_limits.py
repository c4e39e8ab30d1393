"""`limit(…)` on functions and blocks: done within the limits, or not at all."""

import asyncio
from collections.abc import AsyncIterator
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


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"key": 5}, "descriptors: a list of mappings, got int 5"),
        ({"key": "alice"}, "descriptors: a list of mappings, got str 'alice'"),
        ({"key": {"user": 5}}, r"descriptors\[0\]\['user'\]: a value is a str, got int 5"),
        ({"user": 5}, "user: a value is a str, got int 5"),
        ({"user": "a", "cost": "x"}, "cost: an int, got str 'x'"),
        ({"user": "a", "wait": -1}, "wait: seconds, 0 or more, got -1"),
        ({"user": "a", "on_error": "opne"}, "on_error: one of 'open', 'closed', 'raise', got 'opne'"),
    ],
)
def test_what_can_not_be_meant_is_refused_where_it_is_written(
    server: FakeServer, options: dict[str, Any], complaint: str
) -> None:
    """And not at the first call, which may be in production."""
    for client in (server.client("edge"), server.async_client("edge")):
        with pytest.raises((TypeError, ValueError), match=f"^{complaint}$"):
            client.limit(**options)


def test_what_a_key_function_returns_is_checked_as_a_whole(server: FakeServer) -> None:
    """A str is not taken for a list of its letters."""
    search = server.client("edge").limit(key=lambda user: user)(lambda user: user)
    with pytest.raises(TypeError, match=r"^descriptors: a list of mappings, got str 'alice'$"):
        search("alice")


async def test_a_generator_is_limited_when_it_begins(server: FakeServer) -> None:
    limiter = server.async_client("edge")
    ended: list[int] = []

    @limiter.limit(key=lambda user: {"user": user})
    async def stream(user: str) -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            ended.append(1)

    assert [number async for number in stream("ann")] == [0, 1, 2]
    half = stream("ann")
    async for _ in half:
        break
    await half.aclose()  # type: ignore[attr-defined]
    assert ended == [1, 1], "one that is left is ended with its wrapper"
    with pytest.raises(RateLimited):
        await anext(stream("ann"))


def test_a_client_says_what_it_is(server: FakeServer) -> None:
    assert repr(server.client("edge")) == "<Headgate 'edge' at dns:///fake.headgate.test:8081>"
    assert repr(server.async_client("edge")) == "<AsyncHeadgate 'edge' at dns:///fake.headgate.test:8081>"


async def test_functions_and_blocks_of_the_wrong_kind_are_refused(server: FakeServer) -> None:
    async def coroutine() -> None: ...
    def function() -> None: ...

    with pytest.raises(TypeError, match="is a coroutine function; AsyncHeadgate limits those"):
        server.client("edge").limit(user="a")(coroutine)
    with pytest.raises(TypeError, match="is no coroutine function; Headgate limits those"):
        server.async_client("edge").limit(user="a")(function)  # type: ignore[arg-type]
    clients: list[Any] = [server.client("edge"), server.async_client("edge")]
    for client in clients:
        with pytest.raises(TypeError, match="decorates functions, got int 5"):
            client.limit(user="a")(5)
    with pytest.raises(TypeError, match="a `with` block has none"), server.client("edge").limit(lambda: {"user": "a"}):
        raise AssertionError("not reached")
