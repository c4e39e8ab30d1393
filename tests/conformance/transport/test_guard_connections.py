"""The guard's bounds on connections: their number, their time, and an end that no call notices."""

import asyncio
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import h2.connection
import pytest
from headgate.endpoint.tls import TlsFiles
from headgate.endpoint.trust import Trust
from headgate.transport.guard.share import FIRST_STEPS
from headgate.transport.interface import GuardLimits, TransportLimits

from tests.conformance.transport.certificates import authority, issued_by
from tests.conformance.transport.harness import TIMEOUT_S, Server, call, dialled, eventually, serving
from tests.conformance.transport.raw import PREFACE, Headers, RawClient, call_headers, frame, message, raw_client
from tests.support.waiting import PATIENCE_S

SETTINGS = frame(4, 0, 0, b"")
FRIEND = "127.0.0.2"
FRIENDS = Trust([FRIEND])


@pytest.fixture(autouse=True)
def frequent_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for them."""
    monkeypatch.setattr("headgate.transport.guard.guard.TICK_S", 0.05)


@pytest.fixture
def quick_retirement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.transport.guard.retirement.RETIRE_S", 0.1)
    monkeypatch.setattr("headgate.transport.guard.retirement.RETIRE_MAX_S", 0.2)


@asynccontextmanager
async def guarded(
    trust: Trust | None = None, tls: TlsFiles | None = None, *, max_concurrent_streams: int = 100, **limits: Any
) -> AsyncIterator[Server]:
    all_limits = TransportLimits(max_concurrent_streams=max_concurrent_streams, guard=GuardLimits(**limits))
    async with serving("guarded", limits=all_limits, trust=trust, tls=tls) as server:
        yield server


@asynccontextmanager
async def connected(
    server: Server, source: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def all_until_the_end(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), TIMEOUT_S)
    return b""


def kinds_of(data: bytes) -> list[int]:
    kinds, position = [], 0
    while len(data) - position >= 9:
        kinds.append(data[position + 3])
        position += 9 + int.from_bytes(data[position : position + 3])
    assert position == len(data), "frames are whole"
    return kinds


def closed(server: Server) -> dict[str, int]:
    return dict(server.transport.stats.guard.closed)


# Number


async def test_when_there_are_too_many_who_has_not_called_for_longest_makes_room() -> None:
    """First who never did, then whose last answer is longest ago; who calls stays."""
    async with guarded(max_connections=3) as server, raw_client(server.port) as caller:
        stats = server.transport.stats.guard
        await eventually(lambda: stats.live == 1)
        async with connected(server) as (silent, _), raw_client(server.port) as former:
            await eventually(lambda: stats.live == 3)
            for client in (former, caller):
                await answered(client)
                # A tick comes between the two.
                await asyncio.sleep(0.15)
            async with dialled(server.address) as newcomer:
                assert await call(newcomer, b"x") == b"echo:x"
                assert await all_until_the_end(silent) == b""
                assert closed(server) == {"room": 1}
                await answered(caller)
                await asyncio.sleep(0.15)
                async with dialled(server.address) as another:
                    assert await call(another, b"x") == b"echo:x"
                    assert "gone" in await former.outcome(1_001)
                    assert closed(server) == {"room": 2}
                    await answered(caller)
        assert stats.live <= 3
        assert stats.refused == {}


async def answered(client: RawClient) -> None:
    stream = await client.open(call_headers(), message(b"x"))
    assert (await client.outcome(stream))["grpc-status"] == "0"


async def test_connections_from_one_address_are_bounded_in_number() -> None:
    async with guarded(max_connections_per_address=2, max_new_connections_per_s=1_000.0) as server:
        async with connected(server), connected(server):
            await eventually(lambda: server.transport.stats.guard.live == 2)
            async with connected(server) as (reader, _):
                assert await all_until_the_end(reader) == b""
            assert server.transport.stats.guard.refused == {"connections_per_address": 1}
        await eventually(lambda: server.transport.stats.guard.live == 0)
        async with dialled(server.address) as channel:
            assert await call(channel, b"x") == b"echo:x"


async def test_connections_from_one_address_are_bounded_per_second() -> None:
    """It may make all that it may have at once, and then few; others are not concerned."""
    async with guarded(max_connections_per_address=20, max_new_connections_per_s=0.01) as server:
        stats = server.transport.stats.guard
        for count in range(1, 21):
            async with connected(server):
                await eventually(lambda count=count: stats.accepted == count)  # type: ignore[misc]
        for _ in range(5):
            async with connected(server) as (reader, _):
                assert await all_until_the_end(reader) == b""
        assert stats.refused == {"connection_rate": 5}
        async with raw_client(server.port, source=FRIEND) as other:
            await answered(other)
        assert stats.accepted == 21


async def test_a_trusted_network_is_bounded_altogether_only_and_not_looked_at(quick_retirement: None) -> None:
    limits: dict[str, Any] = {"max_connections": 4, "max_connections_per_address": 1, "idle_timeout_s": 0.1}
    limits["max_connection_age_s"] = 0.1
    async with (
        guarded(FRIENDS, **limits) as server,
        connected(server, FRIEND),
        connected(server, FRIEND) as (reader, writer),
    ):
        stats = server.transport.stats.guard
        client = RawClient(reader, writer)
        await client.flush()
        # More than the guard would let pass.
        writer.write(frame(6, 0, 0, b"pingping") * 3_000)
        stream = await client.open(call_headers(), message(b"x"))
        assert (await client.outcome(stream))["grpc-status"] == "0"
        for count in range(1, 4):
            async with connected(server) as (stranger, stranger_writer):
                stranger_writer.write(PREFACE + SETTINGS)
                # By then the friends would have been closed for the same reasons.
                await all_until_the_end(stranger)
            await eventually(lambda count=count: stats.closed.total() == count)  # type: ignore[misc]
        async with connected(server, FRIEND), connected(server, FRIEND), connected(server, FRIEND) as (last, _):
            assert await all_until_the_end(last) == b""
        assert stats.refused == {"connections": 1}
        stream = await client.open(call_headers(), message(b"x"))
        assert (await client.outcome(stream))["grpc-status"] == "0"


# Time


async def test_calls_that_say_nothing_after_their_headers_are_reset_and_their_places_are_free_again() -> None:
    async with guarded(message_timeout_s=0.2, max_concurrent_streams=3) as server, raw_client(server.port) as client:
        silent = [await client.open(call_headers(), b"", end=False) for _ in range(3)]
        assert (await client.outcome(silent[-1]))["reset"] == "11"
        stream = await client.open(call_headers(), message(b"x"))
        assert (await client.outcome(stream))["grpc-status"] == "0"


@pytest.mark.parametrize("begun", [b"", PREFACE[:10]], ids=["silent", "half of it"])
async def test_a_caller_who_never_speaks_http2_is_cut_off(begun: bytes) -> None:
    async with guarded(handshake_timeout_s=0.2) as server, connected(server) as (reader, writer):
        writer.write(begun)
        assert await all_until_the_end(reader) == b""
        assert closed(server) == {"handshake": 1}


async def test_other_protocols_are_cut_off_at_once() -> None:
    async with guarded() as server, connected(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await all_until_the_end(reader) == b""
        assert closed(server) == {"handshake": 1}


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
async def test_a_tls_handshake_that_does_not_end_is_cut_off(tmp_path: Path, begun: bytes) -> None:
    ca = authority("ca")
    files = TlsFiles(*issued_by(ca, "server").write(tmp_path, "server"))
    async with guarded(tls=files, handshake_timeout_s=0.2) as server, connected(server) as (reader, writer):
        writer.write(begun)
        assert await all_until_the_end(reader) == b""
        assert closed(server) == {"handshake": 1}


async def test_tls_without_http2_is_cut_off_too(tmp_path: Path) -> None:
    ca = authority("ca")
    files = TlsFiles(*issued_by(ca, "server").write(tmp_path, "server"))
    context = ssl.create_default_context(cadata=ca.cert_pem.decode())
    async with guarded(tls=files, handshake_timeout_s=0.3) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
        )
        assert await all_until_the_end(reader) == b""
        writer.transport.abort()
        assert closed(server) == {"handshake": 1}


@pytest.mark.parametrize(
    "unfinished",
    [
        frame(0, 0, 1, b"x" * 100)[:50],
        frame(1, 4, 1, b"")[:5],
        frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b""),
    ],
    ids=["half a frame", "half a frame's header", "half of the headers"],
)
async def test_a_frame_that_does_not_end_is_cut_off(unfinished: bytes) -> None:
    async with guarded(message_timeout_s=0.2) as server, connected(server) as (reader, writer):
        writer.write(PREFACE + SETTINGS + unfinished)
        assert kinds_of(await all_until_the_end(reader))[-1] == 7
        writer.close()
        await eventually(lambda: closed(server) == {"unfinished": 1})


async def test_a_message_that_does_not_end_costs_its_own_call_alone() -> None:
    async with guarded(message_timeout_s=0.2) as server, raw_client(server.port) as client:
        stuck = await client.open(call_headers(), message(b"x", length=1000), end=False)
        assert await client.outcome(stuck) == {"reset": "11"}
        following = await client.open(call_headers(), message(b"x"))
        assert (await client.outcome(following))["grpc-status"] == "0"
        assert server.script.payloads == [b"x"]


@contextmanager
def deaf_caller(server: Server) -> Iterator[None]:
    """It asks for more than the sockets on the way can hold, and reads nothing."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", server.port))
        speaker = h2.connection.H2Connection()
        speaker.initiate_connection()
        speaker.update_settings({4: 2**31 - 1})
        speaker.increment_flow_control_window(2**31 - 1 - 65_535)
        for stream in range(1, 199, 2):
            speaker.send_headers(stream, call_headers())
            speaker.send_data(stream, message(b"x"), end_stream=True)
        deaf.sendall(speaker.data_to_send())
        yield


