"""A TCP proxy on a free port that can lose, hold or delay what it carries; with TLS in front if asked.

```python
async with TcpProxy(server.port) as proxy:
    proxy.lose_replies = True
```
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable


class TcpProxy:
    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.connections = 0
        self.lose_replies = False
        """Requests arrive, and their replies go nowhere."""
        self.hold_when = b""
        """A connection that carries these bytes is answered no more, while all others are."""
        self.connect_delay_s = 0.0
        """Before anything of a new connection is carried."""
        self.seen = bytearray()
        """All that clients have sent."""
        self._target = port
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> "TcpProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            # Cancelled at the end, and then done: a stream's task that ends cancelled is taken for a fault.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(self.connect_delay_s)
                await self._carry(reader, writer)
        finally:
            await _close(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = False

        def request(data: bytes) -> bool:
            nonlocal held
            self.seen += data
            held = held or (bool(self.hold_when) and self.hold_when in data)
            return True

        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [
            asyncio.create_task(_pump(reader, up_writer, request)),
            asyncio.create_task(_pump(up_reader, writer, lambda _: not (held or self.lose_replies))),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_writer.close()  # before anything is waited for: this may be cancelled once more
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _close(up_writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Until it is closed: the test's loop may end at once."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            if passes(data):
                writer.write(data)
                await writer.drain()


class StubRedis:
    """A server that answers as told: what a real one can't easily be brought to say."""

    def __init__(self, answer: Callable[[list[bytes]], Awaitable[bytes] | bytes]) -> None:
        self._answer = answer
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> "StubRedis":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readline():
                words = []
                for _ in range(int(head[1:])):
                    length = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(length + 2))[:-2])
                answer = self._answer(words)
                writer.write(answer if isinstance(answer, bytes) else await answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client left, or the test is over.
            return
        finally:
            writer.close()


def healthy(words: list[bytes]) -> bytes | None:
    """What a primary says while it is connected to; None for everything else."""
    if words[0] == b"ROLE":
        return b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
    if words[0] == b"INFO":
        info = b"# Server\r\nredis_mode:standalone\r\nrun_id:stub\r\n"
        return b"$%d\r\n%s\r\n" % (len(info), info)
    if words[0] == b"CLIENT":
        return b"-ERR unknown subcommand\r\n"
    return None
