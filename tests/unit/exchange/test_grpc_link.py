"""The way to a peer that is not there, does not answer, dies, or is another one. Over real sockets."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from headgate.exchange import codec
from headgate.exchange.grpc_server import StreamBounds
from headgate.exchange.hello import Regions, Versions, Welcome
from headgate.exchange.messages import Ack, Batch, LinkError, Refused

from tests.support.clock import ManualClock
from tests.support.exchange_peer import NEVER_DONE, PeerProcess
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import PATIENCE_S, until
from tests.unit.exchange.two_regions import EU, SHORT_S, Recorder, entries, linked, listening, send


async def test_it_connects_when_something_is_sent_and_stays_connected() -> None:
    async with listening() as server, linked(server.address) as link:
        assert (link.stats.connected, server.stats.accepted, link.peer) == (False, 0, None)
        assert [await send(link, number) for number in (1, 2, 3)] == [Ack(1, 2), Ack(2, 2), Ack(3, 2)]
        assert (link.stats.connected, link.stats.streams, server.stats.accepted) == (True, 1, 1)
        await link.close()
        assert not link.stats.connected
        await until(lambda: server.stats.streams == 0, "the stream to end")
        assert (server.stats.cut, server.stats.refused) == (0, {}), "in good order"


async def test_closing_what_was_never_used_is_nothing() -> None:
    async with linked("127.0.0.1:1") as link:
        await link.close()
        await link.close()


async def test_nobody_there_is_an_error_until_somebody_is() -> None:
    async with listening() as server:
        address = server.address
    async with linked(address) as link:
        for _ in range(3):
            with pytest.raises(LinkError, match=f"^region 'us' at {address}: UNAVAILABLE: ") as caught:
                await send(link)
            assert not isinstance(caught.value, Refused)
        async with listening(address=address):
            assert await send(link) == Ack(1, 2), "at once: nothing waits because the last attempt failed"


@asynccontextmanager
async def _never_answering() -> AsyncIterator[str]:
    """Accepts, and says nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for writer in writers:
            writer.close()


async def test_a_peer_that_accepts_and_never_answers_is_given_up_in_time() -> None:
    async with _never_answering() as address, linked(address) as link:
        for number in (1, 2):
            with pytest.raises(LinkError, match=r"no answer within 0\.3 s"):
                await link.send(Batch(number, 1), SHORT_S)
        assert not link.stats.connected


async def test_a_path_that_loses_everything_is_left_for_a_new_one() -> None:
    """The peer has taken the batch in, which the sender can't know: it sends it again."""
    receiver = Recorder()
    async with (
        listening(receiver) as server,
        TcpProxy(int(server.address.rpartition(":")[2])) as proxy,
        linked(proxy.address) as link,
    ):
        await send(link, 1)
        proxy.lose_replies = True
        with pytest.raises(LinkError, match="no answer within"):
            await link.send(Batch(2, 1), SHORT_S)
        await until(lambda: len(receiver.received) == 2, "the batch to arrive")
        proxy.lose_replies = False
        assert await send(link, 2) == Ack(2, 2)
        assert proxy.connections == 2


async def test_a_batch_too_large_for_a_stalled_path_does_not_hold_the_sender() -> None:
    """It waits while it is written, not for an answer: the path takes a part and no more."""
    async with (
        listening() as server,
        TcpProxy(int(server.address.rpartition(":")[2])) as proxy,
        linked(proxy.address) as link,
    ):
        await send(link)
        proxy.lose_replies = True
        with pytest.raises(LinkError, match="no answer within"):
            await link.send(Batch(2, 1, entries(1_000, 4_000)), SHORT_S)


async def test_a_stopped_process_is_given_up_in_time_and_used_again_when_it_goes_on() -> None:
    with PeerProcess("us", ["eu"]) as peer:
        async with linked(peer.address) as link:
            await send(link, 1)
            peer.signal(signal.SIGSTOP)
            for number in (2, 3):
                with pytest.raises(LinkError, match="no answer within"):
                    await link.send(Batch(number, 1), SHORT_S)
            peer.signal(signal.SIGCONT)
            assert await send(link, 4) == Ack(4, 0)


