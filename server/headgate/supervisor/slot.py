"""One of the N workers of a supervisor: it runs a process, and starts another one when that has ended.

The first start is different: a worker that can't start at all says why, and that is for
the operator. Later ones are started again and again, with longer waits.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from headgate.errors import ConfigError
from headgate.supervisor.backoff import Backoff
from headgate.supervisor.process import WorkerProcess, WorkerState

Spawn = Callable[[int], Awaitable[WorkerProcess]]


class WorkerSlot:
    """Keeps one worker running: call `start` once, `stop` at the end, then await `ended`."""

    def __init__(self, index: int, spawn: Spawn, tidy_up: Callable[[int], None], backoff: Backoff, logger: Any) -> None:
        self.index = index
        self.restarts = 0
        self.hangs = 0
        """Number of those that were ended because they hung."""
        self.process: WorkerProcess | None = None
        """The latest, perhaps ended; None before the first, or when the system gave none."""
        self._spawn = spawn
        self._tidy_up = tidy_up
        self._backoff = backoff
        self._logger = logger
        self._stopping = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def state(self) -> WorkerState:
        return WorkerState.ENDED if self.process is None else self.process.state

    def describe(self) -> dict[str, Any]:
        known = {"worker": self.index, "state": self.state} if self.process is None else self.process.describe()
        return {**known, "restarts": self.restarts}

    async def start(self, go: asyncio.Event) -> None:
        """Load the worker now, let it begin at `go`, and wait until it serves or is stopped.

        Raises ConfigError with the worker's own words if it can't.
        """
        if self._stopping.is_set():
            return
        try:
            process = self.process = await self._spawn(self.index)
        except OSError as error:
            raise ConfigError(f"worker {self.index}: can't be started: {error.strerror or error}") from error
        await go.wait()
        await self._begin(process)
        serves = await process.settled()
        if not serves and not self._stopping.is_set():
            raise ConfigError(self._why_not(process, await process.ended()))
        self._keeper = asyncio.create_task(self._keep(), name=f"slot-{self.index}")

    def _why_not(self, process: WorkerProcess, status: int) -> str:
        if process.failure is None:
            return f"worker {self.index} {_ending(status)} before it served"
        # In its own words; of one that had to be killed they are the supervisor's.
        return process.failure if status >= 0 else f"worker {self.index}: {process.failure}"

    def stop(self) -> None:
        """Let the worker drain; none is started after it."""
        self._stopping.set()
        if self.process is not None:
            self.process.stop()

    def hurry(self) -> None:
        self.stop()
        if self.process is not None:
            self.process.hurry()

    def kill(self) -> None:
        self._stopping.set()
        if self.process is not None:
            self.process.kill()

    def check_pulse(self) -> None:
        """Check the worker once per beat: one that hangs is ended, and so replaced; one that ends anyway has its own
        bounds.
        """
        if self.process is not None and not self._stopping.is_set() and self.process.check_pulse():
            self.hangs += 1
            self._logger.warning("worker_hangs", worker=self.index, pid=self.process.pid, node=self.process.node)

    async def ended(self) -> None:
        """Wait, after `stop`, until no process runs here any more."""
        if self._keeper is not None:
            await asyncio.shield(self._keeper)
        elif self.process is not None:
            await self._end_of(self.process)

    async def _keep(self) -> None:
        while True:
            if self.process is not None:
                await self._end_of(self.process)
            if self._stopping.is_set() or await self._stopped_within(self._note_end()):
                return
            await self._start_again()

    async def _end_of(self, process: WorkerProcess) -> None:
        await process.ended()
        self._tidy_up(self.index)

    def _note_end(self) -> float:
        """Log the end of a worker. Returns how long to wait before the next start, in seconds."""
        process = self.process
        wait_s = self._backoff.next_s(0.0 if process is None else process.served_s)
        if process is not None:
            self._logger.warning(
                "worker_ended",
                worker=self.index,
                pid=process.pid,
                node=process.node,
                how=_ending(process.status),
                reason=process.failure,
                restart_in_s=round(wait_s, 3),
            )
        return wait_s

    async def _stopped_within(self, wait_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait_s)
        return self._stopping.is_set()

    async def _start_again(self) -> None:
        self.restarts += 1
        self.process = None
        try:
            self.process = await self._spawn(self.index)
        except OSError as error:
            self._logger.error("worker_not_started", worker=self.index, reason=error.strerror or str(error))
            return
        await self._begin(self.process)

    async def _begin(self, process: WorkerProcess) -> None:
        if self._stopping.is_set():
            process.stop()
        else:
            await process.begin()


def _ending(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
