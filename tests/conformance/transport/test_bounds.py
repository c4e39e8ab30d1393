"""What is pending is bounded, and what comes too late is dropped."""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import grpc
import pytest
from headgate.transport.interface import TransportLimits

from tests.conformance.transport.harness import Kind, Server, call, dialled, eventually, serving, status_of_call
from tests.conformance.transport.raw import BlockingClient, call_headers, message, raw_client

STALL_S = 1.0
"""How long the loop is busy: ten times the timeout of the calls that are to expire meanwhile."""


def _futures(server: Server) -> "dict[bytes, asyncio.Future[bytes]]":
    """Have the handler answer with futures, which are collected here by payload."""
    made: dict[bytes, asyncio.Future[bytes]] = {}

    def answer(payload: bytes) -> "asyncio.Future[bytes]":
        made[payload] = asyncio.get_running_loop().create_future()
        return made[payload]

    server.script.reply = answer
    return made


async def test_calls_beyond_the_bound_are_refused_until_others_finish(kind: Kind) -> None:
    async with serving(kind, limits=TransportLimits(max_pending_calls=3)) as server:
        futures = _futures(server)
        async with dialled(server.address) as channel:
            pending = {payload: call(channel, payload) for payload in (b"1", b"2", b"3")}
            await eventually(lambda: len(futures) == 3)
            code, details = await status_of_call(call(channel, b"4"))
            assert code == grpc.StatusCode.UNAVAILABLE
            assert details == "overloaded: more than 3 calls or 67108864 bytes are pending"
            assert server.transport.stats.refused_overload == 1
            assert b"4" not in futures

            futures[b"1"].set_result(b"done")
            assert await pending.pop(b"1") == b"done"
            pending[b"5"] = call(channel, b"5")
            await eventually(lambda: b"5" in futures)
            for payload in pending:
                futures[payload].set_result(b"done")
            assert await asyncio.gather(*pending.values()) == [b"done"] * 3


async def test_bytes_beyond_the_bound_are_refused_until_others_finish(kind: Kind) -> None:
    async with serving(kind, limits=TransportLimits(max_pending_bytes=1000)) as server:
        futures = _futures(server)
        async with dialled(server.address) as channel:
            pending = [call(channel, b"x" * 600)]
            await eventually(lambda: len(futures) == 1)
            code, details = await status_of_call(call(channel, b"x" * 401))
            assert code == grpc.StatusCode.UNAVAILABLE
            assert details == "overloaded: more than 10000 calls or 1000 bytes are pending"
            pending.append(call(channel, b"x" * 400))
            await eventually(lambda: len(futures) == 2)
            for future in futures.values():
                future.set_result(b"done")
            assert await asyncio.gather(*pending) == [b"done"] * 2
            assert server.transport.stats.pending_bytes == 0


async def test_calls_whose_callers_went_away_still_count(kind: Kind) -> None:
    """Their work goes on behind the handler: else callers who hang up early could pile it up."""
    async with serving(kind, limits=TransportLimits(max_pending_calls=3)) as server:
        futures = _futures(server)
        async with dialled(server.address) as channel:
            pending = [call(channel, payload) for payload in (b"1", b"2", b"3")]
            await eventually(lambda: len(futures) == 3)
            for each in pending:
                each.cancel()
            assert (await status_of_call(call(channel)))[0] == grpc.StatusCode.UNAVAILABLE
            for future in futures.values():
                future.set_result(b"")
            server.script.reply = None
            await eventually(lambda: server.transport.stats.pending_calls == 0)
            assert await call(channel, b"x") == b"echo:x"


