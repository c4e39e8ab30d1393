"""Background tasks that are started again whenever they end; each end is logged and counted."""

import asyncio
from collections.abc import Awaitable, Callable

from headgate.telemetry.bounded import BoundedLogger

RESTART_DELAY_S = 1.0
"""Long enough that a task which fails at once does not spin, short enough that nobody misses it."""


class BackgroundTasks:
    """The process's background tasks by name, from `start` to `stop`."""

    def __init__(self, logger: BoundedLogger) -> None:
        self.restarts: dict[str, int] = {}
        self._logger = logger
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` until `stop`, again whenever it ends."""
        self.restarts[name] = 0
        self._tasks.append(asyncio.create_task(self._keep_running(name, work), name=name))

    async def stop(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _keep_running(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:
                self._logger.error("task_failed", task=name, exc_info=error)
            self.restarts[name] += 1
            await asyncio.sleep(RESTART_DELAY_S)
