"""gRPC servers with limits, and callers that obey them, over sockets."""

import asyncio
import concurrent.futures
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from headgate_client import Code, Decision, RateLimitError
from headgate_client.middleware import grpc_client, grpc_server, grpc_server_aio
from headgate_client.middleware.grpc_call import RpcCall
from headgate_client.middleware.obeying import Obey
from headgate_client.middleware.rpc_status import denial_metadata, retry_delay_s
from headgate_client.spread import SPREAD
from headgate_client.testing import FakeClock, FakeServer

from tests.client.support import PATIENT_S

SERVICE = "test.Echo"
KINDS = ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream")


def by_user(call: RpcCall) -> dict[str, str] | None:
    user = call.headers.get("user", "nobody")
    return None if user == "admin" else {"user": user}


def handlers(behaviours: dict[str, Any]) -> grpc.GenericRpcHandler:
    makers = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_unary_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    methods: dict[str, Any] = {kind: make(behaviours[kind]) for kind, make in zip(KINDS, makers, strict=True)}
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def echo_of_threads() -> dict[str, Any]:
    return {
        "UnaryUnary": lambda request, context: request,
        "UnaryStream": lambda request, context: iter([request, request]),
        "StreamUnary": lambda requests, context: b"".join(requests),
        "StreamStream": lambda requests, context: iter(list(requests)),
    }


