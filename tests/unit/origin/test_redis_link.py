"""One connection over a real socket: who gets which reply, and what happens to those who wait when it fails."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from headgate.origin.redis_origin import link
from headgate.origin.redis_origin.link import BUFFER_BYTES, MAX_REPLY_BYTES, Command, Lost, RedisLink, Session
from redis.exceptions import ConnectionError as ClosedError
from redis.exceptions import InvalidResponse, NoScriptError, ResponseError

from tests.support.waiting import PATIENCE_S, until

PING: Command = (b"PING",)


class Peer:
    """The other side, by hand."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.accepted = asyncio.Event()
        self.ended = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.accepted.set()
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.received += data
        self.ended.set()
        await self.close()

    @property
    def writer(self) -> asyncio.StreamWriter:
        assert self._writer is not None
        return self._writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@pytest.fixture
async def peer() -> Peer:
    return Peer()


@pytest.fixture
async def session(peer: Peer) -> AsyncIterator[Session]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    _, stream = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    await asyncio.wait_for(peer.accepted.wait(), PATIENCE_S)
    session = Session(stream, b"epoch")
    try:
        yield session
    finally:
        session.drop(Lost("the test is over"))
        await session.ended()
        await asyncio.wait_for(peer.ended.wait(), PATIENCE_S)
        await peer.close()
        server.close()
        await server.wait_closed()


def asking(session: Session, *commands: Command, timeout_s: float = PATIENCE_S) -> asyncio.Task[list[object]]:
    return asyncio.create_task(session.ask(commands, timeout_s))


async def sent(peer: Peer, times: int) -> None:
    await until(lambda: peer.received.count(b"PING") == times, f"{times} commands")


async def test_replies_go_to_who_asked_in_order_however_they_arrive(session: Session, peer: Peer) -> None:
    first, second, third = asking(session, PING), asking(session, PING, PING), asking(session, PING)
    await sent(peer, 4)
    for part in (b":1\r\n:2\r", b"\n$5\r\nth", b"ree\r\n*1\r\n:4\r\n"):
        peer.say(part)
        await peer.writer.drain()
        await asyncio.sleep(0)
    assert [await first, await second, await third] == [[1], [2, b"three"], [[4]]]


async def test_an_error_is_the_value_of_its_own_command(session: Session, peer: Peer) -> None:
    asked = asking(session, PING, PING, PING)
    await sent(peer, 3)
    peer.say(b"-NOSCRIPT gone\r\n-ERR what\r\n:3\r\n")
    no_script, refused, three = await asked
    assert isinstance(no_script, NoScriptError)
    assert type(refused) is ResponseError
    assert three == 3
    assert session.alive


async def test_who_leaves_takes_nobody_elses_reply(session: Session, peer: Peer) -> None:
    leaves, stays = asking(session, PING), asking(session, PING)
    await sent(peer, 2)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    peer.say(b":1\r\n:2\r\n")
    assert await stays == [2]


async def test_a_timeout_is_the_asker_s_own(session: Session, peer: Peer) -> None:
    """The connection is dropped by whoever it was for (server.py); until then its reply is nobody else's."""
    with pytest.raises(TimeoutError):
        await session.ask([PING, PING], 0.01)
    later = asking(session, PING)
    await sent(peer, 3)
    peer.say(b":1\r\n:2\r\n:3\r\n")
    assert await later == [3]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        pytest.param(b"", ClosedError, id="closed"),
        pytest.param(b":1", ClosedError, id="closed within a reply"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", InvalidResponse, id="another protocol"),
        pytest.param(b"-ERR max number of clients reached\r\n", ClosedError, id="turned away"),
    ],
)
async def test_all_who_wait_fail_together(session: Session, peer: Peer, said: bytes, error: type[Exception]) -> None:
    waiting = [asking(session, PING), asking(session, PING, PING)]
    await sent(peer, 3)
    peer.say(said)
    if error is ClosedError and not said.startswith(b"-"):
        await peer.close()
    for asked in waiting:
        with pytest.raises(error):
            await asked
    assert not session.alive
    with pytest.raises(Lost):
        await session.ask([PING], PATIENCE_S)
    assert peer.received.count(b"PING") == 3, "nothing is sent twice, nor after the end"


async def test_a_connection_that_is_reset_says_so(session: Session, peer: Peer) -> None:
    asked = asking(session, PING)
    await sent(peer, 1)
    peer.writer.transport.abort()
    with pytest.raises((ConnectionResetError, ClosedError)):
        await asked


async def test_a_reply_that_nobody_asked_for_ends_the_connection(session: Session, peer: Peer) -> None:
    """Whose the next one is can't be known."""
    asked = asking(session, PING)
    await sent(peer, 1)
    peer.say(b":1\r\n:2\r\n")
    assert await asked == [1]
    await until(lambda: not session.alive, "the end")


async def test_what_is_not_sent_yet_when_it_is_dropped_never_is(session: Session, peer: Peer) -> None:
    transport = peer.writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    asked = asking(session, (b"SET", b"k", b"x" * 50_000_000))
    await asyncio.sleep(0)
    session.drop(Lost("enough"))
    with pytest.raises(Lost, match="enough"):
        await asked
    transport.resume_reading()
    await asyncio.wait_for(peer.ended.wait(), PATIENCE_S)
    assert len(peer.received) < 50_000_000


async def test_the_end_waits_for_no_goodbye(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CLOSE_TIMEOUT_S", 0.01)
    await asyncio.wait_for(session.ended(), PATIENCE_S)
    assert not session.alive


async def test_a_link_connects_again_after_a_loss_and_once_for_all_who_wait(session: Session, peer: Peer) -> None:
    dialled = 0

    async def dial() -> Session:
        nonlocal dialled
        dialled += 1
        await asyncio.sleep(0)
        return session

    redis_link = RedisLink(dial)
    assert redis_link.made is None
    assert list(await asyncio.gather(redis_link.session(), redis_link.session())) == [session, session]
    assert redis_link.made is session
    assert dialled == 1
    await peer.close()
    await until(lambda: not redis_link.connected, "the loss")
    assert redis_link.made is None
    await redis_link.session()
    assert dialled == 2
    await redis_link.close()


async def test_a_reply_without_end_is_not_taken_in(session: Session, peer: Peer) -> None:
    asked = asking(session, PING)
    await sent(peer, 1)
    peer.say(b"$%d\r\n" % (100 * MAX_REPLY_BYTES))
    part, said = b"x" * BUFFER_BYTES, 0
    with contextlib.suppress(ConnectionError):
        while not peer.ended.is_set() and said < 2 * MAX_REPLY_BYTES:
            peer.say(part)
            said += len(part)
            await peer.writer.drain()
    with pytest.raises(Lost, match=f"a reply has more than {MAX_REPLY_BYTES} bytes"):
        await asked
    assert not session.alive


async def test_replies_that_are_whole_may_be_many(
    session: Session, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "MAX_REPLY_BYTES", 1_000)
    for _ in range(3):
        asked = asking(session, PING)
        await until(lambda: b"PING" in peer.received, "a command")
        peer.received.clear()
        peer.say(b"$900\r\n%s\r\n" % (b"x" * 900))
        assert await asked == [b"x" * 900]
