"""Time and randomness as the client takes them, so that tests can give others."""

import asyncio
import random
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that never go back, two ways to let them pass, and numbers from 0 to 1."""

    def now_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    async def sleep_async(self, seconds: float) -> None: ...

    def random(self) -> float: ...


class SystemClock:
    """The machine's."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random(self) -> float:
        # Spreads callers out; nothing depends on its being unguessable.
        return random.random()  # noqa: S311


SYSTEM_CLOCK = SystemClock()