async def test_a_peer_killed_in_the_middle_of_a_batch_is_an_error_at_once() -> None:
    with PeerProcess("us", ["eu"]) as peer:
        async with linked(peer.address) as link:
            await send(link, 1)
            assert await asyncio.to_thread(peer.line) == "eu 1"
            sending = asyncio.create_task(send(link, NEVER_DONE))
            assert await asyncio.to_thread(peer.line) == f"eu {NEVER_DONE}"
            peer.signal(signal.SIGKILL)
            with pytest.raises(LinkError, match="UNAVAILABLE") as caught:
                await sending
            assert not isinstance(caught.value, Refused)
            with pytest.raises(LinkError, match="UNAVAILABLE"):
                await send(link, 2)


async def test_a_stream_that_the_peer_ended_meanwhile_is_an_error_once() -> None:
    async with listening() as server, linked(server.address) as link:
        await send(link, 1)
        stream = link._stream
        assert stream is not None
        await server.stop(PATIENCE_S)
        await until(stream.call.done, "the end to arrive")
        with pytest.raises(LinkError, match="UNAVAILABLE: this region's exchange is stopping"):
            await send(link, 2)
        async with listening(address=server.address):
            assert await send(link, 2) == Ack(2, 2)


async def test_who_gives_up_sending_leaves_nothing_behind() -> None:
    """Cancelled in the middle of a batch; the next one goes on a stream of its own."""
    never = asyncio.Event()

    async def act(batch: Batch) -> None:
        if batch.number == 1:
            await never.wait()

    receiver = Recorder(act)
    async with listening(receiver) as server, linked(server.address) as link:
        sending = asyncio.create_task(send(link, 1))
        await until(lambda: receiver.received, "the batch")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await send(link, 2) == Ack(2, 2)
        await until(lambda: server.stats.streams == 1, "the first stream to end")
        assert server.stats.cut == 1


async def test_a_stream_is_renewed_before_the_peer_would_end_it() -> None:
    clock = ManualClock()
    async with listening(clock=clock) as server, linked(server.address, clock=clock) as link:
        for number in range(1, 6):
            assert await send(link, number) == Ack(number, 2)
            clock.advance(int(StreamBounds().age_s * 1000 * 0.4))
        assert server.stats.accepted == 3
        assert (server.stats.cut, server.stats.refused) == (0, {})


# Refused


@pytest.mark.parametrize(
    ("to", "regions", "versions", "reason"),
    [
        ("ap", EU, Versions(1, 1), "FAILED_PRECONDITION: this is region 'us', and 'eu' means 'ap'"),
        ("us", Regions("eu2", EU.peers), Versions(1, 1), "FAILED_PRECONDITION: 'eu2' is no peer of region 'us'"),
        ("us", Regions("us", EU.peers), Versions(1, 1), "FAILED_PRECONDITION: you call yourself 'us'"),
        ("us", EU, Versions(3, 4), "no common version of the exchange: you speak 3 to 4, this region 1 to 2"),
    ],
)
async def test_what_an_operator_has_to_correct_is_refused(
    to: str, regions: Regions, versions: Versions, reason: str
) -> None:
    async with listening() as server, linked(server.address, to=to, regions=regions, versions=versions) as link:
        for _ in range(2):
            with pytest.raises(Refused, match=reason):
                await send(link)


@pytest.mark.parametrize("batch", [Batch(1, 1, entries(5_001)), Batch(1, 1, entries(2, 3_000_000)), Batch(-1, 1)])
async def test_what_no_peer_takes_is_not_sent(batch: Batch) -> None:
    async with linked("127.0.0.1:1") as link:
        with pytest.raises(Refused, match="not sent: a batch"):
            await link.send(batch, PATIENCE_S)


@pytest.mark.parametrize(
    ("welcome", "reason"),
    [
        (codec.encode_welcome(Welcome(1, "ap", (), "")), "is region 'ap': correct the address of --peer us="),
        (codec.encode_welcome(Welcome(3, "us", (), "")), "chose version 3 of the exchange, of 1 to 2"),
        (codec.encode_ack(Ack(1, 0)), "answered a hello with Ack"),
        (b"\xff", "not a message of headgate.v1.Exchange"),
    ],
)
async def test_an_answer_to_the_hello_that_is_none_is_an_error(
    welcome: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening() as server, linked(server.address) as link:
        monkeypatch.setattr(codec, "encode_welcome", lambda _: welcome)
        with pytest.raises(LinkError, match=reason):
            await send(link)


async def test_the_acknowledgement_of_another_batch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as server, linked(server.address) as link:
        encode = codec.encode_ack
        monkeypatch.setattr(codec, "encode_ack", lambda ack: encode(ack._replace(number=ack.number - 1)))
        with pytest.raises(LinkError, match=r"answered with Ack\(number=4.* and not to batch 5"):
            await send(link, 5)
