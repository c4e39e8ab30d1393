"""The life of the supervisor: addresses, workers, serving, drain. Read it from top to bottom.

It looks like one process from outside: the same `serving` line when everything is there, the same errors when something
is not, the same signals and exit statuses. However it ends, its workers end too, and nothing of theirs stays behind.
"""

import asyncio
import contextlib
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

from headgate import __version__
from headgate.address import MAX_UNIX_PATH_BYTES
from headgate.clock import Clock
from headgate.config import Settings
from headgate.endpoint.socketfile import LOCK_SUFFIX
from headgate.endpoint.tokens import TokenFile
from headgate.errors import ConfigError
from headgate.runtime.access import http_endpoints, open_tokens
from headgate.runtime.from_settings import max_cells
from headgate.runtime.identity import make_identity
from headgate.runtime.process import run_process
from headgate.runtime.stopping import Stopping
from headgate.runtime.tasks import BackgroundTasks
from headgate.supervisor.addresses import GrpcAddresses
from headgate.supervisor.backoff import Backoff
from headgate.supervisor.http import Member, WorkersHttp
from headgate.supervisor.instruments import register
from headgate.supervisor.kept import KeptEntries
from headgate.supervisor.process import STOP_GRACE_S, WorkerProcess, WorkerSpec, WorkerState
from headgate.supervisor.pulse import BEAT_S
from headgate.supervisor.slot import WorkerSlot
from headgate.supervisor.upstream import Upstream
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.logs import Logs
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.otlp import open_push
from headgate.telemetry.process import LoopLag
from headgate.transport.http_listener import addresses_of
from headgate.transport.http_page import page_address
from headgate.transport.private_directory import PrivateDirectory

HURRY_S = 1.0
"""Seconds that a second signal leaves to the workers, who cut themselves short after half of it."""

CUT_S = 1.5
"""Seconds until the supervisor leaves by itself, because the loop is stuck."""


def run(settings: Settings) -> int:
    """Serve with several processes until a signal ends it; return the exit status. Raises ConfigError when it can't
    start.
    """
    return run_process(settings, WorkerSupervisor)