async def test_a_caller_who_does_not_read_is_cut_off() -> None:
    async with guarded(message_timeout_s=0.3) as server:
        server.script.reply = b"x" * 60_000
        with deaf_caller(server):
            await eventually(lambda: closed(server) == {"stalled": 1})
        async with dialled(server.address) as channel:
            assert len(await call(channel, b"x")) == 60_000


async def test_when_too_much_is_not_read_who_waits_longest_is_cut_off() -> None:
    async with guarded(max_unfinished_bytes=1_000) as server:
        server.script.reply = b"x" * 60_000
        with deaf_caller(server), deaf_caller(server):
            # Both are over it by themselves.
            await eventually(lambda: closed(server) == {"stalled": 2})
        async with dialled(server.address) as channel:
            assert len(await call(channel, b"x")) == 60_000


async def test_a_caller_who_ends_its_side_gets_its_connection_closed() -> None:
    async with guarded() as server, connected(server) as (reader, writer):
        writer.write(PREFACE + SETTINGS)
        writer.write_eof()
        await all_until_the_end(reader)
        await eventually(lambda: server.transport.stats.guard.live == 0)
        assert closed(server) == {"closed": 1}


async def test_an_idle_connection_is_told_and_then_closed(quick_retirement: None) -> None:
    async with guarded(idle_timeout_s=0.2) as server, connected(server) as (reader, writer):
        writer.write(PREFACE + SETTINGS)
        kinds = kinds_of(await all_until_the_end(reader))
        # First that no more calls are wanted, then which was the last.
        assert kinds[-2:] == [7, 7]
        writer.close()
        await eventually(lambda: closed(server) == {"idle": 1})


