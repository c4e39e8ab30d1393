"""An asyncio loop on virtual time: when nothing is left to do now, it is the next thing's time.

Everything runs in one thread and in one order, so a run is repeated exactly by its seed;
an hour passes in the time that its events take.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Selector without waiting: where a loop would sleep, time goes on. There is no socket to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation stands still: nothing is scheduled, and nothing is ready")
        if timeout > 0:
            self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class LoopClock:
    """A clock on the running loop's time, with a wall that may be off, drift and be set."""

    def __init__(self, unix_ms: int, *, offset_ms: int = 0, drift_ppm: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._unix_ms = unix_ms
        self._rate = 1000 + drift_ppm / 1000
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        return self._unix_ms + self.offset_ms + int(self._loop.time() * self._rate)

    def monotonic(self) -> float:
        # Not zero at the beginning: a deadline of 0 is one that has passed.
        return self._loop.time() + 1_000
