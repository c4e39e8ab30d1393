"""HTTP beside gRPC: decisions as JSON, health, readiness, metrics, the rules.

It knows nothing of what is behind it: everything it shows is a function in
`HttpSources`. Clients can't hold anything for long: the body, the headers, the time
for a request and the time between requests are bounded. All errors are JSON.
"""

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from headgate.errors import ConfigError, RequestError, Status, TooLarge, status_of
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.address import TcpAddress, UnixAddress, parse_address
from headgate.transport.http_json import (
    OVER_LIMIT,
    parse_response,
    request_from_json,
    response_headers,
    response_to_json,
)
from headgate.transport.interface import Handler
from headgate.transport.socketfile import SocketFile

JSON = "application/json"

HTTP_STATUS: Mapping[Status, int] = {
    Status.INVALID_ARGUMENT: 400,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 413,
    Status.UNIMPLEMENTED: 501,
    Status.INTERNAL: 500,
    Status.UNAVAILABLE: 503,
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


@dataclass(frozen=True, slots=True)
class HttpSources:
    """What there is to show."""

    handler: Handler
    accepts: Callable[[], bool]
    """Whether decisions are made: from ready to the end of draining."""
    readiness: Callable[[], tuple[bool, Mapping[str, Any]]]
    rules: Callable[[Mapping[str, str]], Mapping[str, Any]]
    metrics: Callable[[], tuple[bytes, str]]
    """The text and its content type."""
    version: Mapping[str, str]


class HttpServer:
    def __init__(self, address: str, sources: HttpSources, *, limits: HttpLimits, logger: BoundedLogger) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By route (never by raw path) and status."""
        self._address = parse_address(address)
        self._sources = sources
        self._limits = limits
        self._logger = logger
        self._routes: frozenset[str] = frozenset()
        self._cleanup = contextlib.AsyncExitStack()

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        return str(self._address)

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address can't be had."""
        async with contextlib.AsyncExitStack() as cleanup:
            if isinstance(self._address, UnixAddress):
                cleanup.callback(SocketFile(self._address.path).release)
            runner = self._runner()
            await runner.setup()
            cleanup.push_async_callback(runner.cleanup)
            await self._bind(runner)
            self._cleanup = cleanup.pop_all()

    async def stop(self) -> None:
        """Finish what is under way, for at most `close_timeout_s`, and close."""
        await self._cleanup.aclose()

    def _runner(self) -> web.AppRunner:
        limits = self._limits
        app = web.Application(middlewares=[self._serve], client_max_size=limits.max_body_bytes)
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/rules", self._rules),
                web.get("/metrics", self._metrics),
                web.get("/version", self._version),
                web.post("/json", self._json),
            ]
        )
        self._routes = frozenset(resource.canonical for resource in app.router.resources())
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

    async def _bind(self, runner: web.AppRunner) -> None:
        try:
            if isinstance(self._address, UnixAddress):
                await web.UnixSite(runner, self._address.path).start()
                return
            await web.TCPSite(runner, self._address.host, self._address.port).start()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConfigError(f"can't listen on {self._address}: {reason.lower()}") from error
        self._address = TcpAddress(self._address.host, runner.addresses[0][1])

    # One request

    @web.middleware
    async def _serve(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self._limits.request_timeout_s):
                response = await self._answer(request, handler)
                response.headers["Server"] = "headgate"
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            self._count(request, 408)
            if request.transport is not None:
                request.transport.abort()
            # Nobody gets it; raising instead would be logged as an error of ours.
            return _error(408, "too slow")
        self._count(request, response.status)
        return response

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            return _error(413, self._too_large())
        except web.HTTPException as error:
            response = _error(error.status, error.reason)
            if allow := error.headers.get("Allow"):
                response.headers["Allow"] = allow
            return response
        except RequestError as error:
            return _error(HTTP_STATUS[error.status], str(error))
        except (TimeoutError, ConnectionError):
            raise
        except Exception as error:
            self._logger.error("http_request_failed", route=self._route(request), exc_info=error)
            return _error(500, status_of(error)[1])

    def _count(self, request: web.Request, status: int) -> None:
        self.requests[self._route(request), status] += 1

    def _route(self, request: web.Request) -> str:
        return request.path if request.path in self._routes else "other"

    def _too_large(self) -> str:
        return f"the body may have {self._limits.max_body_bytes} bytes"

    # What there is

    async def _json(self, request: web.Request) -> web.Response:
        if not self._sources.accepts():
            return _error(503, "not ready")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return _error(415, "the body must not be compressed")
        if (request.content_length or 0) > self._limits.max_body_bytes:
            raise TooLarge(self._too_large())
        answer = self._sources.handler(request_from_json(await request.read()))
        # Shielded: a client that leaves must not cancel a decision that others may share.
        response = parse_response(answer if isinstance(answer, bytes) else await asyncio.shield(answer))
        status = 429 if response.overall_code == OVER_LIMIT else 200
        headers = response_headers(response)
        return web.Response(status=status, text=response_to_json(response), content_type=JSON, headers=headers)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        ready, detail = self._sources.readiness()
        return web.json_response({"ready": ready, **detail}, status=200 if ready else 503)

    async def _rules(self, request: web.Request) -> web.Response:
        return web.json_response(self._sources.rules(request.query), dumps=_pretty)

    async def _metrics(self, _: web.Request) -> web.Response:
        body, content_type = self._sources.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response(self._sources.version)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, default=str)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
