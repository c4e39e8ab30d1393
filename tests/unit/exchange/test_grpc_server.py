"""What a region's exchange says to whom, and what it lets others make it hold. Over real sockets."""

import asyncio
import contextlib
import socket
import stat
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from headgate.errors import ConfigError
from headgate.exchange import codec
from headgate.exchange.grpc_link import GrpcPeerLink
from headgate.exchange.grpc_server import SPARE_CONNECTIONS, STREAMS_PER_PEER, StreamBounds
from headgate.exchange.hello import Regions, Versions
from headgate.exchange.messages import Ack, Batch, LinkError
from headgate.origin.interface import OriginTimeout
from headgate.v1 import exchange_pb2 as wire

from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_S, until
from tests.unit.exchange.two_regions import (
    EU,
    SHORT_S,
    Recorder,
    entries,
    hello,
    linked,
    listening,
    outcome,
    raw_stream,
    send,
)

BATCH = codec.encode_batch(Batch(1, 1))


async def test_a_full_batch_arrives_as_it_was_sent() -> None:
    receiver = Recorder()
    full = Batch(7, 123, entries(4_000), entries(1_000), b"wanted", b"filled", 5, 6)
    async with listening(receiver) as server, linked(server.address) as link:
        assert await link.send(full, PATIENCE_S) == Ack(7, 2)
        assert receiver.received == [("eu", full)]
        assert link.peer is not None
        assert (link.peer.region, link.peer.regions, link.peer.version) == ("us", ("eu", "us"), 2)
        assert server.peers["eu"].regions == ("eu", "us")
        assert (server.stats.batches, server.stats.entries) == (1, 5_000)
        assert server.stats.bytes_from["eu"] == link.stats.bytes_sent > 5_000 * 40


async def test_batches_of_a_stream_are_taken_in_one_at_a_time() -> None:
    """However fast they are sent."""
    now, most = 0, 0

    async def act(_: Batch) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    receiver = Recorder(act)
    async with listening(receiver) as server, raw_stream(server) as call:
        await call.write(hello())
        for number in range(1, 6):
            await call.write(codec.encode_batch(Batch(number, 1)))
        await call.read()
        assert [codec.decode_from_receiver(await call.read()) for _ in range(5)] == [Ack(n, 2) for n in range(1, 6)]
    assert most == 1


async def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    async with listening(address=f"unix:{tmp_path}/s") as server, linked(server.address) as link:
        assert await send(link) == Ack(1, 2)
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    assert not (tmp_path / "s").exists()


async def test_several_processes_may_share_a_port() -> None:
    async with listening(reuse_port=True) as one, listening(address=one.address, reuse_port=True) as two:
        assert one.address == two.address


async def test_an_address_that_is_taken_is_named() -> None:
    async with listening() as server:
        with pytest.raises(ConfigError, match=f"exchange: can't listen on {server.address}: Address already in use"):
            async with listening(address=server.address):
                pass


# Messages


@pytest.mark.parametrize(
    ("messages", "status", "reason"),
    [
        ([b"\xff"], "INVALID_ARGUMENT", "not a message of headgate.v1.Exchange"),
        ([b""], "INVALID_ARGUMENT", "neither a hello nor a batch"),
        ([BATCH], "INVALID_ARGUMENT", "a stream begins with a hello"),
        ([hello(), hello()], "INVALID_ARGUMENT", "a second hello"),
        ([hello(), b"\xff"], "INVALID_ARGUMENT", "not a message"),
        (
            [hello(), wire.FromSender(batch=wire.Batch(entries=wire.Entries(key=[b"k"]))).SerializeToString()],
            "INVALID_ARGUMENT",
            "columns of different lengths: 1, 0, 0, 0, 0",
        ),
        (
            [hello(), wire.FromSender(batch=wire.Batch(entries=wire.Entries(key=[b""] * 5_001))).SerializeToString()],
            "INVALID_ARGUMENT",
            "a batch of 5001 entries: at most 5000",
        ),
        ([hello(), b"\0" * (codec.MAX_BATCH_BYTES + 1)], "RESOURCE_EXHAUSTED", "larger than max"),
        ([hello(region="us")], "FAILED_PRECONDITION", "'us', which is this region's own name"),
        ([hello(region="eu2")], "FAILED_PRECONDITION", "'eu2' is no peer of region 'us'"),
        ([hello(to="ap")], "FAILED_PRECONDITION", "this is region 'us', and 'eu' means 'ap'"),
        ([hello(versions=Versions(3, 4))], "FAILED_PRECONDITION", "you speak 3 to 4, this region 1 to 2"),
        ([hello(region="no name")], "INVALID_ARGUMENT", "a name of a region that is none"),
    ],
)
async def test_who_says_something_wrong_is_told_what(messages: list[bytes], status: str, reason: str) -> None:
    receiver = Recorder()
    async with listening(receiver) as server, raw_stream(server) as call:
        with contextlib.suppress(grpc.aio.AioRpcError):  # refused before it is written to its end
            for message in messages:
                await call.write(message)
        code, details = await outcome(call)
        assert (code, receiver.received) == (status, [])
        assert reason in details
        await until(lambda: server.stats.streams == 0, "the stream to end")
        async with linked(server.address) as link:
            assert await send(link) == Ack(1, 2), "others are served as before"


