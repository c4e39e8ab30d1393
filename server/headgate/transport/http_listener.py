"""Listening for HTTP, whatever is served: bounds, errors, counting.

Clients can't hold anything for long: the body, the headers, the time for a request and
the time between requests are bounded, and of an answer that nobody reads a piece is held. All errors are JSON.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from headgate.address import TcpAddress, parse_address
from headgate.endpoint.listening import listen
from headgate.endpoint.socketfile import OWNER_ONLY, binding_at
from headgate.endpoint.trust import network_of
from headgate.errors import RequestError, Status, TooLarge, status_of
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.http_access import HEALTH, OPEN, SCRAPED, HttpAccess
from headgate.transport.http_connections import HttpConnections
from headgate.transport.http_protocol import SERVER_NAME, HttpProtocol, error_response
from headgate.transport.http_share import LoopShares, RequestKind, Timed

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers one request."""

PIECE_BYTES = 64 * 1024
"""Size of what is written of an answer before its reader must have taken some: a megabyte of metrics is not held for
each who does not read."""
JSON = "application/json"

HTTP_STATUS: Mapping[Status, int] = {
    Status.INVALID_ARGUMENT: 400,
    Status.NOT_FOUND: 404,
    Status.PERMISSION_DENIED: 403,
    Status.RESOURCE_EXHAUSTED: 413,
    Status.UNIMPLEMENTED: 501,
    Status.INTERNAL: 500,
    Status.UNAVAILABLE: 503,
    Status.UNAUTHENTICATED: 401,
}
"""HTTP status for the gRPC status of an error."""


CALLER_LEFT = 499
"""Status under which a request is counted whose caller did not wait for the answer."""
MAX_REQUEST_ID_CHARS = 64
"""Longest name that a caller gives its request, in the log."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on what a client can make us hold, and for how long."""

    max_body_bytes: int = 8 * 1024
    """Requests are some hundred bytes; each is read on the loop that decides."""
    max_header_bytes: int = 8 * 1024
    max_headers: int = 64
    request_timeout_s: float = 10.0
    """Time from the last header to the last byte of the answer: slow senders and slow readers alike."""
    idle_timeout_s: float = 30.0
    """Time from the connection, or the last answer, to the last header of the next request."""
    close_timeout_s: float = 2.0
    max_connections: int = 128
    """Connections of one listener. Scrapers and callers of /json are few; for volume there is gRPC."""
    max_connections_per_address: int = 64
    """Connections from one address, of IPv6 from one /64: half of all, because a proxy may stand for many."""
    scrape_kept_s: float = 1.0
    """Time for which rendered metrics are kept, for all who ask: scrapers come every few seconds."""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """The task of an HTTP server: where it listens, to whom, and within which bounds."""

    address: str
    logger: BoundedLogger
    limits: HttpLimits = HttpLimits()
    access: HttpAccess = OPEN
    socket_mode: int = OWNER_ONLY
    name: str = "http"
    """Setting that gave the address."""


