"""A private grpcio server for the methods that the native front can't serve itself.

Reflection streams both ways, which the front doesn't; it forwards whatever it doesn't know to this server, on a Unix
socket in a directory that only we may enter. A call that ends here costs the loop some hundred microseconds, whoever
makes it and however short its name is, and nobody needs many: so what is forwarded is taken a little at a time, and
calls for decisions go between.
"""

import asyncio
import contextlib
from typing import Final

import grpc

from headgate.endpoint.methods import MethodHandlers, Methods
from headgate.transport.interface import TransportLimits
from headgate.transport.private_directory import PrivateDirectory

# Reflection has a bound of its own; calls to methods that nobody knows end at once.
_MAX_CALLS = 128
TAKEN_BYTES: Final = 256
"""Bytes that are taken at a time: the frames of three or four short calls. What people ask for by reflection is one."""
PAUSE_S: Final = 0.005
"""Time between two such parts of whatever comes: 50 KB a second."""


class Fallback:
    """The private server, from `start` to `stop`. Raises OSError where no directory can hold its sockets."""

    def __init__(self, methods: MethodHandlers, limits: TransportLimits) -> None:
        self._server = grpc.aio.server(
            handlers=[Methods(methods)],
            options=[("grpc.max_receive_message_length", limits.max_message_bytes)],
            maximum_concurrent_rpcs=_MAX_CALLS,
        )
        self._directory = PrivateDirectory()
        self.path = str(self._directory.path / "fallback.sock")
        """Socket on which all methods are served that the front does not know."""
        self._server_path = str(self._directory.path / "server.sock")
        self._relay = PacedRelay(self._server_path)

    async def start(self) -> None:
        try:
            self._server.add_insecure_port(f"unix:{self._server_path}")
            await self._server.start()
            await self._relay.start(self.path)
        except (OSError, RuntimeError) as error:
            await self.stop()
            raise OSError(f"can't listen in {self._directory.path}") from error

    async def stop(self) -> None:
        await self._relay.stop()
        await self._server.stop(None)
        self._directory.remove()


class PacedRelay:
    """Hands on what comes to the socket at `target`, all connections' together at no more than a certain rate; what
    comes back it hands on as it comes.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._turn = asyncio.Lock()
        self._listening: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen at a path."""
        self._listening = await asyncio.start_unix_server(self._serve, path, limit=TAKEN_BYTES)

    async def stop(self) -> None:
        """Stop listening and cut all connections."""
        if self._listening is not None:
            self._listening.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer), name="fallback")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either side ends it."""
        with contextlib.suppress(OSError), contextlib.closing(writer):
            back, forth = await asyncio.open_unix_connection(self._target)
            with contextlib.closing(forth):
                ways = [asyncio.create_task(self._hand_on(reader, forth)), asyncio.create_task(_pass(back, writer))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(TAKEN_BYTES):
            async with self._turn:
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(PAUSE_S)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