async def _cant(_: Batch) -> None:
    raise OriginTimeout("shard 2 did not answer")


async def _fails(_: Batch) -> None:
    raise ZeroDivisionError("secret detail")


@pytest.mark.parametrize(
    ("act", "status", "reason"),
    [
        (_cant, "UNAVAILABLE", "region 'us' can't write to its origin: shard 2 did not answer"),
        (_fails, "INTERNAL", "internal error"),
    ],
)
async def test_a_batch_that_can_not_be_taken_in_gets_no_acknowledgement(act: Any, status: str, reason: str) -> None:
    async with listening(Recorder(act)) as server, raw_stream(server) as call:
        await call.write(hello())
        await call.write(BATCH)
        assert await outcome(call) == (status, reason)
        assert server.stats.batches == 0
        await until(lambda: server.stats.refused == {status.lower(): 1}, "it to be counted")


async def test_another_service_is_not_here() -> None:
    async with listening() as server, grpc.aio.insecure_channel(server.address) as channel:
        other: Any = channel.unary_unary("/headgate.v1.Exchange/Other")
        assert await other(b"").code() is grpc.StatusCode.UNIMPLEMENTED


# Bounds


async def test_a_stream_without_a_hello_ends() -> None:
    bounds = StreamBounds(hello_s=SHORT_S)
    async with listening(bounds=bounds) as server, raw_stream(server) as call:
        assert await outcome(call) == ("UNAVAILABLE", "no hello within 0.3 s")
        await until(lambda: server.stats.streams == 0, "its room to be free")


async def test_a_stream_that_ends_before_its_hello_is_told() -> None:
    async with listening() as server, raw_stream(server) as call:
        await call.done_writing()
        assert await outcome(call) == ("INVALID_ARGUMENT", "a stream begins with a hello")


async def test_a_silent_stream_ends() -> None:
    bounds = StreamBounds(silence_s=SHORT_S)
    async with listening(bounds=bounds) as server, raw_stream(server) as call:
        await call.write(hello())
        assert await outcome(call) == ("UNAVAILABLE", "no batch within 0.3 s")


async def test_an_old_stream_ends() -> None:
    """A certificate that is no longer valid can't be used for ever by never letting go of a stream."""
    clock = ManualClock()
    async with listening(clock=clock) as server, raw_stream(server) as call:
        await call.write(hello())
        await call.read()
        clock.advance(3_600_000)
        await call.write(BATCH)
        assert codec.decode_from_receiver(await call.read()) == Ack(1, 2)
        clock.advance(1)
        await call.write(BATCH)
        assert await outcome(call) == ("UNAVAILABLE", "the stream is old: begin another")


async def test_there_are_four_streams_for_each_peer_and_no_more() -> None:
    async with listening() as server, AsyncExitStack() as stack:
        links = [await stack.enter_async_context(linked(server.address)) for _ in range(STREAMS_PER_PEER + 1)]
        for link in links[:-1]:
            await send(link)
        with pytest.raises(LinkError, match="UNAVAILABLE: too many streams of region 'eu': at most 4"):
            await send(links[-1])
        assert server.stats.refused == {"unavailable": 1}
        await links[0].close()
        await until(lambda: server.stats.streams == STREAMS_PER_PEER - 1, "one to end")
        assert await send(links[-1]) == Ack(1, 2)


