"""Listening for HTTP, whatever is served: bounds, errors, counting.

Clients can't hold anything for long: the body, the headers, the time for a request and
the time between requests are bounded. All errors are JSON.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from headgate.address import parse_address
from headgate.endpoint.listening import listen
from headgate.endpoint.socketfile import OWNER_ONLY, binding_at
from headgate.errors import RequestError, Status, TooLarge, status_of
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.http_access import OPEN, HttpAccess
from headgate.transport.http_connections import HttpConnections

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers one request."""

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


MAX_REQUEST_ID_CHARS = 64
"""Longest name that a caller gives its request, in the log."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on what a client can make us hold, and for how long."""

    max_body_bytes: int = 64 * 1024
    max_header_bytes: int = 8 * 1024
    max_headers: int = 64
    request_timeout_s: float = 10.0
    """Time from the last header to the last byte of the answer: slow senders and slow readers alike."""
    idle_timeout_s: float = 30.0
    """Time from the connection, or the last answer, to the last header of the next request."""
    close_timeout_s: float = 2.0
    max_connections: int = 128
    """Connections of one listener. Probes, scrapers and callers of /json are few; for volume there is gRPC."""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """The task of an HTTP server: where it listens, to whom, and within which bounds."""

    address: str
    logger: BoundedLogger
    limits: HttpLimits = HttpLimits()
    access: HttpAccess = OPEN
    socket_mode: int = OWNER_ONLY


class HttpListener:
    """An HTTP server without routes of its own: subclasses bring them, it binds, bounds, counts and reports errors."""

    def __init__(self, endpoint: HttpEndpoint, routes: Iterable[web.RouteDef]) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """Requests by route (never by raw path) and status."""
        self.limits = endpoint.limits
        self.access = endpoint.access
        self.connections = HttpConnections(self.limits.max_connections)
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
            self.connections.start(listeners, runner.server)
            cleanup.push_async_callback(self.connections.stop)
            self._cleanup = cleanup.pop_all()

    async def stop(self) -> None:
        """Finish what is under way, for at most `close_timeout_s`, and close."""
        await self._cleanup.aclose()

    def _runner(self) -> web.AppRunner:
        limits = self.limits
        app = web.Application(middlewares=[self._serve], client_max_size=limits.max_body_bytes)
        app.add_routes(self._routes)
        return web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=limits.idle_timeout_s,
            max_line_size=limits.max_header_bytes,
            max_field_size=limits.max_header_bytes,
            max_headers=limits.max_headers,
            shutdown_timeout=limits.close_timeout_s,
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
                response = await self._answer(request, handler)
                response.headers["Server"] = "headgate"
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            self._count(request, 408)
            if request.transport is not None:
                request.transport.abort()
            # Nobody gets it; raising instead would be logged as an error of ours.
            return error_response(408, "too slow")
        self._count(request, response.status)
        return response

    async def _answer(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        try:
            self.access.check(request.path, request.headers)
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
        """The whole body of a request. Raises TooLarge."""
        if (request.content_length or 0) > self.limits.max_body_bytes:
            raise TooLarge(self._too_large())
        return await request.read()


def addresses_of(listeners: Iterable[HttpListener]) -> dict[str, str]:
    """Addresses by the setting that gave them: the one for all or for callers, and then the one for operators."""
    return {name: listener.address for name, listener in zip(("http", "admin"), listeners, strict=False)}


def total_requests(listeners: Iterable[HttpListener]) -> Counter[tuple[str, int]]:
    """Count the requests of several listeners together, by route and status."""
    return sum((listener.requests for listener in listeners), Counter[tuple[str, int]]())


def total_cut(listeners: Iterable[HttpListener]) -> Counter[str]:
    """Connections that made room for others, of several listeners together, by what was short."""
    return sum((listener.connections.cut for listener in listeners), Counter[str]())


async def healthz(_: web.Request) -> web.Response:
    """`GET /healthz`: whoever answers is alive."""
    return web.json_response({"status": "ok"})


def pretty(value: Any) -> str:
    """JSON for people."""
    return json.dumps(value, indent=2, default=str)


def error_response(status: int, message: str) -> web.Response:
    """An error as JSON: `{"error": message}`."""
    return web.json_response({"error": message}, status=status)
