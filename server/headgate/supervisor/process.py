"""One run of one worker, seen from the supervisor: start, messages, stop, end.

A worker is a fresh interpreter, not a fork: threads and their locks stay here. Its settings
come over the channel, so they are in no argument list and no environment.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from headgate.clock import Clock
from headgate.config import Settings
from headgate.config.handover import settings_from_plain, settings_to_plain
from headgate.runtime.stopping import STOP_SIGNALS
from headgate.supervisor.channel import KEPT, Channel, Message, Order, is_beat
from headgate.supervisor.pulse import MOST_MISSED, MOST_MISSED_STARTING, WorkerPulse, no_sign_of_life

STOP_GRACE_S = 20.0
"""Beyond the drain period, for all that a worker may do while it ends; each of its steps has a bound of its own."""

WORKER_MODULE = "headgate.supervisor.worker"


class WorkerState(StrEnum):
    """State that a worker reported last (the states of a service), or `ended`."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"
    ENDED = "ended"


PATIENCE = {
    WorkerState.STARTING: MOST_MISSED_STARTING,
    WorkerState.SERVING: MOST_MISSED,
    WorkerState.DRAINING: MOST_MISSED,
}
"""Beats that a worker may miss, by state; in other states it is about to end anyway."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """All that a worker receives when it starts."""

    index: int
    reuse_port: bool
    directory: Path
    """Directory of its own, which it makes, for its private HTTP socket and other temporary files."""
    settings: Settings
    workers: int = 1
    """Number of all workers."""

    def to_message(self) -> Message:
        return {
            "index": self.index,
            "reuse_port": self.reuse_port,
            "directory": str(self.directory),
            "settings": settings_to_plain(self.settings),
            "workers": self.workers,
        }

    @classmethod
    def from_message(cls, message: Message) -> Self:
        settings = settings_from_plain(message["settings"])
        return cls(message["index"], message["reuse_port"], Path(message["directory"]), settings, message["workers"])


class WorkerProcess:
    """One run of a worker: `spawn` starts the interpreter, `begin` lets it serve, `ended` gives its exit status."""

    def __init__(self, spec: WorkerSpec, process: Process, channel: Channel, clock: Clock) -> None:
        self.spec = spec
        self.state = WorkerState.STARTING
        """State that the worker reported last."""
        self.status = 0
        """Exit status, once it has ended; a signal's number, negative, if that ended it."""
        self.failure: str | None = None
        """Reason why it could not start, in its own words; or why it had to be ended."""
        self.on_kept: Callable[[Sequence[Any]], None] = lambda row: None
        """Called with what the worker keeps while the origin is away, as `row_of` writes it."""
        self.on_serving: Callable[[], None] = lambda: None
        self._process = process
        self._channel = channel
        self._clock = clock
        self._begun = False
        self._pulse = WorkerPulse()
        self._serving_since: float | None = None
        self._settled = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._listen)
        self._end = asyncio.create_task(self._wait(), name=f"worker-{spec.index}")

    @classmethod
    async def spawn(cls, spec: WorkerSpec, clock: Clock, lock_fd: int) -> Self:
        """Start the interpreter of a worker, which holds `lock_fd` for as long as it lives.

        Raises OSError when the system gives no process.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo, _stop_signals_held():
            undo.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                # The package that runs here, not one that lies in the working directory.
                "-P",
                "-m",
                WORKER_MODULE,
                str(theirs.fileno()),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(), lock_fd),
            )
            undo.pop_all()
        return cls(spec, process, Channel(ours), clock)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def node(self) -> str | None:
        return self.spec.settings.node_id

    @property
    def is_alive(self) -> bool:
        return self.state is not WorkerState.ENDED

    @property
    def served_s(self) -> float:
        """Seconds that it has served; 0 if it never did."""
        return 0.0 if self._serving_since is None else self._clock.monotonic() - self._serving_since

    async def begin(self) -> None:
        """Send the worker its settings, which lets it begin."""
        await self._channel.send_long(self.spec.to_message())
        self._begun = True

    async def settled(self) -> bool:
        """Wait until the worker serves or has ended. Returns whether it serves."""
        await self._settled.wait()
        return self.is_alive

    async def ended(self) -> int:
        """Wait for the end of the process. Returns its exit status."""
        return await asyncio.shield(self._end)

    def stop(self) -> None:
        self._tell(Order.STOP)

    def hurry(self) -> None:
        self._tell(Order.HURRY)

    def switch_log_level(self) -> None:
        if self._begun:
            self._tell(Order.SWITCH_LOG_LEVEL)

    def tell_kept(self, row: Sequence[Any]) -> None:
        """Tell the worker what another one keeps."""
        if self._begun and self.is_alive:
            self._channel.send({KEPT: row})

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def check_pulse(self) -> bool:
        """Check once per beat for a hang, and end a worker that hangs; true if it did. A worker that has not begun is
        silent.
        """
        patience = PATIENCE.get(self.state)
        if not self._begun or patience is None or not self._pulse.check(patience):
            return False
        self.failure = no_sign_of_life(patience)
        self.kill()
        return True

    def describe(self) -> dict[str, Any]:
        return {"worker": self.spec.index, "pid": self.pid, "node": self.node, "state": self.state}

    def _tell(self, order: Order) -> None:
        if not self._begun:
            # It has nothing to drain and does not know what an order is.
            self.kill()
        elif self.is_alive:
            self._channel.send({"order": order})

    def _listen(self) -> None:
        for message in self._channel.receive():
            self._heard(message)
        if self._channel.ended:
            self._loop.remove_reader(self._channel.fileno())

    def _heard(self, message: Message) -> None:
        self._pulse.heard()
        if is_beat(message):
            return
        if "failure" in message:
            self.failure = message["failure"]
            return
        if KEPT in message:
            self.on_kept(message[KEPT])
            return
        self.state = WorkerState(message["state"])
        if self.state is WorkerState.SERVING:
            self._serving_since = self._clock.monotonic()
            self._settled.set()
            self.on_serving()

    async def _wait(self) -> int:
        self.status = await self._process.wait()
        # Its last words may still be on the way from the kernel to us.
        self._listen()
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        self.state = WorkerState.ENDED
        self._settled.set()
        return self.status


@contextlib.contextmanager
def _stop_signals_held() -> Iterator[None]:
    """Block SIGTERM and SIGINT while a worker is started: it inherits the block, and lifts it when it can handle them.

    A terminal's Ctrl-C and some service managers signal the whole group: a worker that is still
    loading must not die of it. Ours are delivered a moment later.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        # Not "as before": several workers are started at a time, and before may have been held.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
