"""Listeners: gRPC for callers, HTTP, and gRPC for operators. The last room to open, the first to close."""

import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate import __version__
from headgate.address import UnixAddress, parse_address
from headgate.build import BUILD
from headgate.endpoint.admins import AdminTokens
from headgate.endpoint.instruments import register_certificates, register_tokens
from headgate.endpoint.socketfile import LOCK_SUFFIX
from headgate.endpoint.tokens import TokenFile
from headgate.endpoint.trust import Trust
from headgate.errors import NotReady
from headgate.pending import CallerMethod
from headgate.rules.describe import describe_rules
from headgate.rules.ratelimit_text import ratelimit_text
from headgate.runtime import tracing
from headgate.runtime.access import admin_tls, grpc_callers, http_endpoints, open_admins, open_tokens
from headgate.runtime.context import ProcessContext, ServiceState
from headgate.runtime.from_settings import certificate_files, tls_files, transport_limits
from headgate.runtime.room import Room, Rooms, Task
from headgate.runtime.rooms.blocks import BlocksRoom
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.exchange import ExchangeRoom
from headgate.runtime.rooms.handler import HandlerRoom
from headgate.runtime.rooms.nodes import NodesRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.runtime.rooms.rules import RulesRoom
from headgate.runtime.rooms.telemetry import TelemetryRoom
from headgate.telemetry.metrics import Metrics
from headgate.transport.admin import AdminServer, Method
from headgate.transport.http import HttpServer, HttpSources
from headgate.transport.http_access import OF_WORKER
from headgate.transport.http_listener import addresses_of
from headgate.transport.http_operators import HttpOperators
from headgate.transport.instruments import register_grpc, register_http, register_ratelimit_calls
from headgate.transport.interface import Serving, Transport
from headgate.transport.select import choose_transport

Close = Callable[[float], Awaitable[None]]
"""Closes a listener; takes the seconds that calls in flight may still take."""


