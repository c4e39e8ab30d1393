"""The life of one process: startup, serving, drain. Read it from top to bottom.

Startup goes in order, and nothing is announced before everything is there: rules,
engine, gRPC, HTTP, then ready. Shutdown is a row of named steps, each bounded in time.
What is started and stopped is a list of rooms, one per feature (room.py). How signals end
it is in stopping.py; whichever way it ends, no socket file stays behind.
"""

import asyncio
import contextlib
import os
import random
from typing import Final

from headgate import __version__
from headgate.clock import Clock
from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.runtime import instruments
from headgate.runtime.context import ProcessContext, ServiceState, WorkerRole
from headgate.runtime.garbage import MemoryKeeper
from headgate.runtime.identity import make_identity
from headgate.runtime.process import run_process
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.blocks import BlocksRoom
from headgate.runtime.rooms.cuts import CutsRoom
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.exchange import ExchangeRoom
from headgate.runtime.rooms.handler import HandlerRoom
from headgate.runtime.rooms.keys import KeysRoom
from headgate.runtime.rooms.listeners import ListenersRoom
from headgate.runtime.rooms.nodes import NodesRoom
from headgate.runtime.rooms.peers import PeersRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.runtime.rooms.reservations import ReservationsRoom
from headgate.runtime.rooms.rules import RulesRoom
from headgate.runtime.rooms.telemetry import TelemetryRoom
from headgate.runtime.stopping import Stopping
from headgate.runtime.tasks import BackgroundTasks
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.logs import Logs
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.process import LoopLag
from headgate.transport.http_page import page_address

ROOMS: Final[tuple[type[Room], ...]] = (
    PeersRoom,
    DecisionLogRoom,
    TelemetryRoom,
    RulesRoom,
    RegionRoom,
    ExchangeRoom,
    BlocksRoom,
    KeysRoom,
    CutsRoom,
    HandlerRoom,
    ReservationsRoom,
    NodesRoom,
    ListenersRoom,
)
"""In the order in which they start: each may use those before it. They stop from the last to the first."""

HOUSEKEEPING_INTERVAL_S: Final = 0.1
IDLE_INTERVAL_S: Final = 0.5
"""Interval while nobody calls: what an idle node costs is waking up, and half a second of first calls is little."""

STOP_TIMEOUT_S: Final = 5.0
"""For calls still in flight after the drain period; a decision takes microseconds."""

FORCED_EXIT_S: Final = 0.5
"""Time that a second signal leaves for closing sockets in good order before the process is cut."""


def run(settings: Settings) -> int:
    """Serve until told to stop; the exit status. Raises ConfigError when it can't start."""
    return run_process(settings, Service)


