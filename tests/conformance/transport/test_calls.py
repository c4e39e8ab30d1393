"""Calls get the handler's bytes, or a status with a message that says why not."""

import asyncio
import threading

import grpc
import pytest
from headgate.errors import BadRequest, NotReady, RequestError, TooLarge

from tests.conformance.transport.harness import Server, call, eventually, status_of_call


async def test_handler_gets_the_raw_bytes_and_its_bytes_are_the_answer(
    server: Server, channel: grpc.aio.Channel
) -> None:
    payload = bytes(range(256))
    assert await call(channel, payload) == b"echo:" + payload
    assert await call(channel, b"") == b"echo:"
    assert server.script.payloads == [payload, b""]


async def test_empty_answer_is_an_answer(server: Server, channel: grpc.aio.Channel) -> None:
    server.script.reply = b""
    assert await call(channel) == b""


async def test_future_answers_when_it_is_resolved(server: Server, channel: grpc.aio.Channel) -> None:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    server.script.reply = future
    pending = call(channel, b"x")
    await eventually(lambda: server.transport.stats.pending_calls == 1)
    assert not pending.done()
    assert server.transport.stats.pending_bytes == 1
    future.set_result(b"late")
    assert await pending == b"late"
    await eventually(lambda: server.transport.stats.pending_calls == 0)
    assert server.transport.stats.pending_bytes == 0


async def test_many_calls_at_once_get_their_own_answers(server: Server, channel: grpc.aio.Channel) -> None:
    payloads = [str(number).encode() for number in range(500)]
    answers = await asyncio.gather(*(call(channel, payload) for payload in payloads))
    assert answers == [b"echo:" + payload for payload in payloads]
    assert server.transport.stats.calls == 500


@pytest.mark.parametrize("how", ["raised", "from the future"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadRequest("the domain is empty"), grpc.StatusCode.INVALID_ARGUMENT),
        (NotReady("no rules yet"), grpc.StatusCode.UNAVAILABLE),
        (TooLarge("too many descriptors"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (BadRequest("key 'naïve 日本' 100%\n\x00"), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_request_errors_keep_status_and_message(
    server: Server, channel: grpc.aio.Channel, error: RequestError, code: grpc.StatusCode, how: str
) -> None:
    server.script.reply = error if how == "raised" else _failed(error)
    assert await status_of_call(call(channel)) == (code, str(error))
    assert server.transport.stats.failed_internal == 0
    assert server.events() == []


@pytest.mark.parametrize("how", ["raised", "from the future"])
async def test_unexpected_errors_are_internal_and_logged(server: Server, channel: grpc.aio.Channel, how: str) -> None:
    """Never UNKNOWN, which Envoy lets pass; and the caller learns nothing of our insides."""
    error = ZeroDivisionError("a secret")
    server.script.reply = error if how == "raised" else _failed(error)
    assert await status_of_call(call(channel)) == (grpc.StatusCode.INTERNAL, "internal error")
    assert server.transport.stats.failed_internal == 1
    assert [entry.kwargs["exc_info"] for entry in server.log.calls] == [error]


async def test_a_fault_in_every_call_logs_a_bounded_number_of_lines(server: Server, channel: grpc.aio.Channel) -> None:
    server.script.reply = KeyError("again")
    await asyncio.gather(*(status_of_call(call(channel)) for _ in range(100)))
    assert server.transport.stats.failed_internal == 100
    assert 1 <= len(server.events()) <= 10


@pytest.mark.parametrize("nonsense", ["text", 42, bytearray(b"x")])
@pytest.mark.parametrize("how", ["returned", "from the future"])
async def test_an_answer_that_is_not_bytes_is_internal(
    server: Server, channel: grpc.aio.Channel, nonsense: object, how: str
) -> None:
    server.script.reply = nonsense if how == "returned" else _resolved(nonsense)
    assert (await status_of_call(call(channel)))[0] == grpc.StatusCode.INTERNAL
    await eventually(lambda: server.transport.stats.pending_calls == 0)


async def test_long_or_broken_messages_still_arrive(server: Server, channel: grpc.aio.Channel) -> None:
    server.script.reply = BadRequest("x" * 100_000)
    assert await status_of_call(call(channel)) == (grpc.StatusCode.INVALID_ARGUMENT, "x" * 1024)
    server.script.reply = BadRequest("half a surrogate: \ud800")
    assert await status_of_call(call(channel)) == (grpc.StatusCode.INVALID_ARGUMENT, "half a surrogate: ?")


async def test_an_error_that_comes_later_has_its_status(server: Server, channel: grpc.aio.Channel) -> None:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    server.script.reply = future
    pending = call(channel)
    await eventually(lambda: server.transport.stats.pending_calls == 1)
    future.set_exception(NotReady("not now"))
    assert await status_of_call(pending) == (grpc.StatusCode.UNAVAILABLE, "not now")


async def test_a_caller_who_goes_away_does_not_cancel_the_handlers_future(
    server: Server, channel: grpc.aio.Channel
) -> None:
    """What it decides has been charged: others may wait for the same future."""
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    server.script.reply = future
    pending = call(channel)
    # It counts as pending before the handler has it, which would then be asked for the next one's answer.
    await eventually(lambda: server.script.payloads == [b""])
    pending.cancel()
    # A later call on the same connection has been through: so has the cancellation.
    server.script.reply = None
    assert await call(channel, b"next") == b"echo:next"
    assert not future.cancelled()
    assert server.transport.stats.pending_calls == 1
    future.set_exception(ValueError("nobody hears this"))
    await eventually(lambda: server.transport.stats.pending_calls == 0)


@pytest.mark.parametrize(
    "method", ["/envoy.service.ratelimit.v3.RateLimitService/Nope", "/no.such.Service/Method", "/", "/x"]
)
async def test_unknown_methods_are_unimplemented(server: Server, channel: grpc.aio.Channel, method: str) -> None:
    assert (await status_of_call(call(channel, method=method)))[0] == grpc.StatusCode.UNIMPLEMENTED
    assert server.script.payloads == []


def _failed(error: Exception) -> "asyncio.Future[bytes]":
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def _resolved(value: object) -> "asyncio.Future[object]":
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("kind", ["native", "guarded"])
async def test_what_needs_nobody_is_decided_where_it_is_received_and_the_rest_on_the_loop(
    server: Server, channel: grpc.aio.Channel
) -> None:
    assert await call(channel, b"at once") == b"echo:at once"
    later = asyncio.get_running_loop().create_future()
    server.script.reply = lambda _: later
    pending = call(channel, b"later")
    await eventually(lambda: len(server.script.payloads) == 2)
    later.set_result(b"decided")
    assert await pending == b"decided"
    assert server.script.threads == ["headgate-receive", threading.main_thread().name]
    await eventually(lambda: server.transport.stats.pending_calls == 0)
    assert server.transport.stats.pending_bytes == 0