async def test_a_call_that_expired_while_the_loop_was_busy_is_dropped(kind: Kind, server: Server) -> None:
    """Neither handled nor answered: its caller is gone, and a decision would charge it."""
    async with raw_client(server.port) as client:
        first = await client.open(call_headers(), message(b"warm"))
        assert (await client.outcome(first))["grpc-status"] == "0"
        await client.open(call_headers(grpc_timeout="100m"), message(b"late"))
        time.sleep(STALL_S)  # noqa: ASYNC251 - a loop that is busy, and holds its lock
        patient = await client.open(call_headers(grpc_timeout="30S"), message(b"patient"))
        assert (await client.outcome(patient))["grpc-status"] == "0"
    assert server.transport.stats.pending_calls == 0
    if kind == "guarded":
        return  # it is on the same loop, and passes the call on when the loop has time: its deadline runs from then on
    assert server.script.payloads == [b"warm", b"patient"]
    # grpc-core drops it by itself, before we see it.
    assert kind == "grpcio" or server.transport.stats.dropped_expired == 1


async def test_deadlines_that_are_met_do_no_harm(server: Server, channel: grpc.aio.Channel) -> None:
    for timeout_s in (30.5, 50, 500, 50_000):
        assert await call(channel, b"x", timeout_s=timeout_s) == b"echo:x"
    assert server.transport.stats.dropped_expired == 0


async def test_an_answer_after_the_deadline_is_harmless(server: Server, channel: grpc.aio.Channel) -> None:
    futures, timeout_s = _futures(server), 0.05
    while not futures:  # the server must have got the call before that
        code, _ = await status_of_call(call(channel, b"within %g s" % timeout_s, timeout_s=timeout_s))
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        timeout_s *= 2
    server.script.reply = None
    for future in futures.values():
        future.set_result(b"too late")
    assert await call(channel, b"x") == b"echo:x"
    await eventually(lambda: server.transport.stats.pending_calls == 0)


async def test_a_busy_loop_answers_everything_that_waited(server: Server, channel: grpc.aio.Channel) -> None:
    server.script.reply = _stall_on(b"stall", seconds=0.3)
    pending = [call(channel, payload) for payload in (b"stall", *(b"x%d" % number for number in range(50)))]
    answers = await asyncio.gather(*pending)
    assert answers == [b"ok"] * 51


def _stall_on(payload: bytes, *, seconds: float) -> Callable[[bytes], bytes]:
    """Block the loop, as code that computes too long does."""

    def answer(received: bytes) -> bytes:
        if received == payload:
            time.sleep(seconds)
        return b"ok"

    return answer


_CONNECTIONS, _CALLS_EACH = 20, 90


@pytest.mark.parametrize("kind", ["native", "grpcio"])
async def test_calls_that_pile_up_before_a_busy_loop_are_never_cancelled(server: Server) -> None:
    """Each gets a decision or UNAVAILABLE: callers try again after that, and not after CANCELLED.

    A guard is on the same loop: before it calls wait in the kernel, and none can pile up.
    """
    all_received = threading.Event()
    server.script.reply = partial(_stand_still, all_received)
    statuses = await asyncio.to_thread(_pile_up, server.port, all_received)
    assert all_received.is_set()
    assert sum(statuses.values()) == _CONNECTIONS * _CALLS_EACH
    assert set(statuses) <= {"0", "14"}


def _stand_still(until: threading.Event, _payload: bytes) -> None:
    assert until.wait(60)


def _pile_up(port: int, all_received: threading.Event) -> Counter[str]:
    """Many calls at once on many connections; how they ended, by status."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(BlockingClient(port)) for _ in range(_CONNECTIONS)]
        for client in clients:
            for _ in range(_CALLS_EACH):
                stream = client.h2.get_next_available_stream_id()
                client.h2.send_headers(stream, call_headers())
                client.h2.send_data(stream, message(b"x"), end_stream=True)
            # Answered when all that was sent before has been read.
            client.h2.ping(b"received")
        for client in clients:
            client.read_until(partial(_is_read, client))
        all_received.set()
        for client in clients:
            client.read_until(partial(_all_ended, client))
        return Counter(status for client in clients for status in client.statuses.values())


def _is_read(client: BlockingClient) -> bool:
    return client.pings > 0


def _all_ended(client: BlockingClient) -> bool:
    return len(client.statuses) == _CALLS_EACH
