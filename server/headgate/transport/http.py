"""HTTP beside gRPC: decisions as JSON, health, readiness, metrics, the rules.

It knows nothing of what is behind it: everything it shows is a function in
`HttpSources`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from headgate.endpoint.tokens import AUTHORIZATION
from headgate.endpoint.trust import network_of
from headgate.errors import NotFound
from headgate.pending import answer_future
from headgate.telemetry.exposition import Format
from headgate.transport import http_json
from headgate.transport.http_access import OPERATIONS, Surface
from headgate.transport.http_listener import JSON, HttpEndpoint, HttpListener, healthcheck, healthz, pretty
from headgate.transport.http_operators import NOT_SERVED
from headgate.transport.http_page import page
from headgate.transport.http_protocol import error_response
from headgate.transport.interface import Handler
from headgate.transport.scrapes import Scrapes

PEER = "X-Forwarded-For"
"""Header in which a supervisor tells a worker who asked."""
MAX_PEER_CHARS = 100


@dataclass(frozen=True, slots=True)
class HttpSources:
    """Sources of the HTTP server's answers, as functions that it calls for each request."""

    handler: Handler
    accepts: Callable[[], bool]
    """Says whether decisions are made: from ready to the end of draining."""
    readiness: Callable[[], tuple[bool, Mapping[str, Any]]]
    rules: Callable[[Mapping[str, str]], Mapping[str, Any]]
    metrics: Callable[[Format], Awaitable[bytes]]
    """Returns the text in a format."""
    version: Mapping[str, str]
    regions: Callable[[], Mapping[str, Any]] = dict
    recent: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    """The last denials; None, and None below: nothing of decisions is shown."""
    explain: Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]] | None = None
    top: Callable[[Mapping[str, str]], Mapping[str, Any]] = dict
    trend: Callable[[Mapping[str, str]], Mapping[str, Any]] = dict
    """Returns decisions over time."""
    nodes: Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]] | None = None
    """Describes the region's nodes, and all together."""
    bulletins: Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]] | None = None
    """Returns what each node says of itself."""
    operate: Callable[[str, bytes, str | None, str], Awaitable[Mapping[str, Any]]] | None = None
    """Carries out an operator's method, by path, body, authorization and peer; None: there are none."""
    rlconfig: Callable[[], str] = str
    """Returns the rules in the words of envoyproxy/ratelimit."""


class HttpServer(HttpListener):
    """The HTTP side of one serving process."""

    def __init__(self, endpoint: HttpEndpoint, sources: HttpSources) -> None:
        routes = [
            web.get("/", page),
            web.get("/healthz", healthz),
            web.get("/readyz", self._readyz),
            web.get("/healthcheck", self._healthcheck),
            web.get("/rules", self._rules),
            web.get("/rlconfig", self._rlconfig),
            web.get("/metrics", Scrapes(sources.metrics, endpoint.limits.scrape_kept_s).serve),
            web.get("/version", self._version),
            web.get("/regions", self._regions),
            web.get("/decisions", self._decisions),
            web.get("/explain", self._explain),
            web.get("/top", self._top),
            web.get("/trend", self._trend),
            web.get("/nodes", self._nodes),
            web.get("/bulletins", self._bulletins),
            web.post("/json", self._json),
            *(web.post(path, self._operate) for path in OPERATIONS),
        ]
        super().__init__(endpoint, routes)
        self._sources = sources

    async def _json(self, request: web.Request) -> web.Response:
        body = await self.read_body(request)  # first: whoever is still writing it would not read why it was refused
        if not self._sources.accepts():
            return error_response(503, "not ready")
        answer = self._sources.handler.answer(http_json.request_from_json(body), network_of(request.remote or ""))
        response = http_json.parse_response(await answer_future(answer))
        status = 429 if response.overall_code == http_json.OVER_LIMIT else 200
        headers, text = http_json.response_headers(response), http_json.response_to_json(response)
        return web.Response(status=status, text=text, content_type=JSON, headers=headers)

    async def _operate(self, request: web.Request) -> web.Response:
        body = await self.read_body(request)
        if self._sources.operate is None:
            raise NotFound(NOT_SERVED)
        # On a Unix socket it may be the supervisor that asks, for somebody whose address it knows.
        peer = request.remote or request.headers.get(PEER, "")
        header, shown = request.headers.get(AUTHORIZATION), f"http:{peer}"[:MAX_PEER_CHARS]
        return web.json_response(await self._sources.operate(request.path, body, header, shown))

    async def _readyz(self, _: web.Request) -> web.Response:
        ready, detail = self._sources.readiness()
        if self.access.surface is Surface.CALLERS:
            # Addresses, the origin and the rules are for the admin listener.
            detail = {"state": detail["state"]}
        return web.json_response({"ready": ready, **detail}, status=200 if ready else 503)

    async def _healthcheck(self, _: web.Request) -> web.Response:
        return healthcheck(self._sources.readiness()[0])

    async def _rules(self, request: web.Request) -> web.Response:
        return web.json_response(self._sources.rules(request.query), dumps=pretty)

    async def _rlconfig(self, _: web.Request) -> web.Response:
        return web.Response(text=self._sources.rlconfig())

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response(self._sources.version)

    async def _regions(self, _: web.Request) -> web.Response:
        return web.json_response(self._sources.regions())

    async def _decisions(self, _: web.Request) -> web.Response:
        if self._sources.recent is None:
            return error_response(404, "decisions are not shown here")
        return web.json_response(await self._sources.recent())

    async def _explain(self, request: web.Request) -> web.Response:
        if self._sources.explain is None:
            return error_response(404, "decisions are not shown here")
        return web.json_response(await self._sources.explain(request.query), dumps=pretty)

    async def _top(self, request: web.Request) -> web.Response:
        return web.json_response(self._sources.top(request.query), dumps=pretty)

    async def _trend(self, request: web.Request) -> web.Response:
        return web.json_response(self._sources.trend(request.query))

    async def _nodes(self, request: web.Request) -> web.Response:
        return await _told(self._sources.nodes, request)

    async def _bulletins(self, request: web.Request) -> web.Response:
        return await _told(self._sources.bulletins, request)


async def _told(
    source: Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]] | None, request: web.Request
) -> web.Response:
    if source is None:
        return error_response(404, "nodes are not shown here")
    return web.json_response(await source(request.query))