async def test_a_connection_with_a_call_under_way_is_not_idle(quick_retirement: None) -> None:
    async with guarded(idle_timeout_s=0.2) as server, dialled(server.address) as channel:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        server.script.reply = answer
        waiting = call(channel, b"x")
        await eventually(lambda: server.transport.stats.pending_calls == 1)
        async with connected(server) as (reader, writer):
            writer.write(PREFACE + SETTINGS)
            # By now the other would have been closed for the same reason.
            await all_until_the_end(reader)
        await eventually(lambda: closed(server) == {"idle": 1})
        answer.set_result(b"late")
        assert await waiting == b"late"


async def test_no_call_fails_when_connections_grow_too_old() -> None:
    """Callers go on calling while their connections are replaced."""
    async with guarded(max_connection_age_s=0.3) as server, dialled(server.address) as channel:
        stats = server.transport.stats.guard

        async def keep_calling() -> int:
            calls = 0
            while stats.closed.total() < 3:
                assert await call(channel, b"x") == b"echo:x"
                calls += 1
            return calls

        counts = await asyncio.wait_for(asyncio.gather(*(keep_calling() for _ in range(10))), 60)
        assert sum(counts) == server.transport.stats.calls
        assert stats.accepted >= 3


async def test_a_caller_who_ignores_that_it_should_go_is_cut_off(quick_retirement: None) -> None:
    async with guarded(max_connection_age_s=0.1) as server, raw_client(server.port) as client:
        server.script.reply = lambda _payload: asyncio.get_running_loop().create_future()
        stream = await client.open(call_headers(), message(b"x"))
        await eventually(lambda: server.transport.stats.pending_calls == 1)
        assert "gone" in await client.outcome(stream)
        await eventually(lambda: closed(server) == {"age": 1})