class HttpListener:
    """An HTTP server without routes of its own: subclasses bring them, it binds, bounds, counts and reports errors."""

    def __init__(self, endpoint: HttpEndpoint, routes: Iterable[web.RouteDef]) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """Requests by route (never by raw path) and status."""
        self.limits = endpoint.limits
        self.access = endpoint.access
        self.name = endpoint.name
        self._shares = LoopShares()
        self.connections = HttpConnections(
            self.limits.max_connections,
            self.limits.max_connections_per_address,
            self.limits.idle_timeout_s,
            self._shares,
        )
        self._address = parse_address(endpoint.address)
        self._routes = tuple(self.access.routes(routes))
        self._paths = frozenset(route.path for route in self._routes)
        self._logger = endpoint.logger
        self._socket_mode = endpoint.socket_mode
        self._cleanup = contextlib.AsyncExitStack()

    @property
    def address(self) -> str:
        """The address that it listens on, with the real port."""
        return str(self._address)

    @property
    def _over_network(self) -> bool:
        """True where browsers can reach it: not on a Unix socket."""
        return isinstance(self._address, TcpAddress)

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address can't be had."""
        async with contextlib.AsyncExitStack() as cleanup:
            with binding_at(self._address, self._socket_mode, cleanup):
                listeners, self._address = listen(self._address, reuse_port=False)
            for listener in listeners:
                cleanup.callback(listener.close)
            runner = self._runner()
            await runner.setup()
            cleanup.push_async_callback(runner.cleanup)
            assert runner.server is not None  # noqa: S101 - made by its setup
            self.connections.start(listeners, partial(self._protocol, runner.server))
            cleanup.push_async_callback(self.connections.stop)
            self._cleanup = cleanup.pop_all()

    async def stop(self) -> None:
        """Finish what is under way, for at most `close_timeout_s`, and close."""
        await self._cleanup.aclose()

    def _runner(self) -> web.AppRunner:
        limits = self.limits
        app = web.Application(middlewares=[self._serve], client_max_size=limits.max_body_bytes)
        app.add_routes(self._routes)
        # A handler ends when its caller has left.
        return web.AppRunner(app, handler_cancellation=True, shutdown_timeout=limits.close_timeout_s)

    def _protocol(self, server: web.Server) -> HttpProtocol:
        limits = self.limits
        return HttpProtocol(
            server,
            self.connections.left,
            auto_decompress=False,
            keepalive_timeout=limits.idle_timeout_s,
            max_line_size=limits.max_header_bytes,
            max_field_size=limits.max_header_bytes,
            max_headers=limits.max_headers,
            # Of a body that was not wanted nothing is awaited.
            lingering_time=0,
        )

    # One request

    @web.middleware
    async def _serve(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        self.connections.began(request.protocol)
        try:
            return await self._within_time(request, handler)
        finally:
            self.connections.ended(request.protocol)

    async def _within_time(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self.limits.request_timeout_s):
                response = await self._in_share(request, handler)
                response.headers["Server"] = SERVER_NAME
                if self.connections.is_probe(request.protocol):
                    response.force_close()
                response = await _send(request, response)
        except TimeoutError:
            self._count(request, 408)
            if request.transport is not None:
                request.transport.abort()
            # Nobody gets it; raising instead would be logged as an error of ours.
            return error_response(408, "too slow")
        except ConnectionError:
            # Its caller has left. Nobody gets this either, and whoever comes and leaves makes no line in the log.
            self._count(request, CALLER_LEFT)
            return error_response(CALLER_LEFT, "nobody is there any more")
        self._count(request, response.status)
        return response

    async def _in_share(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        """Answer when it is the caller's turn; a health check at once."""
        if self.connections.is_probe(request.protocol) or (not self._over_network and request.path in HEALTH):
            return await self._answer(request, handler)
        network = network_of(request.remote or "")
        kind = RequestKind.SCRAPE if request.path == SCRAPED else RequestKind.REQUEST
        wait_s = self._shares.begin(network, kind)
        if wait_s:
            await asyncio.sleep(wait_s)
        answer = Timed(self._answer(request, handler))
        try:
            return await answer
        finally:
            self._shares.ended(network, answer.took_s, kind)

    async def _answer(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        try:
            self.access.check(request.path, request.headers, over_network=self._over_network)
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            return error_response(413, self._too_large())
        except web.HTTPException as error:
            response = error_response(error.status, error.reason)
            if allow := error.headers.get("Allow"):
                response.headers["Allow"] = allow
            return response
        except RequestError as error:
            response = error_response(HTTP_STATUS[error.status], str(error))
            if response.status == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
            return response
        except (TimeoutError, ConnectionError):
            raise
        except Exception as error:
            request_id = request.headers.get("X-Request-Id", "")[:MAX_REQUEST_ID_CHARS]
            fields = {"request_id": request_id} if request_id else {}
            self._logger.error("http_request_failed", route=self._route(request), **fields, exc_info=error)
            return error_response(500, status_of(error)[1])

    def _count(self, request: web.Request, status: int) -> None:
        self.requests[self._route(request), status] += 1

    def _route(self, request: web.Request) -> str:
        return request.path if request.path in self._paths else "other"

    def _too_large(self) -> str:
        return f"the body may have {self.limits.max_body_bytes} bytes"

    async def read_body(self, request: web.Request) -> bytes:
        """The whole body of a request, which must be JSON. Raises TooLarge, HTTPUnsupportedMediaType.

        A page of another site can send anything else without asking first.
        """
        if request.content_type != JSON:
            raise web.HTTPUnsupportedMediaType(reason=f"the body must be JSON, and say so: Content-Type: {JSON}")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise web.HTTPUnsupportedMediaType(reason="the body must not be compressed")
        if (request.content_length or 0) > self.limits.max_body_bytes:
            raise TooLarge(self._too_large())
        return await request.read()


def addresses_of(listeners: Iterable[HttpListener]) -> dict[str, str]:
    """Addresses by the setting that gave them."""
    return {listener.name: listener.address for listener in listeners}


def total_requests(listeners: Iterable[HttpListener]) -> Counter[tuple[str, int]]:
    """Count the requests of several listeners together, by route and status."""
    return sum((listener.requests for listener in listeners), Counter[tuple[str, int]]())


def total_cut(listeners: Iterable[HttpListener]) -> Counter[str]:
    """Connections that made room for others, of several listeners together, by what was short."""
    return sum((listener.connections.cut for listener in listeners), Counter[str]())


async def healthz(_: web.Request) -> web.Response:
    """`GET /healthz`: whoever answers is alive."""
    return web.json_response({"status": "ok"})


def healthcheck(ready: bool) -> web.Response:
    """`GET /healthcheck`, for probes that were written for envoyproxy/ratelimit: 200 while ready, else 500."""
    return web.Response(text="OK") if ready else web.Response(status=500, text="not ready")


def pretty(value: Any) -> str:
    """JSON for people."""
    return json.dumps(value, indent=2, default=str)


async def _send(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Write a response; a large body piece by piece, each when the one before has been taken."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PIECE_BYTES or request.method == "HEAD":
        await response.prepare(request)
        await response.write_eof()
        return response
    pieces = web.StreamResponse(status=response.status, headers=response.headers)
    pieces.content_length = len(body)
    await pieces.prepare(request)
    for begin in range(0, len(body), PIECE_BYTES):
        await pieces.write(body[begin : begin + PIECE_BYTES])
    await pieces.write_eof()
    return pieces
