"""Who makes room when too many are connected, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.descriptors import Spares
from headgate.transport.http_listener import HttpEndpoint, HttpLimits, HttpListener, total_cut

from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_S, until

FAST, SLOW = "/healthz", "/version"


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def abort(self) -> None:
        self._writer.transport.abort()

    async def ask(self, path: str = FAST, keep: str = "keep-alive") -> str:
        """The body of an answer; empty when the connection was cut."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: {keep}\r\n\r\n".encode())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._reader.readuntil(b"\r\n\r\n")
                return (await self._reader.readexactly(4)).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""

    async def is_cut(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True


class Server:
    def __init__(self, max_connections: int) -> None:
        self.release = asyncio.Event()
        self.slow = 0
        routes = [web.get(FAST, self._fast), web.get(SLOW, self._slow)]
        logger = BoundedLogger(None, ManualClock())
        limits = HttpLimits(max_connections=max_connections)
        self.listener = HttpListener(HttpEndpoint("127.0.0.1:0", logger, limits), routes)

    async def _fast(self, _: web.Request) -> web.Response:
        return web.Response(text="fast")

    async def _slow(self, _: web.Request) -> web.Response:
        self.slow += 1
        await self.release.wait()
        return web.Response(text="slow")

    async def connect(self, stack: AsyncExitStack) -> Connection:
        host, port = self.listener.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        connection = Connection(reader, writer)
        stack.callback(connection.abort)
        return connection


@asynccontextmanager
async def serving(max_connections: int) -> AsyncIterator[tuple[Server, AsyncExitStack]]:
    server = Server(max_connections)
    await server.listener.start()
    try:
        async with AsyncExitStack() as stack:
            yield server, stack
    finally:
        await server.listener.stop()


async def test_whoever_is_idle_for_longest_makes_room() -> None:
    async with serving(3) as (server, stack):
        first, second, third = [await server.connect(stack) for _ in range(3)]
        for each in (second, third, first):
            assert await each.ask() == "fast"
        fourth = await server.connect(stack)
        assert await fourth.ask() == "fast"
        assert await second.is_cut()
        for each in (first, third, fourth):
            assert await each.ask() == "fast"
        assert total_cut([server.listener]) == {"connections": 1}


async def test_one_with_a_request_under_way_is_cut_only_when_all_have_one() -> None:
    async with serving(2) as (server, stack):
        busy, idle = await server.connect(stack), await server.connect(stack)
        assert await idle.ask() == "fast"
        answer = asyncio.create_task(busy.ask(SLOW))
        await until(lambda: server.slow == 1, "the request")
        other = await server.connect(stack)
        answers = [answer, asyncio.create_task(other.ask(SLOW))]
        await until(lambda: server.slow == 2, "the other request")
        assert await idle.is_cut()
        last = await server.connect(stack)
        assert await last.ask() == "fast"
        server.release.set()
        assert sorted(await asyncio.gather(*answers)) == ["", "slow"]


async def test_those_that_have_ended_take_no_room() -> None:
    async with serving(2) as (server, stack):
        kept = await server.connect(stack)
        for _ in range(10):
            ended = await server.connect(stack)
            assert await ended.ask(keep="close") == "fast"
            assert await ended.is_cut()
        assert await kept.ask() == "fast"
        assert not total_cut([server.listener])


def test_spares_are_given_out_once_and_taken_back() -> None:
    spares = Spares(2)
    assert [spares.release() for _ in range(3)] == [True, True, False]
    assert spares.refill()
    assert spares.release()
    spares.close()
    assert not spares.release()