# Floods


def _calls_given_up(count: int) -> bytes:
    speaker = h2.connection.H2Connection()
    speaker.initiate_connection()
    speaker.clear_outbound_data_buffer()
    for stream in range(1, 2 * count, 2):
        speaker.send_headers(stream, call_headers())
        speaker.reset_stream(stream, 8)
    return speaker.data_to_send()


CALL = frame(1, 4, 1, b"\x82") + frame(0, 0, 1, message(b"", length=60_000))
FLOODS = {
    "header_block": [frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"") * 100],
    "frame_size": [frame(0, 0, 1, b"x" * 20_000)],
    "protocol": [frame(1, 0, 1, b"\x82") + frame(6, 0, 0, b"pingping")],
    "share": [
        frame(6, 0, 0, b"pingping") * 3_000,
        frame(4, 0, 0, b"") * 3_000,
        frame(99, 0, 0, b"x") * 3_000,
        CALL + frame(0, 0, 1, b"x") * 3_000,
        CALL + frame(0, 8, 1, b"\x04\0\0\0\0") * 3_000,
        CALL + frame(0, 0, 1, b"") * 3_000,
    ],
}


@pytest.mark.parametrize(
    ("reason", "flood"), [(reason, flood) for reason, floods in FLOODS.items() for flood in floods]
)
async def test_a_flood_costs_its_own_connection(reason: str, flood: bytes) -> None:
    async with guarded() as server, dialled(server.address) as channel:
        assert await call(channel, b"before") == b"echo:before"
        async with connected(server) as (reader, writer):
            writer.write(PREFACE + SETTINGS + flood)
            ends = await all_until_the_end(reader)
            assert kinds_of(ends)[-1] == 7
            writer.close()
            await eventually(lambda: closed(server) == {reason: 1})
        assert await call(channel, b"after") == b"echo:after"
        assert bool(server.transport.stats.guard.slowed) == (reason == "share")
        cut_off = [each.kwargs for each in server.log.calls if each.kwargs["event"] == "connection_cut_off"]
        assert [(each["reason"], each["address"]) for each in cut_off] == [(reason, "127.0.0.1")]


async def test_calls_that_are_given_up_cost_their_own_connection() -> None:
    """The front may be the first to have enough of it."""
    async with guarded() as server, dialled(server.address) as channel:
        assert await call(channel, b"before") == b"echo:before"
        async with connected(server) as (reader, writer):
            writer.write(PREFACE + SETTINGS + _calls_given_up(1_100))
            assert 7 in kinds_of(await all_until_the_end(reader))
            writer.close()
            await eventually(lambda: closed(server) in ({"share": 1}, {"closed": 1}))
        assert await call(channel, b"after") == b"echo:after"


async def test_who_is_slowed_is_not_read_and_goes_on_when_its_calls_are_answered() -> None:
    """More than the account begins with: the answer to a call that waits for one fills it."""
    async with guarded() as server, raw_client(server.port) as client:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        server.script.reply = answer
        stream = await client.open(call_headers(), message(b"x"))
        await eventually(lambda: server.transport.stats.pending_calls == 1)
        client.writer.write(frame(6, 0, 0, b"pingping") * (FIRST_STEPS + 4))

        def is_slowed() -> bool:
            # Ticks fill the account: where that takes a while, some more are wanted.
            client.writer.write(frame(6, 0, 0, b"pingping"))
            return server.transport.stats.guard.slowed > 0

        await eventually(is_slowed)
        answer.set_result(b"late")
        assert (await client.outcome(stream))["grpc-status"] == "0"
        server.script.reply = None
        await answered(client)
        assert closed(server) == {}


