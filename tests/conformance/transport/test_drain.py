"""Stopping loses no answer, takes no longer than it may, and tells those it can't wait for."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress

import grpc
import pytest

from tests.conformance.transport.harness import (
    TIMEOUT_S,
    Kind,
    Server,
    call,
    dialled,
    eventually,
    serving,
    status_of_call,
)
from tests.conformance.transport.server_process import server_process


@pytest.mark.usefixtures("unhurried")
async def test_every_call_in_flight_gets_its_answer(server: Server, channel: grpc.aio.Channel) -> None:
    """Half are answered at once, half late, the last of them just before the end."""
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[bytes]] = []

    def answer(payload: bytes) -> "bytes | asyncio.Future[bytes]":
        if int(payload) % 2:
            return payload
        future = loop.create_future()
        futures.append(future)
        loop.call_later(0.0002 * int(payload), future.set_result, payload)
        return future

    server.script.reply = answer
    pending = [call(channel, b"%d" % number) for number in range(600)]
    await eventually(lambda: len(server.script.payloads) >= 100)
    server.transport.set_serving(False)
    stopping = asyncio.create_task(server.transport.stop(TIMEOUT_S))
    assert await asyncio.gather(*pending) == [b"%d" % number for number in range(600)]
    await stopping


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("attempt", range(3))
async def test_answers_given_at_the_very_end_arrive(kind: Kind, attempt: int) -> None:
    """The last answer ends the wait, and the close comes right after it."""
    async with serving(kind) as server, dialled(server.address) as channel:
        futures = [asyncio.get_running_loop().create_future() for _ in range(100)]
        waiting = iter(futures)
        server.script.reply = lambda _payload: next(waiting)
        pending = [call(channel) for _ in futures]
        await eventually(lambda: server.transport.stats.pending_calls == 100)
        stopping = asyncio.create_task(server.transport.stop(TIMEOUT_S))
        await asyncio.sleep(0)  # it has begun to wait
        for future in futures:
            future.set_result(b"at last")
        assert await asyncio.gather(*pending) == [b"at last"] * 100
        await stopping


@pytest.mark.usefixtures("unhurried")
async def test_calls_are_answered_while_it_waits(server: Server, channel: grpc.aio.Channel) -> None:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    server.script.reply = future
    pending = call(channel)
    # It counts as pending before the handler has it, which would then be asked for the next one's answer.
    await eventually(lambda: server.script.payloads == [b""])
    stopping = asyncio.create_task(server.transport.stop(TIMEOUT_S))
    server.script.reply = None
    assert await call(channel, b"late") == b"echo:late"
    assert not stopping.done()
    future.set_result(b"done")
    assert await pending == b"done"
    await stopping


@pytest.mark.usefixtures("unhurried")
async def test_waiting_is_bounded_and_the_rest_is_told(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without reflection's server, whose end would take the time that answers need to leave.
    monkeypatch.setattr("tempfile.mkdtemp", _no_directory)
    async with serving(kind) as server, AsyncExitStack() as stack:
        server.script.reply = lambda _payload: asyncio.get_running_loop().create_future()
        channels = [await stack.enter_async_context(dialled(server.address)) for _ in range(4)]
        pending = [call(channel) for channel in channels for _ in range(100)]
        await eventually(lambda: server.transport.stats.pending_calls == 400)
        began = time.monotonic()
        await server.transport.stop(0.2)
        assert time.monotonic() - began >= 0.2
        outcomes = await asyncio.gather(*(status_of_call(each) for each in pending))
        assert set(outcomes) == {(grpc.StatusCode.UNAVAILABLE, "the server is stopping")}


def _no_directory(**_options: str) -> str:
    raise FileNotFoundError("no usable temporary directory")


async def test_an_idle_server_stops_at_once(kind: Kind) -> None:
    async with serving(kind) as server, dialled(server.address) as channel:
        assert await call(channel, b"x") == b"echo:x"
        await _stops_early(server)


async def _stops_early(server: Server) -> None:
    """Long before the time is over that it may wait for calls: there is none to wait for."""
    began = time.monotonic()
    await server.transport.stop(2 * TIMEOUT_S)
    assert time.monotonic() - began < TIMEOUT_S


@pytest.mark.usefixtures("unhurried")
async def test_callers_who_keep_coming_do_not_hold_it_up(server: Server, channel: grpc.aio.Channel) -> None:
    """They get an answer, or UNAVAILABLE, which says that trying elsewhere is safe."""
    outcomes: set[object] = set()
    messages: set[str | None] = set()

    async def keep_calling() -> None:
        while True:
            try:
                outcomes.add(await call(channel, b"x"))
            except grpc.aio.AioRpcError as error:
                outcomes.add(error.code())
                messages.add(error.details())
                return

    callers = [asyncio.create_task(keep_calling()) for _ in range(20)]
    await eventually(lambda: server.transport.stats.calls > 100)
    await server.transport.stop(0.3)  # it returns, though they never cease
    await asyncio.gather(*callers)
    assert outcomes == {b"echo:x", grpc.StatusCode.UNAVAILABLE}
    # Most are told before the connection goes.
    assert "the server is stopping" in messages


async def test_health_checks_do_not_hold_it_up(server: Server, channel: grpc.aio.Channel) -> None:
    """Many proxies ask all the time, and most of all while they are told to go."""

    async def keep_checking() -> None:
        with suppress(grpc.aio.AioRpcError):
            while True:
                await call(channel, b"", method="/grpc.health.v1.Health/Check")

    checking = asyncio.create_task(keep_checking())
    await _stops_early(server)
    await checking
    assert server.transport.stats.calls == 0


async def test_stopping_twice_is_harmless(server: Server) -> None:
    await asyncio.gather(server.transport.stop(1), server.transport.stop(1))
    await server.transport.stop(1)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_signal_is_not_kept_waiting(kind: Kind, busy: bool) -> None:
    """Python runs signal handlers on the main thread, which must not sit in a receive."""
    with server_process(kind) as process:
        async with dialled(process.address) as channel:
            assert await call(channel, b"x") == b"echo:x"
            callers = [asyncio.create_task(_call_until_it_fails(channel)) for _ in range(10 if busy else 0)]
            assert await process.terminate() == 0
            await asyncio.gather(*callers)


async def _call_until_it_fails(channel: grpc.aio.Channel) -> None:
    try:
        while True:
            await call(channel, b"x")
    except grpc.aio.AioRpcError:
        pass
