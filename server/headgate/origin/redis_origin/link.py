"""One connection to one server: commands in flight are answered in order, or all of them fail.

Nothing is ever sent twice. After a timeout the connection is dropped, so a late reply
can't be taken for the answer to a later command. A connection is made once for all
who wait for it and outlives their patience: a call with a short timeout may end before
a TLS handshake does, and the next call finds it made.

Replies go to who asked as they are received, in the loop's own callback: no task reads for them, and none waits for a
timeout. What is asked is given to the transport whole, so whoever leaves leaves no half of a command behind.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import hiredis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as ClosedError
from redis.exceptions import InvalidResponse

CONNECT_TIMEOUT_S: Final = 1.0
"""Time for name, TCP, TLS, AUTH, SELECT and ROLE together: a server that takes longer is not there."""
CLOSE_TIMEOUT_S: Final = 1.0
"""Time for which a closing waits for the other side to say goodbye."""

BUFFER_BYTES: Final = 65_536
"""Size of what is received at a time: more than most replies. One for all that comes on a connection: a new one for
each reply, of 256 KiB, as asyncio makes by itself, goes back to the kernel each time."""

MAX_REPLY_BYTES: Final = 32 * 1024 * 1024
"""Size of the largest reply that is taken in: several times what any operation asks for. Who sends more is no server
of ours, and would fill this process's memory before a timeout ends it."""

NOT_YET: Final = object()
"""Stands in a reply's place while there is only a part of it."""

Command = tuple[bytes | str | int, ...]
_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]
"""A command as Redis reads it. (The stubs know commands of one part only.)"""


class Lost(Exception):
    """There is no connection, or it went with the replies that were still to come; says why."""


class Session(asyncio.BufferedProtocol):
    """A connection that was made and verified. `epoch` is the run of the server behind it."""

    def __init__(self, stream: asyncio.StreamWriter, epoch: bytes, hazards: tuple[str, ...] = ()) -> None:
        """Takes the connection over, on which nothing is under way; the stream is not to be used any more."""
        self.epoch = epoch
        self.hazards = hazards
        """Warnings for an operator of a server that can be used."""
        # Kept, because one that nobody has any more closes its transport.
        self._stream = stream
        self._transport = stream.transport
        self._dropped = False
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._replies = hiredis.Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=NOT_YET
        )
        self._buffer = bytearray(BUFFER_BYTES)
        self._partial_bytes = 0
        """Bytes received since the last reply was whole."""
        self._transport.set_protocol(self)

    @property
    def alive(self) -> bool:
        """True if something can be asked, as far as is known."""
        return not self._dropped and not self._transport.is_closing()

    async def ask(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """Send commands together; their replies in order, errors as values. Raises TimeoutError."""
        if not self.alive:
            raise Lost("the connection was lost")
        futures: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in commands]
        last = futures[-1]
        # What is written first is answered first.
        self._pending.extend(futures)
        self._transport.write(b"".join(map(_pack, commands)))
        timer = self._loop.call_later(timeout_s, _expire, last)
        try:
            # With the last one all are there.
            await last
        finally:
            timer.cancel()
        return [future.result() for future in futures]

    def drop(self, reason: Exception) -> None:
        """Fail whatever waits, and let the connection go without waiting for it."""
        if self._dropped:
            return
        self._dropped = True
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # what is not sent yet is not to be
        else:
            self._transport.close()
        while self._pending:
            future = self._pending.popleft()
            if not future.done():
                future.set_exception(reason)
                # Whoever asked may have gone: then nobody is left to be told.
                future.exception()

    async def ended(self) -> None:
        """Wait until the connection is closed; cut it off if the other side is too slow to say goodbye."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.shield(self._closed)
        self._transport.abort()

    # What the transport calls

    def get_buffer(self, sizehint: int) -> bytearray:
        """Give the buffer for what comes: always the same."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Replies, or parts of them."""
        self._partial_bytes += nbytes
        if self._partial_bytes > MAX_REPLY_BYTES:
            self.drop(Lost(f"a reply has more than {MAX_REPLY_BYTES} bytes"))
            return
        self._replies.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]
        try:
            while (reply := self._replies.gets()) is not NOT_YET:
                self._partial_bytes = 0
                if isinstance(reply, ClosedError):
                    raise reply
                future = self._pending.popleft()
                if not future.done():
                    future.set_result(reply)
        except IndexError:
            self.drop(Lost("it answered what nobody asked"))
        except (InvalidResponse, ClosedError) as error:
            self.drop(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that either side closed the connection."""
        self.drop(exc or ClosedError("Connection closed by server."))
        if not self._closed.done():
            self._closed.set_result(None)


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


class RedisLink:
    """Sends commands: connects when there is something to say, and again after a loss."""

    def __init__(self, dial: Callable[[], Awaitable[Session]]) -> None:
        self._dial = dial
        self._session: Session | None = None
        self._dialling: asyncio.Task[Session] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """True if there is a connection that works, as far as is known."""
        return self.made is not None

    @property
    def made(self) -> Session | None:
        """The connection, if there is one."""
        session = self._session
        return session if session is not None and session.alive else None

    async def session(self) -> Session:
        """The connection, made when there is none."""
        if (session := self.made) is not None:
            return session
        if self._dialling is None or self._dialling.done():
            self._dialling = asyncio.create_task(self._connect())
            # An error that comes after everyone has given up is told by the next attempt.
            self._dialling.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._dialling)

    def drop(self, session: Session, why: str) -> None:
        """This connection is not to be used any more; the next command makes another."""
        session.drop(Lost(why))
        task = asyncio.create_task(session.ended())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def leave(self, why: str) -> None:
        """Stop using the connection, if there is one."""
        if (session := self.made) is not None:
            self.drop(session, why)

    async def close(self) -> None:
        """Close the connection, and wait until it and all that were dropped are closed."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        if self._session is not None:
            self.drop(self._session, "the origin is being closed")
        if self._closing:
            await asyncio.wait(set(self._closing))

    async def _connect(self) -> Session:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._session = await self._dial()
        except TimeoutError as error:
            raise Lost(f"no connection in {CONNECT_TIMEOUT_S:.0f} s") from error
        return self._session