async def test_records_of_a_byte_are_paid_for_like_frames(tmp_path: Path) -> None:
    ca = authority("ca")
    files = TlsFiles(*issued_by(ca, "server").write(tmp_path, "server"))
    context = ssl.create_default_context(cadata=ca.cert_pem.decode())
    context.set_alpn_protocols(["h2"])
    async with guarded(tls=files) as server:

        def attack() -> bytes:
            with (
                socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as caller,
            ):
                caller.sendall(PREFACE + SETTINGS)
                # Whole frames that cost nothing by themselves, a byte in each record.
                for byte in _large_frames():
                    try:
                        caller.sendall(bytes([byte]))
                    except OSError:
                        break
                with suppress(OSError):
                    while part := caller.recv(1 << 16):
                        received.append(part)
            return b"".join(received)

        received: list[bytes] = []
        assert kinds_of(await asyncio.to_thread(attack))[-1] == 7
        await eventually(lambda: closed(server) == {"share": 1})


def _large_frames() -> bytes:
    body = message(b"x" * 60_000)
    parts = [frame(0, 0, 1, body[at : at + 1_000]) for at in range(0, len(body), 1_000)]
    return frame(1, 4, 1, b"\x82") + b"".join(parts)


# Calls


async def test_calls_under_way_are_bounded_over_all_connections_and_who_has_few_has_room() -> None:
    async with (
        guarded(max_open_calls=20) as server,
        raw_client(server.port) as greedy,
        raw_client(server.port) as other,
    ):
        never = asyncio.get_running_loop().create_future()
        server.script.reply = lambda _payload: never
        streams = [await greedy.open(call_headers(), message(b"x")) for _ in range(21)]
        outcome = await greedy.outcome(streams[-1])
        assert outcome["grpc-status"] == "14"
        assert unquote(outcome["grpc-message"]).startswith("overloaded: more than 20 calls are under way")
        await eventually(lambda: server.transport.stats.pending_calls == 20)
        server.script.reply = None
        # It has less than its half.
        await answered(other)
        await eventually(lambda: server.transport.stats.guard.refused_calls == 1)
        assert len(server.script.payloads) == 21
        never.set_result(b"late")
        assert (await greedy.outcome(streams[0]))["grpc-status"] == "0"
        await answered(greedy)


MANY = 90
"""Calls in one write, within what one connection may have: the front has enough of 20 that are given up unbegun."""


async def many_at_once(client: RawClient, headers: Headers, body: bytes, *, give_up: bool = False) -> list[int]:
    """Send many calls together; their streams."""
    streams = []
    for _ in range(MANY):
        streams.append(stream := client.h2.get_next_available_stream_id())
        client.h2.send_headers(stream, headers)
        client.h2.send_data(stream, body, end_stream=True)
    for stream in streams if give_up else ():
        client.h2.reset_stream(stream, 8)
    await client.flush()
    return streams


async def test_calls_for_which_the_front_has_no_room_wait_and_all_are_answered() -> None:
    """Four times as many as it takes at once, on six connections of one caller."""
    async with guarded() as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(server.port)) for _ in range(6)]
        sent = [(client, await many_at_once(client, call_headers(), message(b"x"))) for client in clients]
        for client, streams in sent:
            assert (await client.outcome(streams[-1]))["grpc-status"] == "0"
        stats = server.transport.stats
        assert (stats.calls, sum(stats.durations.counts)) == (6 * MANY, 6 * MANY), "all are answered"
        assert (stats.guard.refused_calls, stats.guard.slowed) == (0, 0)


