"""Who makes room when too many are connected, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport import http_connections
from headgate.transport.descriptors import Spares
from headgate.transport.http_listener import HttpEndpoint, HttpLimits, HttpListener, total_cut
from headgate.transport.http_share import LoopShares, RequestKind

from tests.support.clock import ManualClock
from tests.support.ipv6_callers import Ipv6Listener
from tests.support.waiting import PATIENCE_S, until

FAST, SLOW, HEALTH = "/metrics", "/version", "/healthz"
MOST_WAITING = 32
"""Requests that aiohttp takes of a connection before the one under way is answered: docs/security.md says so."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def abort(self) -> None:
        self._writer.transport.abort()

    def say(self, words: bytes) -> None:
        self._writer.write(words)

    async def ask(self, path: str = FAST, keep: str = "keep-alive") -> str:
        """The body of an answer; empty when the connection was cut."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: {keep}\r\n\r\n".encode())
        try:
            return await self.read_answer()
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""

    async def read(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read()

    async def read_answer(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            await self._reader.readuntil(b"\r\n\r\n")
            return (await self._reader.readexactly(4)).decode()

    async def is_cut(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True


class Server:
    def __init__(self, max_connections: int, per_address: int) -> None:
        self.release = asyncio.Event()
        self.slow = 0
        routes = [
            web.get(FAST, self._fast),
            web.get(SLOW, self._slow),
            web.get(HEALTH, self._fast),
            web.post("/json", self._body),
        ]
        logger = BoundedLogger(None, ManualClock())
        limits = HttpLimits(max_connections=max_connections, max_connections_per_address=per_address)
        self.listener = HttpListener(HttpEndpoint("127.0.0.1:0", logger, limits), routes)

        self.health_waits = False

    def protocols(self) -> list[web.RequestHandler]:
        return list(self.listener.connections._by_protocol)

    async def _fast(self, request: web.Request) -> web.Response:
        if self.health_waits:
            return await self._slow(request)
        return web.Response(text="fast")

    async def _body(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text="read")

    async def _slow(self, _: web.Request) -> web.Response:
        self.slow += 1
        await self.release.wait()
        return web.Response(text="slow")

    async def connect(self, stack: AsyncExitStack, caller: str = "127.0.0.1", words: bytes = b"") -> Connection:
        host, port = self.listener.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(caller, 0))
        writer.write(words)
        connection = Connection(reader, writer)
        stack.callback(connection.abort)
        return connection


@asynccontextmanager
async def serving(max_connections: int, per_address: int = 1_000) -> AsyncIterator[tuple[Server, AsyncExitStack]]:
    server = Server(max_connections, per_address)
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


HALF = b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
CHECK = b"GET /healthz HTTP/1.1\r\nHost: 10.0.0.7:8080\r\nUser-Agent: kube-probe/1.30\r\n\r\n"


async def test_a_health_check_is_answered_while_others_take_every_place() -> None:
    """Half bodies, thousands a second, from the same address: the check was the first to be cut."""
    async with serving(8) as (server, stack):

        async def hammer() -> None:
            while True:
                for _ in range(16):
                    await server.connect(stack, words=HALF)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(hammer()) for _ in range(4)]
        try:
            for _ in range(20):
                check = await server.connect(stack)
                await asyncio.sleep(0.01)
                assert await check.ask(HEALTH) == "fast"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert server.listener.connections.cut["connections"] > 100


async def test_a_health_check_is_for_one_request_and_takes_no_place() -> None:
    async with serving(2) as (server, stack):
        kept = [await server.connect(stack) for _ in range(2)]
        for each in kept:
            assert await each.ask() == "fast"
        for _ in range(10):
            check = await server.connect(stack, "127.0.0.2", words=CHECK)
            answer = await check.read()
            assert answer.endswith(b"fast")
            assert b"\r\nConnection: close\r\n" in answer
        assert not total_cut([server.listener])
        for each in kept:
            assert await each.ask() == "fast"


@pytest.mark.parametrize(
    "words",
    [
        CHECK + CHECK,
        CHECK[:-2],
        CHECK.replace(b"Host", b"Content-Length: 5\r\nHost"),
        CHECK.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
        CHECK.replace(b"/healthz", b"/healthz/"),
        CHECK.replace(b"Host", b"X: " + b"x" * 3_000 + b"\r\nHost"),
    ],
)
async def test_what_is_no_whole_check_has_no_place_for_checks(words: bytes) -> None:
    assert http_connections._is_probe(CHECK)
    assert not http_connections._is_probe(words)


async def test_places_for_checks_are_few_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "MOST_PROBES", 2)
    async with serving(2) as (server, stack):
        server.health_waits = True
        first = await server.connect(stack, words=CHECK)
        await until(lambda: server.slow == 1, "the check")
        for number in (2, 3):
            await server.connect(stack, words=CHECK)
            await until(lambda: server.slow == number, "the check")  # noqa: B023 - awaited at once
        assert await first.is_cut()
        assert total_cut([server.listener]) == {"probes": 1}


SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.7:8080\r\nUser-Agent: Prometheus/3.5.0\r\n\r\n"


def use_up(shares: LoopShares, network: str, *kinds: RequestKind) -> None:
    """Take all that a network has for a second or two."""
    for kind in kinds:
        while shares.may_open(network, kind):
            pass
        shares.begin(network, kind)
        shares.ended(network, 10.0, kind)


async def test_who_has_taken_its_share_of_the_loop_opens_no_more_and_checks_and_scrapes_have_one_each() -> None:
    """A Prometheus that asks from the address of a flood, behind one proxy, saw nothing just then."""
    async with serving(8) as (server, stack):
        shares, hostile = server.listener._shares, "127.0.0.2"
        use_up(shares, hostile, RequestKind.REQUEST)
        for _ in range(3):
            assert await (await server.connect(stack, hostile, words=HALF)).is_cut()
        assert total_cut([server.listener]) == {"share": 3}
        assert (await (await server.connect(stack, hostile, words=CHECK)).read()).endswith(b"fast")
        scraper = await server.connect(stack, hostile)
        assert [await scraper.ask() for _ in range(3)] == ["fast"] * 3
        assert await (await server.connect(stack)).ask() == "fast"
        use_up(shares, hostile, RequestKind.SCRAPE)
        assert await (await server.connect(stack, hostile, words=SCRAPE)).is_cut()
        assert (await (await server.connect(stack, hostile, words=CHECK)).read()).endswith(b"fast")
        use_up(shares, hostile, RequestKind.PROBE)
        assert await (await server.connect(stack, hostile, words=CHECK)).is_cut()
        for words in (CHECK, SCRAPE):
            assert await (await server.connect(stack, words=words)).read_answer() == "fast"


async def test_what_begins_as_a_scrape_pays_for_everything_else_from_the_share_of_all() -> None:
    async with serving(8) as (server, stack):
        shares, hostile = server.listener._shares, "127.0.0.2"
        scraper = await server.connect(stack, hostile)
        assert await scraper.ask() == "fast"
        use_up(shares, hostile, RequestKind.REQUEST)
        waits = asyncio.create_task(scraper.ask(SLOW))
        assert await (await server.connect(stack, hostile)).ask() == "fast"
        assert server.slow == 0, "it waits for its turn"
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (SCRAPE, RequestKind.SCRAPE),
        (SCRAPE[:20], RequestKind.SCRAPE),
        (SCRAPE.replace(b"/metrics", b"/metrics?name=x"), RequestKind.SCRAPE),
        (SCRAPE.replace(b"/metrics", b"/metricsx"), RequestKind.REQUEST),
        (SCRAPE.replace(b"GET", b"POST"), RequestKind.REQUEST),
        (CHECK, RequestKind.PROBE),
        (HALF, RequestKind.REQUEST),
    ],
)
def test_what_a_connection_is_for_is_in_its_first_words(words: bytes, kind: RequestKind) -> None:
    assert http_connections._kind_of(words) is kind


async def test_ipv6_is_counted_by_64s() -> None:
    """Everybody has one whole: else he has as many addresses as he likes, each with places and a share of its own."""
    async with serving(8, per_address=1) as (server, _):
        connections = server.listener.connections
        with Ipv6Listener("2001:db8:1:2::1", "2001:db8:1:2:ffff::2", "2001:db8:1:3::1") as three:
            connections._accept(three)  # type: ignore[arg-type]
            for each in three.callers:
                each.send(HALF)
            await until(lambda: not connections._silent and not connections._opening, "all of them to be open")
            assert total_cut([server.listener]) == {"address": 1}
            assert connections._by_network == {"2001:db8:1:2::/64": 1, "2001:db8:1:3::/64": 1}


async def test_requests_from_ipv6_are_counted_by_64s() -> None:
    async with serving(8) as (server, _):
        listener = server.listener
        use_up(listener._shares, "2001:db8:1:2::/64", RequestKind.REQUEST)
        transport = SimpleNamespace(
            get_extra_info=lambda name, default=None: (
                ("2001:db8:1:2:ffff::9", 4711, 0, 0) if name == "peername" else default
            ),
            is_closing=lambda: False,
        )
        request = make_mocked_request("GET", FAST.replace("metrics", "version"), transport=transport)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await listener._in_share(request, server._fast)
        request = make_mocked_request("GET", SLOW)
        assert (await listener._in_share(request, server._fast)).status == 200


async def test_of_requests_in_one_go_so_many_wait_on_a_connection_and_it_is_not_read_on() -> None:
    """Each is answered in the end, and what was not read stays with its caller."""
    async with serving(8) as (server, stack):
        caller = await server.connect(stack)
        slow = asyncio.create_task(caller.ask(SLOW))
        await until(lambda: server.slow == 1, "the first request")
        (protocol,) = server.protocols()
        caller.say(f"GET {FAST} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 500)
        await until(lambda: protocol._buffer_paused, "the connection not to be read on")
        assert len(protocol._messages) == MOST_WAITING
        server.release.set()
        assert await slow == "slow"
        assert [await caller.read_answer() for _ in range(500)] == ["fast"] * 500


async def test_one_address_has_so_many_and_makes_room_for_itself() -> None:
    async with serving(10, per_address=3) as (server, stack):
        other = await server.connect(stack, "127.0.0.2")
        assert await other.ask() == "fast"
        mine = [await server.connect(stack) for _ in range(3)]
        for each in mine:
            assert await each.ask() == "fast"
        more = [await server.connect(stack) for _ in range(2)]
        for each in more:
            assert await each.ask() == "fast"
        assert [await each.is_cut() for each in mine[:2]] == [True, True]
        assert await other.ask() == "fast"
        assert total_cut([server.listener]) == {"address": 2}


async def test_whoever_has_most_makes_room() -> None:
    """Not he who has been idle for longest."""
    async with serving(4) as (server, stack):
        other = await server.connect(stack, "127.0.0.2")
        assert await other.ask() == "fast"
        for _ in range(20):
            assert await (await server.connect(stack)).ask() == "fast"
        assert await other.ask() == "fast"


async def test_a_connection_that_says_nothing_is_a_bare_socket_and_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connections, "MOST_SILENT", 3)
    async with serving(1) as (server, stack):
        kept = await server.connect(stack)
        assert await kept.ask() == "fast"
        silent = [await server.connect(stack) for _ in range(5)]
        assert [await each.is_cut() for each in silent[:2]] == [True, True]
        assert len(server.protocols()) == 1
        assert total_cut([server.listener]) == {"silent": 2}
        silent[4].abort()
        await until(lambda: len(server.listener.connections._silent) == 2, "its place")
        assert await kept.ask() == "fast"


async def test_of_those_that_say_nothing_whoever_has_most_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "MOST_SILENT", 3)
    async with serving(8) as (server, stack):
        silent = server.listener.connections._silent
        check = await server.connect(stack)
        await until(lambda: len(silent) == 1, "the check")
        hostile = [await server.connect(stack, "127.0.0.2") for _ in range(6)]
        for each in hostile[:4]:
            assert await each.is_cut()
        assert await check.ask(HEALTH) == "fast"


def test_spares_are_given_out_once_and_taken_back() -> None:
    spares = Spares(2)
    assert [spares.release() for _ in range(3)] == [True, True, False]
    assert spares.refill()
    assert spares.release()
    spares.close()
    assert not spares.release()
