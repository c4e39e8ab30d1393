"""Begin and end of every serving process: its logs, its clock, its randomness and its loop."""

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from headgate.clock import Clock, SystemClock
from headgate.config import Settings
from headgate.telemetry.logs import Logs, open_logs
from headgate.transport.shared_loop import SharedLoop


class Life(Protocol):
    """A process's whole life, from startup to its exit status."""

    def run(self) -> Coroutine[Any, Any, int]:
        """Live it; the exit status."""


def switch_level_on_signal(logs: Logs) -> None:
    """SIGUSR1 switches between the level of the settings and debug. Called on the loop, in the main thread."""
    loop = asyncio.get_running_loop()
    # On the loop: a signal may interrupt anything, even the writing of a line.
    signal.signal(signal.SIGUSR1, lambda *_: loop.call_soon_threadsafe(logs.switch_level))


def run_process(settings: Settings, life: Callable[[Settings, Logs, Clock, random.Random], Life]) -> int:
    """Live a life that `life` makes, with the system's clock; the exit status. Raises ConfigError if it can't start."""
    logs = open_logs(settings.log_level, settings.log_format)

    async def live() -> int:
        switch_level_on_signal(logs)
        return await life(settings, logs, SystemClock(), random.SystemRandom()).run()

    try:
        with asyncio.Runner(loop_factory=SharedLoop) as runner:
            return runner.run(live())
    finally:
        logs.close()
