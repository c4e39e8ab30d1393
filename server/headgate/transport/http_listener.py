"""Listening for HTTP, whatever is served: bounds, errors, counting.

Clients can't hold anything for long: the body, the headers, the time for a request and
the time between requests are bounded. All errors are JSON.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from headgate.address import TcpAddress, UnixAddress, parse_address
from headgate.endpoint.socketfile import OWNER_ONLY, binding_at
from headgate.errors import ConfigError, RequestError, Status, TooLarge, status_of
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.http_access import OPEN, HttpAccess

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
"""What the gRPC status of an error is over HTTP."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on what a client can make us hold, and for how long."""

    max_body_bytes: int = 64 * 1024
    max_header_bytes: int = 8 * 1024
    max_headers: int = 64
    request_timeout_s: float = 10.0
    """From the last header to the last byte of the answer: slow senders and slow readers alike."""
    idle_timeout_s: float = 30.0
    """From the connection, or the last answer, to the last header of the next request."""
    close_timeout_s: float = 2.0


class HttpListener:
    """An HTTP server without routes of its own: subclasses bring them, it binds, bounds, counts and reports errors."""

    def __init__(
        self,
        address: str,
        routes: Iterable[web.RouteDef],
        *,
        limits: HttpLimits,
        logger: BoundedLogger,
        socket_mode: int = OWNER_ONLY,
        access: HttpAccess = OPEN,
    ) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By route (never by raw path) and status."""
        self.limits = limits
        self._address = parse_address(address)
        self.access = access
        self._routes = tuple(access.routes(routes))
        self._paths = frozenset(route.path for route in self._routes)
        self._logger = logger
        self._socket_mode = socket_mode
        self._cleanup = contextlib.AsyncExitStack()

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        return str(self._address)

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address can't be had."""
        async with contextlib.AsyncExitStack() as cleanup:
            bound = self._bind_unix(cleanup)
            runner = self._runner()
            await runner.setup()
            cleanup.push_async_callback(runner.cleanup)
            await self._listen(runner, bound)
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

    def _bind_unix(self, cleanup: contextlib.AsyncExitStack) -> socket.socket | None:
        """By ourselves: a server binds at a moment of its own, and the mode is the umask's."""
        if not isinstance(self._address, UnixAddress):
            return None
        with binding_at(self._address, self._socket_mode, cleanup):
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            cleanup.callback(bound.close)
            try:
                bound.bind(self._address.path)
            except OSError as error:
                raise self._refusal(error) from error
        return bound

    async def _listen(self, runner: web.AppRunner, bound: socket.socket | None) -> None:
        try:
            if bound is not None:
                await web.SockSite(runner, bound).start()
            elif isinstance(self._address, TcpAddress):
                await _tcp_site(runner, self._address).start()
                self._address = TcpAddress(self._address.host, runner.addresses[0][1])
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> ConfigError:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        return ConfigError(f"can't listen on {self._address}: {reason.lower()}")

    # One request

    @web.middleware
    async def _serve(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
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

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
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
            self._logger.error("http_request_failed", route=self._route(request), exc_info=error)
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
    """By the setting that gave them: the one for all or for callers, and then the one for operators."""
    return {name: listener.address for name, listener in zip(("http", "admin"), listeners, strict=False)}


def total_requests(listeners: Iterable[HttpListener]) -> Counter[tuple[str, int]]:
    """Of several listeners together, by route and status."""
    return sum((listener.requests for listener in listeners), Counter[tuple[str, int]]())


def _tcp_site(runner: web.AppRunner, address: TcpAddress) -> web.BaseSite:
    if address.host != "::" or not socket.has_dualstack_ipv6():
        return web.TCPSite(runner, address.host, address.port)
    # asyncio's own would take IPv6 alone; `[::]` is every address, as it is for gRPC.
    listening = socket.create_server((address.host, address.port), family=socket.AF_INET6, dualstack_ipv6=True)
    return web.SockSite(runner, listening)


def pretty(value: Any) -> str:
    """JSON for people."""
    return json.dumps(value, indent=2, default=str)


def error_response(status: int, message: str) -> web.Response:
    """An error as JSON: `{"error": message}`."""
    return web.json_response({"error": message}, status=status)
