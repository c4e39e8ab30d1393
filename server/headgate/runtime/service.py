"""The life of one process: startup, serving, drain. Read it from top to bottom.

Startup goes in order, and nothing is announced before everything is there: rules,
engine, gRPC, HTTP, then ready. Shutdown is a row of named steps, each bounded in time.
A first SIGTERM or SIGINT drains and ends with status 0; a second one ends at once,
with 128 plus the signal's number, and still leaves no socket file behind.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from headgate import __version__
from headgate.address import UnixAddress, parse_address
from headgate.clock import Clock, SystemClock
from headgate.config import Settings, refuse_unavailable
from headgate.errors import ConfigError
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.origin.select import open_origin
from headgate.region.breaker import BreakerSettings
from headgate.region.engine import RegionalEngine
from headgate.region.live_nodes import read_live_nodes, write_live_nodes
from headgate.region.node import RegionNode
from headgate.rules.describe import describe_rules
from headgate.rules.store import RuleStore
from headgate.runtime.garbage import MemoryKeeper
from headgate.runtime.identity import make_identity
from headgate.runtime.instruments import Parts, register
from headgate.runtime.signals import StopSignals
from headgate.runtime.tasks import BackgroundTasks
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.logs import Logs, open_logs
from headgate.telemetry.metrics import CONTENT_TYPE, Metrics
from headgate.telemetry.otlp import MetricsPush
from headgate.telemetry.process import LoopLag
from headgate.transport.http import HttpLimits, HttpServer, HttpSources
from headgate.transport.interface import GuardLimits, Transport, TransportLimits
from headgate.transport.select import choose_transport
from headgate.transport.socketfile import LOCK_SUFFIX
from headgate.transport.tls import TlsFiles
from headgate.transport.trust import Trust

EXIT_OK = 0
EXIT_SIGNAL_BASE = 128
"""A second signal's exit status is this plus its number, as shells report it: 143 or 130."""

HOUSEKEEPING_INTERVAL_S = 0.1
SWEEP_STEPS = 1_000
"""Cells looked at before the loop gets its turn again: well under a millisecond."""

STOP_TIMEOUT_S = 5.0
"""For calls still in flight after the drain period; a decision takes microseconds."""

BREAKER_COOLDOWN_GROWTH = 4
"""A breaker's cooldown doubles, on failed probes, up to this many times its first."""

FORCED_EXIT_S = 0.5
"""What a second signal leaves for closing sockets in good order before the process is cut."""


class ServiceState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """What is different for one of several processes with a supervisor above them."""

    reuse_port: bool
    """Whether all of them listen on the same port."""
    on_state: Callable[[ServiceState], None]
    """Told of every state it enters."""


def run(settings: Settings) -> int:
    """Serve until told to stop; the exit status. Raises ConfigError when it can't start."""
    refuse_unavailable(settings)
    logs = open_logs(settings.log_level, settings.log_format)
    try:
        return asyncio.run(Service(settings, logs, SystemClock(), random.SystemRandom()).run())
    finally:
        logs.close()