class ListenersRoom(Room):
    """Opens gRPC, then HTTP, then the operators' side, and closes them in the same order: HTTP tells of gRPC's end."""

    transport: Transport

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._rooms = rooms
        self._telemetry = rooms.get(TelemetryRoom)
        self._log = rooms.get(DecisionLogRoom)
        self._rules = rooms.get(RulesRoom)
        self._region = rooms.get(RegionRoom)
        self._exchange = rooms.get(ExchangeRoom)
        self._handler = rooms.get(HandlerRoom)
        self._nodes = rooms.get(NodesRoom)
        self._blocks = rooms.get(BlocksRoom)
        self._tokens: TokenFile | None = None
        """None where callers need none."""
        self._https: list[HttpServer] = []
        """One, or one for callers and one for operators."""
        self._admin: AdminServer | None = None
        """None where nobody may change keys."""
        self._operators: HttpOperators | None = None
        """Operators' side over HTTP; None until it is open."""
        self._admin_tokens: AdminTokens | None = None
        """None where operators need none."""
        self._listening: dict[str, Close] = {}
        """Function that closes each listener, by address, in the order in which they were opened."""

    async def start(self) -> None:
        self._tokens = open_tokens(self.context.settings, self.context.logger)
        await self._bind_grpc()
        await self._bind_http()
        await self._bind_admin()

    async def _bind_grpc(self) -> None:
        context, settings = self.context, self.context.settings
        trust = Trust(settings.trusted_network)
        make_transport = choose_transport(settings.transport, settings.grpc, tls_files(settings), trust)
        handler = self._handler.handler
        services: dict[str, CallerMethod] = {}
        for room in self._rooms:
            services |= room.methods()
        self.transport = make_transport(
            Serving(
                settings.grpc,
                handler,
                transport_limits(settings),
                context.logger,
                grpc_callers(settings, self._tokens),
                reuse_port=context.worker is not None and context.worker.reuse_port,
                socket_mode=context.socket_mode,
                services=services,
                tracing=self._telemetry.tracing,
                tidy=self._handler.tidy,
            )
        )
        await self.transport.start()
        self._listening[self.transport.address] = self.transport.stop

    async def _bind_http(self) -> None:
        context, settings = self.context, self.context.settings
        sources = self._sources()
        endpoints = http_endpoints(settings, self._tokens, context.bounded, settings.max_message_bytes)
        if context.worker is not None:
            limits = replace(endpoints[0].limits, scrape_kept_s=0.0)
            endpoints = [replace(endpoints[0], access=OF_WORKER, limits=limits)]
        self._https = [HttpServer(endpoint, sources) for endpoint in endpoints]
        for listener in self._https:
            await listener.start()
            self._listening[listener.address] = _without_patience(listener.stop)

    def _sources(self) -> HttpSources:
        return HttpSources(
            handler=self._handler.handler,
            accepts=lambda: self.context.state in (ServiceState.SERVING, ServiceState.DRAINING),
            readiness=self._readiness,
            rules=self._describe_rules,
            metrics=self.context.metrics.scrape,
            version=self._version(),
            regions=self._exchange.describe,
            recent=self._log.views.recent,
            explain=self._log.views.explain,
            top=self._handler.top.describe,
            trend=self._handler.trend.describe,
            nodes=self._nodes.describe,
            bulletins=self._nodes.bulletins,
            operate=None if self.context.settings.admin_grpc is None else self._operate,
            rlconfig=lambda: ratelimit_text(self._rules.store.current),
        )

    async def _operate(self, path: str, body: bytes, authorization: str | None, peer: str) -> Mapping[str, Any]:
        if self._operators is None:
            raise NotReady("the operators' side is not open yet")
        return await self._operators.call(path, body, authorization, peer)

    async def _bind_admin(self) -> None:
        """Open the operators' side. Any one worker's is enough: what it does is done at the origin."""
        settings, logger = self.context.settings, self.context.logger
        if settings.admin_grpc is None:
            return
        methods: dict[str, Method] = {}
        for room in self._rooms:
            methods |= room.admin_methods()
        admins, tls = open_admins(settings, logger), admin_tls(settings, logger)
        server = AdminServer(
            settings.admin_grpc, methods, admins, logger, tls=tls, socket_mode=self.context.socket_mode
        )
        self._admin, self._admin_tokens = server, admins.tokens
        self._operators = HttpOperators(methods, admins)
        await server.start()
        self._listening[server.address] = _without_patience(server.stop)

    def tasks(self) -> Mapping[str, Task]:
        tasks: dict[str, Task] = {}
        if self._tokens is not None:
            tasks["tokens"] = self._tokens.watch
        if self._admin_tokens is not None:
            tasks["admin_tokens"] = self._admin_tokens.watch
        return tasks

    def register(self, metrics: Metrics) -> None:
        register_grpc(metrics, self.transport.stats)
        if self.context.settings.ratelimit_metrics:
            register_ratelimit_calls(metrics, self.transport.stats)
        register_http(metrics, self._https)
        if self._tokens is not None:
            register_tokens(metrics, self._tokens)
        register_certificates(metrics, certificate_files(self.context.settings))
        if self._telemetry.tracing is not None:
            # A span begins and ends at a transport.
            tracing.register(metrics, self._telemetry.tracing)

    # What is told of it

    def addresses(self) -> Mapping[str, str]:
        """Return the address of each listener, by what it is for."""
        admin = {} if self._admin is None else {"admin_grpc": self._admin.address}
        return {"grpc": self.transport.address, **addresses_of(self._https), **admin}

    def _readiness(self) -> tuple[bool, Mapping[str, Any]]:
        state = self.context.state
        serving = state is ServiceState.SERVING
        return serving, {
            "state": state.value,
            "rules": self._rules.readiness(),
            "grpc": {"address": self.transport.address, "serving": serving},
            **{name: {"address": address, "serving": True} for name, address in addresses_of(self._https).items()},
            "origin": self._region.readiness(),
        }

    def _describe_rules(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        return describe_rules(self._rules.store, self._region.limits, self._blocks.shadows, query)

    def _version(self) -> Mapping[str, str]:
        identity = self.context.identity
        return {
            "name": "headgate",
            "version": __version__,
            "build": BUILD,
            "python": ".".join(map(str, sys.version_info[:3])),
            "transport": self.transport.name,
            "region": identity.region,
            "node": identity.node,
            "run": str(identity.run),
        }

    # Closing

    async def stop(self, patience_s: float) -> None:
        for address, close in list(self._listening.items()):
            try:
                await close(patience_s)
            except Exception as error:
                self.context.logger.error("close_failed", address=address, exc_info=error)
            del self._listening[address]

    def remove_sockets(self) -> None:
        """Remove the socket files of what listens now: they are ours, we hold the locks beside them."""
        addresses = [parse_address(address) for address in self._listening]
        paths = [address.path for address in addresses if isinstance(address, UnixAddress)]
        for path in [Path(path + suffix) for path in paths for suffix in ("", LOCK_SUFFIX)]:
            with contextlib.suppress(OSError):
                path.unlink()


def _without_patience(stop: Callable[[], Awaitable[None]]) -> Close:
    async def close(_: float) -> None:
        await stop()

    return close
