"""One connection to one server: commands in flight are answered in order, or all of them fail.

Nothing is ever sent twice. After a timeout the connection is dropped, so a late reply
can't be taken for the answer to a later command. A connection is made once for all
who wait for it and outlives their patience: a call with a short timeout may end before
a TLS handshake does, and the next call finds it made.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

CONNECT_TIMEOUT_S: Final = 1.0
"""For name, TCP, TLS, AUTH, SELECT and ROLE together: a server that takes longer is not there."""
CLOSE_TIMEOUT_S: Final = 1.0
"""How long a closing waits for the other side to say goodbye."""

Command = Sequence[bytes | str | int]


def packed_command(command: Command) -> bytes:
    """A command as Redis reads it: an array of strings, each with its length."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        if type(part) is not bytes:
            part = str(part).encode()  # noqa: PLW2901 - the same part, as bytes
        parts.append(b"$%d\r\n%b\r\n" % (len(part), part))
    return b"".join(parts)


class Lost(Exception):
    """There is no connection, or it went with the replies that were still to come; says why."""


class Session:
    """A connection that was made and verified. `epoch` is the run of the server behind it."""

    def __init__(self, connection: Connection, epoch: bytes, hazards: tuple[str, ...] = ()) -> None:
        self.epoch = epoch
        self.hazards = hazards
        """What an operator should know of this server, though it can be used."""
        self.alive = True
        self._connection = connection
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._reader = asyncio.create_task(self._read())

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together; their replies in order, errors as values."""
        if not (self.alive and self._connection.is_connected):
            # The driver would connect by itself, to whatever is there, and verify nothing.
            raise Lost("the connection was lost")
        loop = asyncio.get_running_loop()
        packed = b"".join([packed_command(command) for command in commands])
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in commands]
        # Nothing is awaited between the two: what is written first is answered first.
        self._pending.extend(futures)
        try:
            await self._connection.send_packed_command(packed, check_health=False)
        except RedisError as error:
            self.drop(error)
        except BaseException:
            # Half a command may be on its way: nothing can follow it.
            self.drop(Lost("the connection was dropped with a command half sent"))
            raise
        return [await future for future in futures]

    def drop(self, reason: Exception) -> None:
        """Fail whatever waits, and let the connection go without waiting for it."""
        if not self.alive:
            return
        self.alive = False
        if asyncio.current_task() is not self._reader:
            self._reader.cancel()
        while self._pending:
            future = self._pending.popleft()
            if not future.done():
                future.set_exception(reason)
                # Whoever asked may have gone: then nobody is left to be told.
                future.exception()

    async def ended(self) -> None:
        """Until the connection is closed."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    async def _read(self) -> None:
        try:
            while True:
                try:
                    reply = await self._connection.read_response(disconnect_on_error=False)
                except ResponseError as error:
                    reply = error
                future = self._pending.popleft()
                if not future.done():
                    future.set_result(reply)
        except Exception as error:
            self.drop(error)
        finally:
            await _disconnect(self._connection)


async def _disconnect(connection: Connection) -> None:
    with contextlib.suppress(RedisError, OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await connection.disconnect()


class RedisLink:
    """Where commands go: connects when there is something to say, and again after a loss."""

    def __init__(self, dial: Callable[[], Awaitable[Session]]) -> None:
        self._dial = dial
        self._session: Session | None = None
        self._dialling: asyncio.Task[Session] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Whether there is a connection that works, as far as is known."""
        return self._session is not None and self._session.alive

    async def session(self) -> Session:
        """The connection, made when there is none."""
        if self._session is not None and self._session.alive:
            return self._session
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
        """Whatever connection there is, is not to be used any more."""
        if self._session is not None and self._session.alive:
            self.drop(self._session, why)

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