class Service:
    """One serving process, from its settings to its exit status. `run` is its whole life."""

    def __init__(
        self, settings: Settings, logs: Logs, clock: Clock, rng: random.Random, worker: WorkerRole | None = None
    ) -> None:
        identity = make_identity(settings.region, settings.node_id, clock, rng)
        self.stopping = Stopping(
            logs.logger,
            state=lambda: self._context.state.value,
            cut_after_s=FORCED_EXIT_S,
            before_cut=lambda: self.rooms.get(ListenersRoom).remove_sockets(),
            drain_s=settings.drain_s,
        )
        self._context = ProcessContext(
            settings,
            identity,
            clock,
            rng,
            logs,
            logs.logger,
            BoundedLogger(logs.logger, clock),
            Metrics(node=identity.node, region=settings.region),
            MemoryKeeper(),
            self.stopping,
            worker,
        )
        self._logger = logs.logger
        self._logs = logs
        self._lag = LoopLag()
        self._tasks = BackgroundTasks(self._context.bounded)
        self._begun: list[Room] = []
        """Rooms whose start began, and which must be stopped."""
        self.rooms = Rooms()
        for kind in ROOMS:
            self.rooms.add(kind(self._context, self.rooms))

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
        self._logger.debug("starting", version=__version__, pid=os.getpid())
        self._prepare_data_dir()
        for room in self.rooms:
            self._begun.append(room)
            await room.start()
        self.register(self._context.metrics)
        self._start_tasks()
        # What exists now lives for long: set aside from the garbage collector.
        self._context.memory.start()
        await self.rooms.get(RulesRoom).wait_for_rules()
        await self.rooms.get(RegionRoom).wait_for_origin()
        self._become_ready()

    def _prepare_data_dir(self) -> None:
        path = self._context.settings.data_dir
        if path is None:
            return
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"data_dir {path}: can't be created: {error.strerror}") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise ConfigError(f"data_dir {path}: can't be written to")

    def register(self, metrics: Metrics) -> None:
        """Export every metric of the process: its own, and those of all rooms."""
        transport = self.rooms.get(ListenersRoom).transport.name
        instruments.register_life(metrics, transport, lambda: self._context.state is ServiceState.SERVING, self._lag)
        for kind in ROOMS:
            kind.register(self.rooms.get(kind), metrics)
        instruments.register_background(metrics, self._context.memory, self._logs.sink, self._tasks)

    def _start_tasks(self) -> None:
        self._tasks.start("housekeeping", self._housekeeping)
        for room in self.rooms:
            for name, task in room.tasks().items():
                self._tasks.start(name, task)

    def _become_ready(self) -> None:
        if self.stopping.asked:
            return
        context, listeners = self._context, self.rooms.get(ListenersRoom)
        listeners.transport.set_serving(True)
        self._logger.info(
            # Of several workers, the supervisor says when all of them serve.
            "serving" if context.worker is None else "worker_serving",
            **listeners.addresses(),
            **page_address(listeners.addresses()),
            transport=listeners.transport.name,
            rules=str(self.rooms.get(RulesRoom).store.current.version),
            region=context.identity.region,
            node=context.identity.node,
            run=context.identity.run,
            version=__version__,
            pid=os.getpid(),
        )
        self._enter(ServiceState.SERVING)

    def _enter(self, state: ServiceState) -> None:
        self._context.state = state
        if self._context.worker is not None:
            self._context.worker.on_state(state)

    # Serving

    async def _housekeeping(self) -> None:
        """Tick all rooms from one timer, which also measures the loop's lag: an idle node costs its wake-ups."""
        region, log = self.rooms.get(RegionRoom), self.rooms.get(DecisionLogRoom)
        stats, monotonic = self.rooms.get(ListenersRoom).transport.stats, self._context.clock.monotonic
        calls, tidy = 0, self.rooms.get(HandlerRoom).tidy
        while True:
            while region.sweep():
                # Many may be due at once, and as many new ones come meanwhile: requests go in between.
                tidy()
                await asyncio.sleep(0)
            began_s = monotonic()
            for room in self.rooms:
                room.tick()
            tidy()
            idle, calls = calls == stats.calls, stats.calls
            quiet = idle and not log.waiting
            await self._lag.sleep(IDLE_INTERVAL_S if quiet else HOUSEKEEPING_INTERVAL_S, monotonic() - began_s)

    # Stopping: each step is bounded, and a second signal cuts the waiting short.

    async def _drain(self) -> None:
        if self._context.state is not ServiceState.SERVING:
            return
        self._enter(ServiceState.DRAINING)
        self.rooms.get(ListenersRoom).transport.set_serving(False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._context.settings.drain_s):
                await self.stopping.hurried.wait()

    async def _shutdown(self) -> None:
        begun = self._begun[::-1]
        for room in begun:
            await room.stop(self._patience_s)
        await self._tasks.stop()
        self._context.memory.stop()
        for room in begun:
            room.close(self._patience_s)
        if self._context.state is not ServiceState.STARTING:
            self._logger.info("stopped")
        self._enter(ServiceState.STOPPED)

    @property
    def _patience_s(self) -> float:
        return 0 if self.stopping.forced else STOP_TIMEOUT_S
