"""A clock that stands still until it is told to move, or until everybody sleeps."""

import asyncio
import heapq
import itertools
import random
import threading
from typing import Final

START_S: Final = 1_700_000_040.0
"""A minute's beginning: a test that counts within a window is not cut in two by its end."""
QUIET_TURNS: Final = 3
"""Turns of the loop without a new sleeper, after which all tasks are taken to sleep."""


class FakeClock:
    """Time for clients and servers of a test, and random numbers from a seed.

    By itself time moves only when somebody sleeps (`acquire` does): in threads by what is slept, in asyncio to
    the end of the shortest sleep, once no task has anything else to do. With `auto=False` sleepers
    wait until the test calls `advance`.
    """

    def __init__(self, start_s: float = START_S, *, auto: bool = True, seed: int = 0) -> None:
        self._now_s = start_s
        self._auto = auto
        self._random = random.Random(seed)  # noqa: S311  for tests
        self._moved = threading.Condition()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = itertools.count()
        self._watching = False

    def now_s(self) -> float:
        return self._now_s

    def random(self) -> float:
        return self._random.random()

    @property
    def sleepers(self) -> int:
        """Tasks that sleep."""
        return len(self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move time on. Tasks whose sleep ends on the way wake in their order, at their times."""
        self._move_to(self._now_s + seconds)

    def sleep(self, seconds: float) -> None:
        """For threads."""
        until_s = self._now_s + seconds
        if self._auto:
            self._move_to(until_s)
            return
        with self._moved:
            self._moved.wait_for(lambda: self._now_s >= until_s)

    async def sleep_async(self, seconds: float) -> None:
        """For tasks."""
        loop = asyncio.get_running_loop()
        awake: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._number), awake))
        if self._auto and not self._watching:
            self._watching = True
            loop.call_soon(self._watch, loop, len(self._sleepers), QUIET_TURNS)
        await awake

    def _watch(self, loop: asyncio.AbstractEventLoop, sleepers: int, turns: int) -> None:
        if len(self._sleepers) != sleepers:
            turns = QUIET_TURNS
        elif turns == 0 and self._sleepers:
            self._move_to(self._sleepers[0][0])
            turns = QUIET_TURNS
        if not self._sleepers:
            self._watching = False
            return
        loop.call_soon(self._watch, loop, len(self._sleepers), turns - 1)

    def _move_to(self, now_s: float) -> None:
        """As far as the next sleeper's time; those who are due wake before time goes on."""
        with self._moved:
            self._now_s = max(self._now_s, now_s)
            self._moved.notify_all()
        while self._sleepers and self._sleepers[0][0] <= self._now_s:
            _, __, awake = heapq.heappop(self._sleepers)
            if not awake.done():
                awake.set_result(None)