class WorkerSupervisor:
    """The supervising process, from its settings to its exit status. `run` is its whole life."""

    def __init__(self, settings: Settings, logs: Logs, clock: Clock, rng: random.Random) -> None:
        self.settings = settings
        self.state = WorkerState.STARTING
        self._logs = logs
        self._logger = logs.logger
        self._clock = clock
        self._random = rng
        self._node = make_identity(settings.region, settings.node_id, clock, rng).node
        self._slots = [
            WorkerSlot(index, self._spawn, self._tidy_up, Backoff(rng), self._logger)
            for index in range(settings.workers)
        ]
        self._kept = KeptEntries(
            lambda: [slot.process for slot in self._slots if slot.process is not None], clock.now_ms
        )
        self._lag = LoopLag()
        self._bounded = BoundedLogger(logs.logger, clock)
        self._tasks = BackgroundTasks(self._bounded)
        self._stopping = Stopping(
            logs.logger,
            state=lambda: self.state.value,
            cut_after_s=CUT_S,
            before_cut=self._remove_workers,
            on_stop=self._end_startup,
            drain_s=settings.drain_s,
        )
        logs.on_level = self._switch_log_levels
        self._directory: Path | None = None
        self._cleanup = contextlib.AsyncExitStack()

    async def run(self) -> int:
        """Serve until a signal ends it; return the exit status."""
        with self._stopping:
            async with self._cleanup:
                try:
                    await self._startup()
                    await self._stopping.wait()
                    await self._drain()
                finally:
                    await self._end_workers()
            if self.state is not WorkerState.STARTING:
                self._logger.info("stopped")
        return self._stopping.exit_status

    def _switch_log_levels(self) -> None:
        """The workers' with the supervisor's; one that starts later begins with the level of the settings."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.switch_log_level()

    # Startup: in this order; a failing step raises ConfigError, and the steps before it are undone.

    async def _startup(self) -> None:
        self._logger.debug("starting", version=__version__, pid=os.getpid(), workers=len(self._slots))
        self._take_addresses()
        self._make_directory()
        await self._bind_http()
        await self._start_workers()
        self._become_ready()

    def _take_addresses(self) -> None:
        self._grpc = GrpcAddresses(self.settings.grpc, len(self._slots))
        self._cleanup.callback(self._grpc.close)

    def _make_directory(self) -> None:
        try:
            private = PrivateDirectory()
        except OSError as error:
            raise ConfigError(f"workers: no directory for temporary files: {error.strerror}") from error
        self._cleanup.callback(private.remove)
        self._directory, self._directory_fd = private.path, private.lock_fd
        if len(os.fsencode(self._http_path(len(self._slots)) + LOCK_SUFFIX)) > MAX_UNIX_PATH_BYTES:
            raise ConfigError(
                f"workers: {self._directory}: too long for a Unix socket in it: set TMPDIR to a shorter one"
            )

    async def _bind_http(self) -> None:
        members = [Member(slot, Upstream(self._http_path(slot.index))) for slot in self._slots]
        for member in members:
            self._cleanup.push_async_callback(member.upstream.close)
        metrics = Metrics(node=self._node, region=self.settings.region)
        tokens = open_tokens(self.settings, self._logger)
        endpoints = http_endpoints(self.settings, tokens, self._bounded, self.settings.max_message_bytes)
        self._https = [
            WorkersHttp(endpoint, members, state=lambda: self.state, own_metrics=metrics.render)
            for endpoint in endpoints
        ]
        register(metrics, self._slots, self._https, self._lag, self._logs.sink)
        self._start_tasks(metrics, tokens)
        for listener in self._https:
            await listener.start()
            self._cleanup.push_async_callback(listener.stop)

    def _start_tasks(self, metrics: Metrics, tokens: TokenFile | None) -> None:
        """The supervisor pushes its own metrics, and each worker pushes the worker's.

        Beside what it measures, a loop that wakes ten times a second sees a signal that another thread got.
        """
        push = open_push(self.settings.otlp_endpoint, self.settings.otlp_interval_s, metrics)
        if push is not None:
            self._cleanup.callback(push.close)
            self._tasks.start("otlp", push.run)
        if tokens is not None:
            self._tasks.start("tokens", tokens.watch)
        self._tasks.start("loop_lag", self._lag.run)
        self._tasks.start("watch", self._watch)
        self._cleanup.push_async_callback(self._tasks.stop)

    async def _watch(self) -> None:
        """Look for workers that hang, as often as a worker speaks."""
        while True:
            await asyncio.sleep(BEAT_S)
            for slot in self._slots:
                slot.check_pulse()

    async def _start_workers(self) -> None:
        """All workers load together; the first begins to serve before the others begin.

        What is wrong for all is then said once, and the rules that it compiled and kept are there
        for the others.
        """
        first, *others = self._slots
        at_once, go = asyncio.Event(), asyncio.Event()
        at_once.set()
        starts = [asyncio.create_task(slot.start(go)) for slot in others]
        try:
            await first.start(at_once)
        except ConfigError:
            for slot in others:
                slot.stop()
            raise
        finally:
            go.set()
            ends = await asyncio.gather(*starts, return_exceptions=True)
        for failure in ends:
            # One is enough: they have the same settings.
            if isinstance(failure, BaseException):
                raise failure

    def _become_ready(self) -> None:
        if self._stopping.asked:
            return
        self.state = WorkerState.SERVING
        self._logger.info(
            "serving",
            grpc=",".join(self._grpc.all),
            **addresses_of(self._https),
            **page_address(addresses_of(self._https)),
            workers=len(self._slots),
            region=self.settings.region,
            node=self._node,
            version=__version__,
            pid=os.getpid(),
        )

    # Workers

    async def _spawn(self, index: int) -> WorkerProcess:
        settings = replace(
            self.settings,
            workers=1,
            # A part of what all may keep: a worker does not know how many there are.
            max_cells=max_cells(self.settings),
            grpc=self._grpc.of(index),
            http=f"unix:{self._http_path(index)}",
            # Once all have served, a worker that replaces one is ready even if the origin is away.
            wait_for_origin=self.settings.wait_for_origin if self.state is WorkerState.STARTING else 0,
            admin=None,
            metrics=None,
            debug=None,
            admin_grpc=self.settings.admin_grpc if index == 0 else None,
            # Another one at every start, so that no former self is mistaken for this one.
            node_id=f"{self._node}-w{index}-{self._random.getrandbits(32):08x}",
        )
        directory = self._worker_directory(index)
        spec = WorkerSpec(index, self._grpc.reuse_port, directory, settings, len(self._slots))
        process = await WorkerProcess.spawn(spec, self._clock, self._directory_fd)
        self._kept.follow(process)
        return process

    def _tidy_up(self, index: int) -> None:
        """Remove the files of a worker that has ended, which it may not have had time to do."""
        shutil.rmtree(self._worker_directory(index), ignore_errors=True)
        self._grpc.clear(index)

    def _worker_directory(self, index: int) -> Path:
        assert self._directory is not None  # noqa: S101 - made before there is a worker
        return self._directory / str(index)

    def _http_path(self, index: int) -> str:
        return str(self._worker_directory(index) / "http")

    # Stopping: each step is bounded, and a second signal cuts the waiting short.

    def _end_startup(self) -> None:
        """Startup waits for workers: once asked to stop, they need not finish theirs."""
        if self.state is WorkerState.STARTING:
            for slot in self._slots:
                slot.stop()

    def _remove_workers(self) -> None:
        """Remove the workers and their files before the process is cut."""
        for slot in self._slots:
            slot.kill()
            if slot.state in (WorkerState.SERVING, WorkerState.DRAINING):
                self._grpc.remove(slot.index)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _drain(self) -> None:
        if self.state is WorkerState.SERVING:
            self.state = WorkerState.DRAINING
        for slot in self._slots:
            slot.stop()
        ended, hurry = asyncio.create_task(self._all_ended()), asyncio.create_task(self._stopping.hurried.wait())
        patience_s = self.settings.drain_s + STOP_GRACE_S
        await asyncio.wait((ended, hurry), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        hurry.cancel()

    async def _end_workers(self) -> None:
        """Ask the remaining workers to hurry, then kill them."""
        for slot in self._slots:
            slot.hurry()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HURRY_S):
                await self._all_ended()
        for slot in self._slots:
            slot.kill()
        await self._all_ended()

    async def _all_ended(self) -> None:
        await asyncio.gather(*(slot.ended() for slot in self._slots))