def echo_of_asyncio() -> dict[str, Any]:
    async def unary(request: bytes, context: Any) -> bytes:
        return request

    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        yield request

    async def join(requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def write(requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(request)

    return dict(zip(KINDS, (unary, stream, join, write), strict=True))


@pytest.fixture
def server(headgate_server: FakeServer) -> FakeServer:
    headgate_server.limit("edge", "2/minute", user="*")
    return headgate_server


@contextlib.contextmanager
def threads_server(server: FakeServer, key: Any = by_user, **options: Any) -> Iterator[tuple[str, Any]]:
    interceptor = grpc_server.RateLimitInterceptor(server.client("edge"), key, **options)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        serving = grpc.server(pool, interceptors=[interceptor], handlers=[handlers(echo_of_threads())])
        port = serving.add_insecure_port("127.0.0.1:0")
        serving.start()
        try:
            yield f"127.0.0.1:{port}", interceptor
        finally:
            serving.stop(None).wait()


@contextlib.asynccontextmanager
async def asyncio_server(server: FakeServer, key: Any = by_user, **options: Any) -> AsyncIterator[tuple[str, Any]]:
    interceptor = grpc_server_aio.RateLimitInterceptor(server.async_client("edge"), key, **options)
    serving = grpc.aio.server(interceptors=[interceptor], handlers=[handlers(echo_of_asyncio())])
    port = serving.add_insecure_port("127.0.0.1:0")
    await serving.start()
    try:
        yield f"127.0.0.1:{port}", interceptor
    finally:
        await serving.stop(None)


def call(channel: grpc.Channel, kind: str, user: str) -> Any:
    """What the method answered, whole; raises what gRPC raises."""
    method: Any = {
        "UnaryUnary": channel.unary_unary,
        "UnaryStream": channel.unary_stream,
        "StreamUnary": channel.stream_unary,
        "StreamStream": channel.stream_stream,
    }[kind](f"/{SERVICE}/{kind}")
    given = iter([b"a", b"b"]) if kind.startswith("Stream") else b"a"
    answer = method(given, timeout=PATIENT_S, metadata=(("user", user),))
    return list(answer) if kind.endswith("Stream") else answer


ANSWERS = {"UnaryUnary": b"a", "UnaryStream": [b"a", b"a"], "StreamUnary": b"ab", "StreamStream": [b"a", b"b"]}


def drive(address: str, server: FakeServer) -> None:
    """Two of each user pass, whatever the kind of method; the third says what it must."""
    with grpc.insecure_channel(address) as channel:
        for kind in KINDS:
            assert [call(channel, kind, kind) for _ in range(2)] == [ANSWERS[kind]] * 2
            with pytest.raises(grpc.RpcError) as denied:
                call(channel, kind, kind)
            assert_denial(denied.value, server.client("edge").check(user=kind).retry_after)
        assert call(channel, "UnaryUnary", "somebody else") == b"a"
        assert [call(channel, "UnaryUnary", "admin") for _ in range(4)] == [b"a"] * 4
        nothing: Any = channel.unary_unary(f"/{SERVICE}/Nothing")
        with pytest.raises(grpc.RpcError) as unknown:
            nothing(b"", timeout=PATIENT_S)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


def assert_denial(error: Any, retry_after: float) -> None:
    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "over the rate limit")
    metadata = dict(error.trailing_metadata())
    assert metadata["ratelimit-limit"] == "2"
    assert int(metadata["retry-after"]) >= retry_after
    # As everybody's gRPC reads it: with the official messages.
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    assert (status.code, status.message) == (8, "over the rate limit")
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert retry_after * 1000 - 1 <= info.retry_delay.ToMilliseconds() <= retry_after * 1000 * (1 + SPREAD) + 1
    assert retry_delay_s(error.trailing_metadata()) == info.retry_delay.ToMilliseconds() / 1000


def test_a_server_of_threads(server: FakeServer) -> None:
    with threads_server(server) as (address, _):
        drive(address, server)


async def test_a_server_of_asyncio(server: FakeServer) -> None:
    async with asyncio_server(server) as (address, _):
        await asyncio.to_thread(drive, address, server)


async def test_exempt_methods_and_a_dry_run(server: FakeServer) -> None:
    def four_times(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            assert [call(channel, "UnaryUnary", "alice") for _ in range(4)] == [b"a"] * 4

    for exempt in ([f"/{SERVICE}/*"], [f"/{SERVICE}/UnaryUnary"]):
        with threads_server(server, exempt=exempt) as (address, _):
            four_times(address)
        async with asyncio_server(server, exempt=exempt) as (address, _):
            await asyncio.to_thread(four_times, address)
    assert server.requests == []
    with threads_server(server, dry_run=True) as (address, interceptor):
        four_times(address)
        assert interceptor.gate.would_deny == 2
    async with asyncio_server(server, dry_run=True) as (address, interceptor):
        await asyncio.to_thread(four_times, address)
        assert interceptor.gate.would_deny == 4


async def test_a_key_function_that_aborts_is_the_answer_and_one_that_fails_is_not(server: FakeServer) -> None:
    def of_threads(rpc: RpcCall) -> dict[str, int]:
        if rpc.headers["user"] == "stranger":
            rpc.context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        return {"user": int(rpc.headers["user"])}

    async def of_asyncio(rpc: RpcCall) -> dict[str, int]:
        if rpc.headers["user"] == "stranger":
            await rpc.context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        return {"user": int(rpc.headers["user"])}

    def drive_keys(address: str, user: str) -> None:
        with grpc.insecure_channel(address) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                call(channel, "UnaryUnary", "stranger")
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert [call(channel, "UnaryUnary", "no number") for _ in range(3)] == [b"a"] * 3, "on_error is open"
            assert [call(channel, "UnaryUnary", user) for _ in range(2)] == [b"a"] * 2
            with pytest.raises(grpc.RpcError):
                call(channel, "UnaryUnary", user)

    with threads_server(server, of_threads) as (address, _):
        drive_keys(address, "1")
    async with asyncio_server(server, of_asyncio) as (address, _):
        await asyncio.to_thread(drive_keys, address, "2")


def test_what_a_key_function_sees(server: FakeServer) -> None:
    seen: list[RpcCall] = []
    peers: list[Any] = []

    def key(call: RpcCall) -> None:
        seen.append(call)
        peers.append(call.client)

    interceptor = grpc_server.RateLimitInterceptor(server.client("edge"), key)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        serving = grpc.server(pool, interceptors=[interceptor], handlers=[handlers(echo_of_threads())])
        port = serving.add_insecure_port("127.0.0.1:0")
        serving.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call(channel, "UnaryUnary", "alice")
        serving.stop(None).wait()
    assert (seen[0].method, seen[0].headers["user"]) == (f"/{SERVICE}/UnaryUnary", "alice")
    assert peers[0].host == "127.0.0.1"


def test_peers_of_all_kinds() -> None:
    class Context:
        def __init__(self, text: str) -> None:
            self._text = text

        def peer(self) -> str:
            return self._text

    def client(text: str) -> Any:
        return RpcCall("/a/b", (), Context(text)).client

    assert client("ipv4:10.0.0.1:5000") == ("10.0.0.1", 5000)
    assert client("ipv6:[2001:db8::1]:5000") == ("2001:db8::1", 5000)
    assert client("ipv6:%5B::1%5D:5000") == ("::1", 5000)
    assert client("unix:/run/x.sock") is None


def test_a_client_of_the_other_kind_is_refused(server: FakeServer) -> None:
    with pytest.raises(TypeError, match=r"limiter: a gRPC server of threads needs a headgate_client\.Headgate"):
        grpc_server.RateLimitInterceptor(server.async_client("edge"), by_user)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"limiter: a gRPC server of asyncio needs a headgate_client\.AsyncHeadgate"):
        grpc_server_aio.RateLimitInterceptor(server.client("edge"), by_user)  # type: ignore[arg-type]


# Callers that obey


def test_a_caller_of_threads_waits_as_it_is_told(server: FakeServer) -> None:
    obey = Obey(attempts=3, max_wait=300, clock=server.clock)
    with threads_server(server) as (address, _), grpc.insecure_channel(address) as plain:
        channel = grpc.intercept_channel(plain, grpc_client.RetryInfoInterceptor(obey))
        began_s = server.clock.now_s()
        assert [call(channel, "UnaryUnary", "alice") for _ in range(3)] == [b"a"] * 3
        assert server.clock.now_s() - began_s > 60, "the third waited for its window"
        hasty = grpc.intercept_channel(plain, grpc_client.RetryInfoInterceptor(Obey(max_wait=1, clock=server.clock)))
        waited_s = server.clock.now_s()
        call(channel, "UnaryUnary", "bob"), call(channel, "UnaryUnary", "bob")
        with pytest.raises(grpc.RpcError) as denied:
            call(hasty, "UnaryUnary", "bob")
        assert denied.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.clock.now_s() == waited_s, "a wait that is too long is not begun"


async def test_a_caller_of_asyncio_waits_as_it_is_told(server: FakeServer) -> None:
    obey = Obey(attempts=3, max_wait=300, clock=server.clock)
    async with (
        asyncio_server(server) as (address, _),
        grpc.aio.insecure_channel(address, interceptors=[grpc_client.AsyncRetryInfoInterceptor(obey)]) as channel,
    ):
        method: Any = channel.unary_unary(f"/{SERVICE}/UnaryUnary")
        began_s = server.clock.now_s()
        for _ in range(3):
            assert await method(b"x", metadata=(("user", "alice"),), timeout=PATIENT_S) == b"x"
        assert server.clock.now_s() - began_s > 60
        for _ in range(2):
            await method(b"x", metadata=(("user", "bob"),), timeout=PATIENT_S)
        server.limit("edge", "0/day", user="bob")
        with pytest.raises(grpc.aio.AioRpcError, match="over the rate limit"):
            await method(b"x", metadata=(("user", "bob"),), timeout=PATIENT_S)


POLICY = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.001s",
                "maxBackoff": "0.001s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}
"""gRPC's own, which would come back after a millisecond."""


@pytest.mark.parametrize(("rate", "tries"), [("10/second", 2), ("10/hour", 1)])
@pytest.mark.slow
def test_grpcs_own_retry_policies_obey(headgate_server: FakeServer, rate: str, tries: int) -> None:
    """They come back when there is room; where that is too long to wait, they are told not to."""
    headgate_server.limit("edge", rate, user="*")
    limiter = headgate_server.client("edge")
    limiter.check(user="alice", cost=10)
    waits = limiter.check(user="alice").retry_after
    came_s: list[float] = []

    def key(call: RpcCall) -> dict[str, str]:
        came_s.append(time.monotonic())
        if len(came_s) == 2:
            headgate_server.clock.advance(2)
        return {"user": "alice"}

    interceptor = grpc_server.RateLimitInterceptor(limiter, key)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        serving = grpc.server(pool, interceptors=[interceptor], handlers=[handlers(echo_of_threads())])
        port = serving.add_insecure_port("127.0.0.1:0")
        serving.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.service_config", json.dumps(POLICY))]) as channel:
            if tries == 1:
                with pytest.raises(grpc.RpcError, match="over the rate limit"):
                    call(channel, "UnaryUnary", "alice")
            else:
                assert call(channel, "UnaryUnary", "alice") == b"a"
                assert came_s[1] - came_s[0] >= waits - 0.01, "not after its own millisecond"
        serving.stop(None).wait()
    assert len(came_s) == tries


def test_a_denial_that_nobody_knows_the_end_of_is_not_for_at_once() -> None:
    denied = Decision(Code.OVER_LIMIT, error=RateLimitError("UNAVAILABLE", "away"))
    assert retry_delay_s(denial_metadata(denied)) == 1.0


def test_denials_are_told_times_apart_the_same_in_all_forms_of_one(headgate_server: FakeServer) -> None:
    """Never before the time that the server told, and up to a fifth later."""
    headgate_server.limit("edge", "1/minute", user="*")
    limiter = headgate_server.client("edge")
    limiter.check(user="alice")
    denied = limiter.check(user="alice")
    chance = Random(3)
    seen = set()
    for _ in range(55):
        metadata = dict(denial_metadata(denied, chance.random))
        wait_s = retry_delay_s(metadata.items())
        assert wait_s is not None
        seen.add(wait_s)
        whole_s = str(math.ceil(wait_s))
        assert (metadata["retry-after"], metadata["ratelimit-reset"]) == (whole_s, whole_s)
    assert denied.retry_after <= min(seen) < max(seen) <= denied.retry_after * (1 + SPREAD) + 0.001
    assert len(seen) > 50


@pytest.mark.parametrize(
    ("metadata", "delay_s"),
    [
        (None, None),
        ([("retry-after", "7")], 7.0),
        ([("grpc-retry-pushback-ms", "250")], 0.25),
        ([("grpc-retry-pushback-ms", "-1"), ("retry-after", "7")], 7.0),
        ([("retry-after", "soon")], None),
        ([("retry-after", "-1")], None),
        ([("retry-after", "inf")], None),
        ([("grpc-status-details-bin", b"\xff\xff"), ("retry-after", "7")], 7.0),
        ([("grpc-status-details-bin", status_pb2.Status(code=8).SerializeToString())], None),
    ],
)
def test_what_a_status_says_of_when(metadata: Any, delay_s: float | None) -> None:
    assert retry_delay_s(metadata) == delay_s


def test_a_status_without_a_time_is_not_repeated(server: FakeServer) -> None:
    """A message that is too big is RESOURCE_EXHAUSTED too, and will be the next time."""
    tries: list[int] = []

    def too_big(request: bytes, context: grpc.ServicerContext) -> bytes:
        tries.append(1)
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too big")
        raise AssertionError

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        behaviours = {**echo_of_threads(), "UnaryUnary": too_big}
        serving = grpc.server(pool, handlers=[handlers(behaviours)])
        port = serving.add_insecure_port("127.0.0.1:0")
        serving.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as plain:
            channel = grpc.intercept_channel(plain, grpc_client.RetryInfoInterceptor(Obey(clock=FakeClock())))
            with pytest.raises(grpc.RpcError, match="too big"):
                call(channel, "UnaryUnary", "alice")
        serving.stop(None).wait()
    assert tries == [1]