async def test_calls_for_which_there_is_no_place_are_refused_one_by_one() -> None:
    """All at once on the connection of an honest caller, which has others under way."""
    async with guarded(max_open_calls=8) as server, raw_client(server.port) as client:
        for _ in range(60):
            await answered(client)
        never = asyncio.get_running_loop().create_future()
        server.script.reply = lambda _payload: never
        streams = await many_at_once(client, call_headers(), message(b"x"))
        assert (await client.outcome(streams[-1]))["grpc-status"] == "14"
        await eventually(lambda: server.transport.stats.guard.refused_calls == MANY - 8)
        server.script.reply = None
        never.set_result(b"late")
        assert (await client.outcome(streams[0]))["grpc-status"] == "0"
        await answered(client)
        assert closed(server) == {}


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [(call_headers(), message(b"x", length=10**6), "8"), (call_headers(x_big="y" * 17_000), message(b"x"), "8")],
    ids=["messages", "metadata"],
)
async def test_what_is_too_large_is_refused_call_by_call(headers: Headers, body: bytes, status: str) -> None:
    # The client takes a second or two of the same loop to write such headers, and longer on a busy machine.
    async with guarded(message_timeout_s=PATIENCE_S) as server, raw_client(server.port) as client:
        for _ in range(2):
            streams = await many_at_once(client, headers, body)
            # All of them: the client itself opens no more than a hundred, and answers come in any order.
            assert [each["grpc-status"] for each in await client.outcomes(streams)] == [status] * MANY
        await answered(client)
        assert closed(server) == {}


async def test_who_gives_up_many_calls_at_once_keeps_its_connection() -> None:
    """As callers do with little patience, when everything stood still for a moment."""
    async with guarded(max_open_calls=1_000) as server, raw_client(server.port) as client:
        for _ in range(3):
            await many_at_once(client, call_headers(), message(b"x"), give_up=True)
            await answered(client)
        assert closed(server) == {}


async def test_the_front_is_told_of_calls_that_were_given_up() -> None:
    """Else it would hold them, and take no others of the connection, until they are answered."""
    async with guarded() as server, raw_client(server.port) as client:
        server.script.reply = lambda _payload: asyncio.get_running_loop().create_future()
        await many_at_once(client, call_headers(), message(b"x"), give_up=True)
        await eventually(lambda: server.transport.stats.pending_calls == MANY)
        server.script.reply = None

        async def there_is_room() -> bool:
            streams = await many_at_once(client, call_headers(), message(b"x"))
            return (await client.outcome(streams[-1])).get("grpc-status") == "0"

        async with asyncio.timeout(TIMEOUT_S):
            while not await there_is_room():
                pass
        assert closed(server) == {}


@pytest.mark.parametrize("window", [0, 1, 6])
async def test_an_answer_that_cannot_be_sent_is_given_up(window: int) -> None:
    """The caller reads, and its windows let nothing pass: other calls get their answers when they let them."""
    async with guarded(message_timeout_s=0.2) as server, raw_client(server.port) as client:
        client.h2.update_settings({4: window})
        stream = await client.open(call_headers(), message(b"x"))
        assert (await client.outcome(stream))["reset"] == "11"
        client.h2.update_settings({4: 65_535})
        await client.flush()
        await answered(client)
        assert closed(server) == {}


async def test_a_stream_of_answers_may_stay_open(quick_retirement: None) -> None:
    async with guarded(message_timeout_s=0.1) as server, raw_client(server.port) as client:
        await client.open(call_headers(**{":path": "/grpc.health.v1.Health/Watch"}), message(b""))
        assert await client.data()
        await asyncio.sleep(0.5)
        server.transport.set_serving(False)
        assert await client.data()


# The end


async def test_stopping_leaves_no_connection_and_no_descriptor() -> None:
    async with guarded() as server, connected(server), dialled(server.address) as channel:
        assert await call(channel, b"x") == b"echo:x"
        await server.transport.stop(1)
        assert server.transport.stats.guard.live == 0
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S):
            pass
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel, b"x", timeout_s=1)


async def test_callers_are_turned_away_when_no_descriptor_is_left() -> None:
    """Else they would stay in line, and the listener would be ready to accept for ever."""
    async with guarded() as server:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as caller:
            caller.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (_lowest_free(), hard))
            try:
                loop = asyncio.get_running_loop()
                await loop.sock_connect(caller, ("127.0.0.1", server.port))
                with suppress(ConnectionError):
                    assert await asyncio.wait_for(loop.sock_recv(caller, 1), TIMEOUT_S) == b""
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert server.transport.stats.guard.refused["descriptors"] >= 1
        async with dialled(server.address) as channel:
            assert await call(channel, b"x") == b"echo:x"


def _lowest_free() -> int:
    """The number that the next descriptor would get."""
    fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)
    return fd
