"""The life of one process: startup, serving, drain. Read it from top to bottom.

Startup goes in order, and nothing is announced before everything is there: rules,
engine, gRPC, HTTP, then ready. Shutdown is a row of named steps, each bounded in time.
How signals end it is in stopping.py; whichever way it ends, no socket file stays behind.
"""

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from headgate import __version__
from headgate.address import UnixAddress, parse_address
from headgate.build import BUILD
from headgate.clock import Clock
from headgate.config import Settings
from headgate.decision_log.assembly import DecisionLogging
from headgate.decision_log.schema import NodeRun
from headgate.decision_log.service import DecisionsService
from headgate.decision_log.views import DecisionViews
from headgate.endpoint.socketfile import LOCK_SUFFIX
from headgate.endpoint.trust import Trust
from headgate.errors import ConfigError
from headgate.handler import RateLimitHandler, Recorder
from headgate.keys import resetting
from headgate.keys.naming import KeyNames
from headgate.keys.overriding import follow
from headgate.keys.service import KeysService
from headgate.keys.service import Region as KeysRegion
from headgate.limiter.engine import Engine
from headgate.limiter.overrides import Overrides
from headgate.limiter.scopes import LimitsOfRegion
from headgate.origin.interface import Origin
from headgate.region.active import ActiveRegions
from headgate.region.book import BookReplica
from headgate.region.engine import RegionalEngine
from headgate.region.live_nodes import read_live_nodes, write_live_nodes
from headgate.region.node import RegionNode
from headgate.reservations.service import Limits
from headgate.reservations.signing import SigningKey
from headgate.rules.describe import describe_rules
from headgate.rules.store import RuleStore
from headgate.runtime.access import grpc_callers, http_listeners, open_tokens
from headgate.runtime.admin import AdminSide, open_admin_side
from headgate.runtime.from_settings import (
    answer_settings,
    breaker_settings,
    certificate_files,
    tls_files,
    transport_limits,
)
from headgate.runtime.garbage import MemoryKeeper
from headgate.runtime.identity import make_identity
from headgate.runtime.instruments import Parts, register
from headgate.runtime.process import run_process
from headgate.runtime.regions import RegionExchange, number_of_regions, open_regions_origin
from headgate.runtime.stopping import Stopping
from headgate.runtime.tasks import BackgroundTasks
from headgate.runtime.top import Top
from headgate.runtime.tracing import SpanRecorder, open_tracing
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.logs import Logs
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.otlp import MetricsPush, open_push
from headgate.telemetry.process import LoopLag
from headgate.telemetry.traces import Tracing
from headgate.transport.http import HttpLimits, HttpServer, HttpSources
from headgate.transport.http_access import OPEN
from headgate.transport.http_listener import addresses_of
from headgate.transport.interface import Serving, Transport
from headgate.transport.select import choose_transport

HOUSEKEEPING_INTERVAL_S = 0.1
IDLE_INTERVAL_S = 0.5
"""The same while nobody calls: what an idle node costs is waking up, and half a second of first calls is little."""
SWEEP_STEPS = 1_000
"""Cells looked at before the loop gets its turn again: well under a millisecond."""

ORIGIN_LOOK_S = 0.05
"""How often to look, while the origin is waited for, whether it has answered; it is asked every second."""

REASONS_SHOWN = 3
"""Of shards that do not answer. A Cluster has 64, and they say the same."""

STOP_TIMEOUT_S = 5.0
"""For calls still in flight after the drain period; a decision takes microseconds."""

FORCED_EXIT_S = 0.5
"""What a second signal leaves for closing sockets in good order before the process is cut."""


class ServiceState(StrEnum):
    """Where a process is in its life. It only moves down this list."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """What makes a process one of several workers: given to `Service` by the worker's main program."""

    reuse_port: bool
    """Whether all of them listen on the same port."""
    on_state: Callable[[ServiceState], None]
    """Told of every state it enters."""
    index: int = 0
    """Which of them it is."""


def run(settings: Settings) -> int:
    """Serve until told to stop; the exit status. Raises ConfigError when it can't start."""
    return run_process(settings, Service)


