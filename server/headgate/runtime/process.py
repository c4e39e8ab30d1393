"""What every serving process begins and ends with: its logs, its clock, its randomness and its loop."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from headgate.clock import Clock, SystemClock
from headgate.config import Settings
from headgate.telemetry.logs import Logs, open_logs


class Life(Protocol):
    """A process's whole life, from startup to its exit status."""

    def run(self) -> Coroutine[Any, Any, int]:
        """Live it; the exit status."""
        ...


def run_process(settings: Settings, life: Callable[[Settings, Logs, Clock, random.Random], Life]) -> int:
    """Live a life that `life` makes, with the system's clock; the exit status. Raises ConfigError if it can't start."""
    logs = open_logs(settings.log_level, settings.log_format)

    async def live() -> int:
        return await life(settings, logs, SystemClock(), random.SystemRandom()).run()

    try:
        return asyncio.run(live())
    finally:
        logs.close()