async def test_one_peer_does_not_use_up_the_streams_of_another() -> None:
    regions = Regions("us", frozenset({"eu", "ap"}))
    async with listening(regions=regions) as server, AsyncExitStack() as stack:
        links = [await stack.enter_async_context(linked(server.address)) for _ in range(STREAMS_PER_PEER + 1)]
        for link in links[:-1]:
            await send(link)
        with pytest.raises(LinkError, match="too many streams of region 'eu': at most 4"):
            await send(links[-1])
        async with linked(server.address, regions=Regions("ap", frozenset({"us"}))) as other:
            assert await send(other) == Ack(1, 2)


async def test_connections_are_bounded() -> None:
    """Those of strangers too: what is one too many is closed at once, and those who are there stay."""
    most, more = SPARE_CONNECTIONS + STREAMS_PER_PEER, 20
    async with listening() as server:
        with ExitStack() as stack:
            connections = [stack.enter_context(_speaks_http2(server.address)) for _ in range(most + more)]
            await until(lambda: all(map(_was_closed, connections[most:])), "those that are too many to be closed")
            assert not any(map(_was_closed, connections[:most]))
        async with linked(server.address) as link:
            await until_sent(link)


async def until_sent(link: GrpcPeerLink) -> None:
    """Until the server has noticed that connections have ended, there is no room for a new one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(LinkError):
                assert await send(link) == Ack(1, 2)
                return


def _speaks_http2(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), PATIENCE_S)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")  # with empty settings
    connection.setblocking(False)
    return connection


def _was_closed(connection: socket.socket) -> bool:
    try:
        while data := connection.recv(65536):
            assert data
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


# The end


async def test_what_is_being_taken_in_is_acknowledged_before_it_stops() -> None:
    go_on = asyncio.Event()

    async def act(_: Batch) -> None:
        await go_on.wait()

    receiver = Recorder(act)
    async with listening(receiver) as server, linked(server.address) as link:
        sending = asyncio.create_task(send(link))
        await until(lambda: receiver.received, "the batch")
        stopping = asyncio.create_task(server.stop(PATIENCE_S))
        await until(server._stopping.is_set, "the stop to begin")
        go_on.set()
        assert await sending == Ack(1, 2)
        await stopping
        with pytest.raises(LinkError):
            await send(link, 2)


async def test_idle_streams_are_told_that_it_stops() -> None:
    async with listening() as server, raw_stream(server) as call:
        await call.write(hello())
        await call.read()
        await server.stop(PATIENCE_S)
        assert await outcome(call) == ("UNAVAILABLE", "this region's exchange is stopping")


# Two versions side by side


def _with_unknown_fields(data: bytes, kind: Any) -> bytes:
    """As a later version would write it: fields 30 and 31 in the message and in its parts."""
    unknown = b"\xf0\x01\x07\xfa\x01\x03new"
    message = kind.FromString(data)
    for field, part in message.ListFields():
        assert field.message_type
        part.MergeFromString(unknown)
        for inner, value in part.ListFields():
            if inner.message_type:
                value.MergeFromString(unknown)
    return bytes(message.SerializeToString()) + unknown


@pytest.mark.parametrize(("sender", "receiver"), [((1, 2), (1, 1)), ((1, 1), (1, 2)), ((1, 2), (1, 2))])
async def test_regions_of_two_versions_work_together(
    sender: tuple[int, int], receiver: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one says more than the other understands, in each of its messages."""
    encoders = {
        "encode_hello": (wire.FromSender, sender),
        "encode_batch": (wire.FromSender, sender),
        "encode_welcome": (wire.FromReceiver, receiver),
        "encode_ack": (wire.FromReceiver, receiver),
    }
    for name, (kind, versions) in encoders.items():
        if versions == (1, 2):
            encode = getattr(codec, name)
            monkeypatch.setattr(
                codec, name, lambda value, encode=encode, kind=kind: _with_unknown_fields(encode(value), kind)
            )
    taken = Recorder()
    batch = Batch(1, 1, entries(3), entries(2))
    async with (
        listening(taken, versions=Versions(*receiver)) as server,
        linked(server.address, versions=Versions(*sender), regions=EU) as link,
    ):
        assert await link.send(batch, PATIENCE_S) == Ack(1, 2)
        assert taken.received == [("eu", batch)]
        assert link.peer is not None
        assert link.peer.version == min(sender[1], receiver[1])