class Service:
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
        self._push: MetricsPush | None = None
        """None where there is no collector."""
        self._memory = MemoryKeeper()
        self._lag = LoopLag()
        self._tasks = BackgroundTasks(self._bounded)
        self._node: RegionNode | None = None
        """None for a node on its own, and until it has joined its region."""
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._asked_to_stop = False
        self._forced: signal.Signals | None = None
        self._listening: dict[str, Callable[[], Awaitable[None]]] = {}
        """How to close what listens, by address, in the order in which it was opened."""

    async def run(self) -> int:
        self._loop = asyncio.get_running_loop()
        with StopSignals(self._on_stop_signal, self._on_second_signal):
            try:
                await self._startup()
                await self._stop.wait()
                await self._drain()
            finally:
                await self._shutdown()
        # It ended in time: an alarm that rang now, while the interpreter shuts down, would be the end's status.
        signal.setitimer(signal.ITIMER_REAL, 0)
        return EXIT_OK if self._forced is None else EXIT_SIGNAL_BASE + self._forced

    def stop(self, reason: str) -> None:
        """Drain and end, as after a first signal. Call it on the loop."""
        self._asked_to_stop = True
        if not self._stop.is_set():
            self.logger.info("stopping", reason=reason, state=self.state.value)
            self._stop.set()

    def hurry(self) -> None:
        """End at once, as after a second signal. Call it on the loop."""
        self._on_second_signal(signal.SIGTERM)

    # Startup: in this order; whatever fails raises ConfigError, and what was begun is undone.

    async def _startup(self) -> None:
        self.logger.debug("starting", version=__version__, pid=os.getpid())
        self._prepare_data_dir()
        self._load_rules()
        await self._join_region()
        self._make_handler()
        await self._bind_grpc()
        await self._bind_http()
        self._start_tasks()
        self._settle_memory()
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
            logger=self.logger,
        )
        self._store.load_initial()

    async def _join_region(self) -> None:
        """A node on its own counts by itself; any other one meets the rest of its region at the origin."""
        settings = self.settings
        origin = open_origin(settings.origin, clock=self._clock, region=settings.region, logger=self.logger)
        if origin.exclusive:
            self._engine: Engine | RegionalEngine = Engine(self._clock, max_cells=settings.max_cells)
            return
        self._node = RegionNode(
            origin,
            run=f"{self.identity.node}/{self.identity.run}".encode(),
            clock=self._clock,
            random=self._random,
            logger=self.logger,
            max_cells=settings.max_cells,
            deadline_s=settings.origin_deadline_ms / 1000,
            breaker=BreakerSettings(
                settings.breaker_error_rate,
                settings.breaker_min_samples,
                settings.breaker_cooldown_s,
                settings.breaker_cooldown_s * BREAKER_COOLDOWN_GROWTH,
            ),
            live_nodes=read_live_nodes(settings.data_dir),
            on_live_nodes=partial(write_live_nodes, settings.data_dir),
        )
        self._engine = self._node.engine
        await self._node.start()

    def _make_handler(self) -> None:
        settings = self.settings
        self._handler = RateLimitHandler(
            rules=lambda: self._store.current,
            engine=self._engine,
            random=self._random,
            settings=AnswerSettings(
                response_headers=settings.response_headers,
                header_limit=settings.header_limit,
                header_remaining=settings.header_remaining,
                header_reset=settings.header_reset,
                header_retry_after=settings.header_retry_after,
                denied_body=settings.denied_body,
                shadow_mode=settings.shadow_mode,
                dynamic_metadata=settings.dynamic_metadata,
                match_cache_entries=settings.match_cache_entries,
            ),
        )

    async def _bind_grpc(self) -> None:
        settings = self.settings
        factory = choose_transport(
            settings.transport, settings.grpc, _tls_files(settings), Trust(settings.trusted_network)
        )
        limits = TransportLimits(
            max_message_bytes=settings.max_message_bytes,
            max_pending_calls=settings.max_pending_calls,
            max_pending_bytes=settings.max_pending_bytes,
            max_concurrent_streams=settings.max_concurrent_streams,
            guard=GuardLimits(
                max_connections=settings.max_connections,
                max_connections_per_address=settings.max_connections_per_address,
                handshake_timeout_s=settings.handshake_timeout_s,
                message_timeout_s=settings.message_timeout_s,
                idle_timeout_s=settings.idle_timeout_s,
                max_connection_age_s=settings.max_connection_age_s,
                max_unfinished_bytes=settings.max_unfinished_bytes,
            ),
        )
        reuse_port = self._worker is not None and self._worker.reuse_port
        self._transport: Transport = factory(
            settings.grpc, self._handler, limits=limits, logger=self.logger, reuse_port=reuse_port
        )
        await self._transport.start()
        self._listening[self._transport.address] = self._close_grpc

    async def _bind_http(self) -> None:
        sources = HttpSources(
            handler=self._handler,
            accepts=lambda: self.state in (ServiceState.SERVING, ServiceState.DRAINING),
            readiness=self._readiness,
            rules=self._describe_rules,
            metrics=lambda: (self._metrics.render(), CONTENT_TYPE),
            version=self._version(),
        )
        limits = HttpLimits(max_body_bytes=self.settings.max_message_bytes)
        self._http = HttpServer(self.settings.http, sources, limits=limits, logger=self._bounded)
        await self._http.start()
        self._listening[self._http.address] = self._http.stop

    def _start_tasks(self) -> None:
        if self.settings.otlp_endpoint is not None:
            self._push = MetricsPush(self.settings.otlp_endpoint, self.settings.otlp_interval_s, self._metrics.snapshot)
            self._tasks.start("otlp", self._push.run)
        register(self._metrics, self._parts())
        self._tasks.start("housekeeping", self._housekeeping)
        self._tasks.start("rules", self._store.watch)
        self._tasks.start("loop_lag", self._lag.run)

    def _settle_memory(self) -> None:
        """Last of all: what is there now stays, and need never be walked again."""
        self._memory.start()

    def _become_ready(self) -> None:
        if self._asked_to_stop:
            return
        self._transport.set_serving(True)
        self.logger.info(
            # Of several workers, the supervisor says when all of them serve.
            "serving" if self._worker is None else "worker_serving",
            grpc=self._transport.address,
            http=self._http.address,
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
        while True:
            await self._sweep()
            self._memory.tick()
            await asyncio.sleep(HOUSEKEEPING_INTERVAL_S)

    async def _sweep(self) -> None:
        # One slice per turn of the loop: requests go in between.
        more = True
        while more:
            more = self._engine.sweep(SWEEP_STEPS)
            await asyncio.sleep(0)

    def _readiness(self) -> tuple[bool, Mapping[str, Any]]:
        serving = self.state is ServiceState.SERVING
        rules = self._store.status
        return serving, {
            "state": self.state.value,
            "rules": {"version": str(rules.version), "source": rules.source, "in_sync": rules.in_sync},
            "grpc": {"address": self._transport.address, "serving": serving},
            "http": {"address": self._http.address, "serving": True},
            "origin": {"url": "memory://"} if self._node is None else self._node.describe(),
        }

    def _describe_rules(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        return describe_rules(self._store, query)

    def _version(self) -> Mapping[str, str]:
        return {
            "name": "headgate",
            "version": __version__,
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
            transport=self._transport,
            http=self._http,
            rules=self._store,
            lag=self._lag,
            memory=self._memory,
            logs=self._logs.sink,
            tasks=self._tasks,
            push=self._push,
        )

    # Stopping: each step is bounded, and a second signal cuts the waiting short.

    def _on_stop_signal(self, number: signal.Signals) -> None:
        # At once, for a startup that keeps the loop busy; the rest when the loop comes to it.
        self._asked_to_stop = True
        self._loop.call_soon_threadsafe(self._note_stop, number)

    def _note_stop(self, number: signal.Signals) -> None:
        self.logger.info("stopping", signal=number.name, state=self.state.value)
        self._stop.set()

    def _on_second_signal(self, number: signal.Signals) -> None:
        if self._forced is not None:
            self._cut()
        self._forced = number
        self._loop.call_soon_threadsafe(self._cancel_drain)
        # An alarm and not a thread: we may have interrupted anything, even the start of a thread.
        signal.signal(signal.SIGALRM, lambda *_: self._cut())
        signal.setitimer(signal.ITIMER_REAL, FORCED_EXIT_S)

    def _cancel_drain(self) -> None:
        self._stop.set()
        self._hurry.set()

    def _cut(self) -> None:
        """Closing took too long, the loop is stuck, or somebody insists once more: leave without it."""
        for path in self._socket_paths():
            with contextlib.suppress(OSError):
                path.unlink()
        os._exit(EXIT_SIGNAL_BASE + (self._forced or signal.SIGTERM))

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
                await self._hurry.wait()

    async def _close_grpc(self) -> None:
        await self._transport.stop(0 if self._forced else STOP_TIMEOUT_S)

    async def _shutdown(self) -> None:
        """Listeners in the order in which they were opened, so HTTP tells of gRPC's end; then the rest."""
        for address, close in list(self._listening.items()):
            try:
                await close()
            except Exception as error:
                self.logger.error("close_failed", address=address, exc_info=error)
            del self._listening[address]
        if self._node is not None:
            # After the last answer, so that it is reported too.
            await self._node.stop(0 if self._forced else STOP_TIMEOUT_S)
        await self._tasks.stop()
        self._memory.stop()
        if self._push is not None and not self._forced:
            self._push.close()
        self._metrics.close()
        if self.state is not ServiceState.STARTING:
            self.logger.info("stopped")
        self._enter(ServiceState.STOPPED)


def _tls_files(settings: Settings) -> TlsFiles | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    client_ca = settings.tls_client_ca
    return TlsFiles(str(settings.tls_cert), str(settings.tls_key), str(client_ca) if client_ca else None)
