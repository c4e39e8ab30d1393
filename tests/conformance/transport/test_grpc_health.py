"""gRPC health: "" and "ratelimit" are known, and draining shows at once."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2
from headgate.transport.health import MAX_WATCHERS, MAX_WATCHERS_EACH
from headgate.transport.interface import TransportLimits

from tests.conformance.transport.harness import (
    TIMEOUT_S,
    Kind,
    Server,
    call,
    dialled,
    eventually,
    make_transport,
    serving,
    status_of_call,
)
from tests.conformance.transport.raw import call_headers, message, raw_client
from tests.conformance.transport.server_process import ServerProcess, server_process

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def _request(service: str) -> bytes:
    return health_pb2.HealthCheckRequest(service=service).SerializeToString()


async def _check(channel: grpc.aio.Channel, service: str) -> int:
    answer = await call(channel, _request(service), method=CHECK)
    return int(health_pb2.HealthCheckResponse.FromString(answer).status)


def _watch(channel: grpc.aio.Channel, payload: bytes) -> "grpc.aio.UnaryStreamCall[bytes, bytes]":
    caller: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH)
    return caller(payload)


class Watch:
    def __init__(self, channel: grpc.aio.Channel, service: str) -> None:
        self.stream = _watch(channel, _request(service))

    async def next(self) -> int:
        answer = await asyncio.wait_for(self.stream.read(), TIMEOUT_S)
        assert isinstance(answer, bytes)
        return int(health_pb2.HealthCheckResponse.FromString(answer).status)


@pytest.mark.parametrize("service", ["", "ratelimit"])
async def test_check_follows_what_is_set(server: Server, channel: grpc.aio.Channel, service: str) -> None:
    assert await _check(channel, service) == SERVING
    server.transport.set_serving(False)
    assert await _check(channel, service) == NOT_SERVING
    server.transport.set_serving(True)
    assert await _check(channel, service) == SERVING


async def test_not_serving_until_told(kind: Kind) -> None:
    transport, _ = make_transport(kind)
    await transport.start()
    async with dialled(transport.address) as channel:
        assert await _check(channel, "") == NOT_SERVING
        # Calls are answered all the same: health is advice to those who ask.
        assert await call(channel, b"x") == b"echo:x"
    await transport.stop(0)


@pytest.mark.parametrize("service", ["envoy.service.ratelimit.v3.RateLimitService", "Ratelimit", " "])
async def test_check_of_anything_else_is_not_found(server: Server, channel: grpc.aio.Channel, service: str) -> None:
    code, details = await status_of_call(call(channel, _request(service), method=CHECK))
    assert code == grpc.StatusCode.NOT_FOUND
    assert repr(service) in (details or "")


async def test_malformed_requests_are_invalid(server: Server, channel: grpc.aio.Channel) -> None:
    expected = (grpc.StatusCode.INVALID_ARGUMENT, "malformed HealthCheckRequest")
    assert await status_of_call(call(channel, b"\xff\xff", method=CHECK)) == expected
    assert await status_of_call(_watch(channel, b"\xff\xff").read()) == expected


@pytest.mark.parametrize("service", ["", "ratelimit"])
async def test_watch_tells_the_status_and_every_change(server: Server, channel: grpc.aio.Channel, service: str) -> None:
    watch = Watch(channel, service)
    assert await watch.next() == SERVING
    server.transport.set_serving(True)  # no change, no message
    server.transport.set_serving(False)
    assert await watch.next() == NOT_SERVING
    server.transport.set_serving(True)
    assert await watch.next() == SERVING
    watch.stream.cancel()


@pytest.mark.usefixtures("unhurried")
async def test_watch_of_an_unknown_service_stays_open_and_silent(kind: Kind) -> None:
    async with serving(kind) as server, dialled(server.address) as channel:
        unknown, known = Watch(channel, "nobody"), Watch(channel, "")
        assert await unknown.next() == SERVICE_UNKNOWN
        assert await known.next() == SERVING
        server.transport.set_serving(False)
        assert await known.next() == NOT_SERVING
        await server.transport.stop(TIMEOUT_S)
        # The next that it hears is the end.
        assert (await status_of_call(unknown.stream.read()))[0] == grpc.StatusCode.UNAVAILABLE


@pytest.mark.usefixtures("unhurried")
async def test_watch_streams_end_with_the_server(kind: Kind) -> None:
    async with serving(kind) as server, dialled(server.address) as channel:
        watch = Watch(channel, "")
        assert await watch.next() == SERVING
        server.transport.set_serving(False)
        await server.transport.stop(TIMEOUT_S)
        assert await watch.next() == NOT_SERVING
        assert await status_of_call(watch.stream.read()) == (grpc.StatusCode.UNAVAILABLE, "the server is stopping")


async def test_number_of_watch_streams_is_bounded_and_those_that_end_count_no_more(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.transport.health.MAX_WATCHERS_EACH", MAX_WATCHERS)
    async with serving(kind, limits=TransportLimits(max_concurrent_streams=1000)) as server:
        async with dialled(server.address) as channel:
            watches = [Watch(channel, "") for _ in range(MAX_WATCHERS)]
            assert await asyncio.gather(*(watch.next() for watch in watches)) == [SERVING] * MAX_WATCHERS
            code, _ = await status_of_call(Watch(channel, "").stream.read())
            assert code == grpc.StatusCode.UNAVAILABLE
            assert await _check(channel, "") == SERVING
            watches[0].stream.cancel()
            # On a connection that is closed, or one stream that is cancelled: the place is free again.
            await _eventually_watchable(channel)
        async with dialled(server.address) as channel:
            await _eventually_watchable(channel)


async def test_one_caller_takes_its_part_of_the_watch_streams_and_others_have_theirs(kind: Kind) -> None:
    """By address, on as many connections as it likes. In a process of its own: the front numbers connections in one."""
    with server_process(kind) as server:
        await _take_watches(server)


async def _take_watches(server: ServerProcess) -> None:
    async with dialled(server.address) as one, dialled(server.address) as two:
        watches = [Watch(channel, "") for channel in (one, two) for _ in range(MAX_WATCHERS_EACH // 2)]
        assert await asyncio.gather(*(watch.next() for watch in watches)) == [SERVING] * MAX_WATCHERS_EACH
        for channel in (one, two):
            code, details = await status_of_call(Watch(channel, "").stream.read())
            assert code == grpc.StatusCode.UNAVAILABLE
            assert details == f"overloaded: more than {MAX_WATCHERS_EACH} Watch streams of this caller are open"
        async with raw_client(server.port, source="127.0.0.2") as other:
            await other.open(call_headers(**{":path": WATCH}), message(_request("")))
            assert message(health_pb2.HealthCheckResponse(status=SERVING).SerializeToString()) in await other.data()


async def _eventually_watchable(channel: grpc.aio.Channel) -> None:
    async def attempt() -> bool:
        watch = Watch(channel, "")
        try:
            return await watch.next() == SERVING
        except grpc.aio.AioRpcError:
            return False
        finally:
            watch.stream.cancel()

    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    while not await attempt():
        assert asyncio.get_running_loop().time() < deadline


async def test_overload_does_not_look_like_death(kind: Kind) -> None:
    """Health is answered while calls are refused: an overloaded server must not be taken out as dead."""
    async with serving(kind, limits=TransportLimits(max_pending_calls=2)) as server:
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        waiting = iter(futures)
        server.script.reply = lambda _payload: next(waiting)
        async with dialled(server.address) as channel:
            pending = [call(channel) for _ in futures]
            await eventually(lambda: server.transport.stats.pending_calls == 2)
            assert (await status_of_call(call(channel)))[0] == grpc.StatusCode.UNAVAILABLE
            assert await _check(channel, "") == SERVING
            for future in futures:
                future.set_result(b"")
            await asyncio.gather(*pending)