class Service:
    """One serving process, from its settings to its exit status. `run` is its whole life."""

    def __init__(
        self, settings: Settings, logs: Logs, clock: Clock, rng: random.Random, worker: WorkerRole | None = None
    ) -> None:
        self.settings = settings
        self.state = ServiceState.STARTING
        self._worker = worker
        self.identity = make_identity(settings.region, settings.node_id, clock, rng)
        self.logger = logs.logger
        self._logs = logs
        self._bounded = BoundedLogger(logs.logger, clock)
        self._clock = clock
        self._random = rng
        self._metrics = Metrics(node=self.identity.node, region=settings.region)
        self._tracing: Tracing | None = None
        self._push: MetricsPush | None = None
        """None where there is no collector."""
        self._decisions = DecisionLogging(
            settings,
            NodeRun(self.identity.region, self.identity.node, self.identity.run),
            clock=clock,
            random=rng,
            logger=logs.logger,
            resource=self._metrics.resource,
        )
        self._noted = self._decisions.noted(logs.logger)
        """The logger for what is history: rules, shards, other regions."""
        self._memory = MemoryKeeper()
        self._lag = LoopLag()
        self._tasks = BackgroundTasks(self._bounded)
        self._engine: Engine | RegionalEngine
        self._decider: Engine | RegionNode
        self._node: RegionNode | None = None
        """None for a node on its own, and until it has joined its region."""
        self._exchange: RegionExchange | None = None
        """None where there are no other regions, or another process speaks to them."""
        self._stop_reservations: Callable[[], Awaitable[None]] | None = None
        """None until there is a handler to reserve with."""
        self._admin: AdminSide | None = None
        """None where nobody may change keys."""
        self._overrides = Overrides()
        self._limits = LimitsOfRegion(number_of_regions(settings), overdraft=settings.overdraft, refund=settings.refund)
        self._active = ActiveRegions(self._limits, number_of_regions(settings), clock, self._regions_changed)
        self.stopping = Stopping(
            logs.logger, state=lambda: self.state.value, cut_after_s=FORCED_EXIT_S, before_cut=self._remove_sockets
        )
        self._listening: dict[str, Callable[[], Awaitable[None]]] = {}
        """How to close what listens, by address, in the order in which it was opened."""

    async def run(self) -> int:
        """Serve until `stopping` says otherwise; the exit status."""
        with self.stopping:
            try:
                await self._startup()
                await self.stopping.wait()
                await self._drain()
            finally:
                await self._shutdown()
        return self.stopping.exit_status

    # Startup: in this order; whatever fails raises ConfigError, and what was begun is undone.

    async def _startup(self) -> None:
        self.logger.debug("starting", version=__version__, pid=os.getpid())
        self._prepare_data_dir()
        self._decisions.start()
        self._load_rules()
        self._load_callers()
        await self._join_region()
        self._make_handler()
        await self._bind_grpc()
        await self._bind_http()
        await self._bind_admin()
        self._start_tasks()
        self._settle_memory()
        await self._wait_for_origin()
        self._become_ready()

    def _prepare_data_dir(self) -> None:
        path = self.settings.data_dir
        if path is None:
            return
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"data_dir {path}: can't be created: {error.strerror}") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise ConfigError(f"data_dir {path}: can't be written to")

    def _load_rules(self) -> None:
        self._store = RuleStore(
            self.settings.rules,
            clock=self._clock,
            data_dir=self.settings.data_dir,
            merge_domains=self.settings.merge_domains,
            logger=self._noted,
            on_source=self._decisions.keep_rules,
        )
        self._store.load_initial()

    def _load_callers(self) -> None:
        self._tokens = open_tokens(self.settings, self.logger)
        self._callers = grpc_callers(self.settings, self._tokens)

    async def _join_region(self) -> None:
        """A node on its own counts by itself; any other one meets the rest of its region at the origin."""
        settings = self.settings
        origin = self._origin = open_regions_origin(settings, self._clock, self.logger)
        if origin.exclusive:
            self._decider = self._engine = Engine(self._clock, max_cells=settings.max_cells)
            self._book = BookReplica(
                origin,
                now_ms=self._clock.now_ms,
                random=self._random,
                logger=self.logger,
                data_dir=settings.data_dir,
            )
            await self._book.refresh()
            return
        self._node = RegionNode(
            origin,
            run=f"{self.identity.node}/{self.identity.run}".encode(),
            clock=self._clock,
            random=self._random,
            logger=self._noted,
            max_cells=settings.max_cells,
            deadline_s=settings.origin_deadline_ms / 1000,
            breaker=breaker_settings(settings),
            live_nodes=read_live_nodes(settings.data_dir),
            on_live_nodes=self._live_nodes_changed,
            on_regions_heard=self._active.heard,
            data_dir=settings.data_dir,
        )
        self._decider, self._engine, self._book = self._node, self._node.engine, self._node.book
        await self._node.start()
        await self._join_others(origin)

    async def _join_others(self, origin: Origin) -> None:
        """One exchanger per machine is enough: of several workers it is the first one's."""
        first = self._worker is None or self._worker.index == 0
        if not self.settings.peer or not self.settings.exchange_inside or not first:
            return
        self._exchange = RegionExchange(
            self.settings,
            self.identity,
            nodes_origin=origin,
            clock=self._clock,
            random=self._random,
            logger=self._noted,
        )
        await self._exchange.start()

    def _live_nodes_changed(self, live_nodes: int) -> None:
        write_live_nodes(self.settings.data_dir, live_nodes)
        self._decisions.live_nodes_changed(live_nodes)

    def _regions_changed(self, active: int) -> None:
        log = self._noted.info if active == number_of_regions(self.settings) else self._noted.warning
        log("active_regions_changed", active=active, of=number_of_regions(self.settings))

    def _make_handler(self) -> None:
        self._decisions.attach(self._engine, self._node)
        self._handler = RateLimitHandler(
            rules=partial(getattr, self._store, "current"),  # asked at every request: no frame of Python's
            engine=self._decider,
            random=self._random,
            settings=answer_settings(self.settings),
            limits=self._limits,
            overrides=self._overrides,
            record=self._recorder(),
            on_unknown_domain=lambda domain: self.logger.warning("unknown_domain", domain=domain),
        )
        follow(self._book, self._overrides)
        self._reservations = self._make_reservations()
        self._stop_reservations = self._reservations.stop
        self._top = Top(self._handler.take_over_limit, self._engine.counters, self._clock)

    def _recorder(self) -> Recorder | None:
        self._tracing = open_tracing(self.settings, self._metrics, self._random)
        own = self._decisions.recorder
        return own if self._tracing is None else SpanRecorder(own)

    def _make_reservations(self) -> Limits:
        node = self._node
        return Limits(
            self._handler,
            self._origin,
            key=SigningKey(self._book, self._random, self._clock.monotonic),
            run=f"{self.identity.node}/{self.identity.run}".encode(),
            now_ms=lambda shard: self._clock.now_ms() if node is None else node.links[shard].now_ms(),
            random_bytes=self._random.randbytes,
        )

    async def _bind_grpc(self) -> None:
        settings = self.settings
        trust = Trust(settings.trusted_network)
        make_transport = choose_transport(settings.transport, settings.grpc, tls_files(settings), trust)
        endpoint = Serving(
            settings.grpc,
            self._handler,
            transport_limits(settings),
            self.logger,
            self._callers,
            reuse_port=self._worker is not None and self._worker.reuse_port,
            socket_mode=int(settings.socket_mode, 8),
            services=self._reservations.methods(),
            staged=self._handler,
            tracing=self._tracing,
        )
        self._transport: Transport = make_transport(endpoint)
        await self._transport.start()
        self._listening[self._transport.address] = self._close_grpc

    async def _bind_http(self) -> None:
        views = DecisionViews(self._decisions.directory, self._clock)
        sources = HttpSources(
            handler=self._handler,
            accepts=lambda: self.state in (ServiceState.SERVING, ServiceState.DRAINING),
            readiness=self._readiness,
            rules=self._describe_rules,
            metrics=self._metrics.scrape,
            version=self._version(),
            regions=self._describe_regions,
            recent=views.recent,
            explain=views.explain,
            top=self._top.describe,
        )
        limits = HttpLimits(max_body_bytes=self.settings.max_message_bytes)
        # A worker's is reached by its supervisor alone, which asks on behalf of everybody.
        listeners = (
            http_listeners(self.settings, self._tokens) if self._worker is None else [(self.settings.http, OPEN)]
        )
        self._https = [
            HttpServer(
                address,
                sources,
                limits=limits,
                logger=self._bounded,
                socket_mode=int(self.settings.socket_mode, 8),
                access=access,
            )
            for address, access in listeners
        ]
        for listener in self._https:
            await listener.start()
            self._listening[listener.address] = listener.stop

    async def _bind_admin(self) -> None:
        """Of several workers the first one's is enough: what it does is done at the origin."""
        self._keys = self._make_keys()
        decisions = DecisionsService(self._decisions.directory)
        methods = {**self._keys.methods(), **decisions.methods()}
        self._admin = open_admin_side(self.settings, methods, self.logger)
        if self._admin is None:
            return
        server, tokens = self._admin.server, self._admin.tokens
        await server.start()
        self._listening[server.address] = server.stop
        if tokens is not None:
            self._tasks.start("admin_tokens", tokens.watch)

    def _make_keys(self) -> KeysService:
        names = KeyNames(lambda: self._store.current, self._limits, self._overrides)
        if self._node is not None:
            resetting.follow(self._book, names, self._node)
        return KeysService(
            names,
            self._overrides,
            KeysRegion(self.identity.node, self._origin, self._book, self._engine, self._node),
            self._clock,
            self._noted,
        )

    def _start_tasks(self) -> None:
        self._push = open_push(self.settings.otlp_endpoint, self.settings.otlp_interval_s, self._metrics)
        if self._push is not None:
            self._tasks.start("otlp", self._push.run)
        register(self._metrics, self._parts())
        self._tasks.start("housekeeping", self._housekeeping)
        self._tasks.start("rules", self._store.watch)
        if self._tokens is not None:
            self._tasks.start("tokens", self._tokens.watch)

    def _settle_memory(self) -> None:
        """Set what exists now aside from the garbage collector. Called last, when all that lives for long is there."""
        self._memory.start()

    async def _wait_for_origin(self) -> None:
        """Until every shard has answered once, if that is wanted: then a wrong password ends the start.

        Meanwhile health says not serving, /readyz says why, and calls that come anyway are decided
        by their rules' failure policies.
        """
        patience_s = self.settings.wait_for_origin
        if self._node is None or not patience_s:
            return
        deadline_s = self._clock.monotonic() + patience_s
        while (reasons := self._node.unanswered()) and not self.stopping.asked:
            if self._clock.monotonic() >= deadline_s:
                shown = "; ".join(reasons[:REASONS_SHOWN])
                more = f"; and {len(reasons) - REASONS_SHOWN} more" if len(reasons) > REASONS_SHOWN else ""
                raise ConfigError(f"origin: no answer within {patience_s:g} s (--wait-for-origin): {shown}{more}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), ORIGIN_LOOK_S)

    def _become_ready(self) -> None:
        if self.stopping.asked:
            return
        self._transport.set_serving(True)
        self.logger.info(
            # Of several workers, the supervisor says when all of them serve.
            "serving" if self._worker is None else "worker_serving",
            grpc=self._transport.address,
            **addresses_of(self._https),
            **({} if self._admin is None else {"admin_grpc": self._admin.server.address}),
            transport=self._transport.name,
            rules=str(self._store.current.version),
            region=self.identity.region,
            node=self.identity.node,
            run=self.identity.run,
            version=__version__,
            pid=os.getpid(),
        )
        self._enter(ServiceState.SERVING)

    def _enter(self, state: ServiceState) -> None:
        self.state = state
        if self._worker is not None:
            self._worker.on_state(state)

    # Serving

    async def _housekeeping(self) -> None:
        """One timer for all that is looked after regularly, and for the loop's lag: an idle node costs its wake-ups."""
        calls, monotonic = 0, self._clock.monotonic
        while True:
            await self._sweep()
            began_s = monotonic()
            self._tidy()
            idle, calls = calls == self._transport.stats.calls, self._transport.stats.calls
            quiet = idle and not self._decisions.waiting
            await self._lag.sleep(IDLE_INTERVAL_S if quiet else HOUSEKEEPING_INTERVAL_S, monotonic() - began_s)

    def _tidy(self) -> None:
        self._book.expire()
        self._memory.tick()
        self._top.take_denied()
        self._decisions.flush()

    async def _sweep(self) -> None:
        # One slice per turn of the loop: requests go in between.
        more = self._engine.sweep(SWEEP_STEPS)
        while more:
            await asyncio.sleep(0)
            more = self._engine.sweep(SWEEP_STEPS)

    def _readiness(self) -> tuple[bool, Mapping[str, Any]]:
        serving = self.state is ServiceState.SERVING
        rules = self._store.status
        return serving, {
            "state": self.state.value,
            "rules": {"version": str(rules.version), "source": rules.source, "in_sync": rules.in_sync},
            "grpc": {"address": self._transport.address, "serving": serving},
            **{name: {"address": address, "serving": True} for name, address in addresses_of(self._https).items()},
            "origin": {"url": "memory://"} if self._node is None else self._node.describe(),
        }

    def _describe_rules(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        return describe_rules(self._store, self._limits, query)

    def _describe_regions(self) -> Mapping[str, Any]:
        peers = [{"region": peer.region, "address": peer.address} for peer in self.settings.peer]
        known = {"region": self.settings.region, "peers": peers}
        exchange = known if self._exchange is None else self._exchange.describe()
        return {**exchange, "active": self._limits.active, "exchanging": self._exchange is not None}

    def _version(self) -> Mapping[str, str]:
        return {
            "name": "headgate",
            "version": __version__,
            "build": BUILD,
            "python": ".".join(map(str, sys.version_info[:3])),
            "transport": self._transport.name,
            "region": self.identity.region,
            "node": self.identity.node,
            "run": str(self.identity.run),
        }

    def _parts(self) -> Parts:
        return Parts(
            version=__version__,
            is_ready=lambda: self.state is ServiceState.SERVING,
            handler=self._handler,
            engine=self._engine,
            node=self._node,
            exchange=self._exchange,
            regions=self._active if self.settings.peer else None,
            ratelimit_metrics=self.settings.ratelimit_metrics,
            clock=self._clock,
            transport=self._transport,
            http=self._https,
            tokens=self._tokens,
            tracing=self._tracing,
            certificates=certificate_files(self.settings),
            rules=self._store,
            lag=self._lag,
            memory=self._memory,
            logs=self._logs.sink,
            tasks=self._tasks,
            keys=self._keys,
            reservations=self._reservations,
            decisions=self._decisions,
        )

    # Stopping: each step is bounded, and a second signal cuts the waiting short.

    def _remove_sockets(self) -> None:
        for path in self._socket_paths():
            with contextlib.suppress(OSError):
                path.unlink()

    def _socket_paths(self) -> list[Path]:
        """Of what listens now: those are ours, we hold the locks beside them."""
        addresses = [parse_address(address) for address in self._listening]
        paths = [address.path for address in addresses if isinstance(address, UnixAddress)]
        return [Path(path + suffix) for path in paths for suffix in ("", LOCK_SUFFIX)]

    async def _drain(self) -> None:
        if self.state is not ServiceState.SERVING:
            return
        self._enter(ServiceState.DRAINING)
        self._transport.set_serving(False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_s):
                await self.stopping.hurried.wait()

    async def _close_grpc(self) -> None:
        await self._transport.stop(0 if self.stopping.forced else STOP_TIMEOUT_S)

    async def _shutdown(self) -> None:
        """Listeners in the order in which they were opened, so HTTP tells of gRPC's end; then the rest."""
        for address, close in list(self._listening.items()):
            try:
                await close()
            except Exception as error:
                self.logger.error("close_failed", address=address, exc_info=error)
            del self._listening[address]
        if self._exchange is not None:
            await self._exchange.stop()
        if self._stop_reservations is not None:
            await self._stop_reservations()
        if self._node is not None:
            # After the last answer, so that it is reported too.
            await self._node.stop(0 if self.stopping.forced else STOP_TIMEOUT_S)
        await self._tasks.stop()
        self._memory.stop()
        if self._push is not None and not self.stopping.forced:
            self._push.close()
        if self._tracing is not None and not self.stopping.forced:
            self._tracing.close()
        self._decisions.close()
        if self.state is not ServiceState.STARTING:
            self.logger.info("stopped")
        self._enter(ServiceState.STOPPED)
