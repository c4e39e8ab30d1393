"""Reading the log for others: in a thread of its own, one question at a time, each for so long and no longer.

What callers can ask for must not take the machine, nor the threads in which tokens and rules are looked at: whoever
comes while many wait is told so, an answer has a deadline, and one whose caller has left ends. All of that is looked at
before each block that is read, and so is whether it is time to give way to the loop that serves.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from headgate.decision_log.segments import ReadStats
from headgate.errors import NotReady

DEADLINE_S: Final = 5.0
"""Time for one answer: half of what HTTP waits for. Over a whole log of the default size it takes about two. After half
of it no more is looked for."""
MOST_WAITING: Final = 4
"""Questions in line behind the one that is answered: more people than look at one node."""
REFUSED_AFTER_S: Final = 1.0
"""Time after which whoever comes while as many wait is told so."""
SLICE_S: Final = 0.001
"""Time that a reading takes before it lets others run: the loop waits no longer than that for the interpreter."""
BREAK_S: Final = 0.001
"""Time that it then sleeps: so it takes half of a core at most."""

Answer = TypeVar("Answer")


class Patience:
    """Tells one reading when it is to end."""

    def __init__(self, seconds: float = DEADLINE_S) -> None:
        self._seconds = seconds
        self._ends_s = float("inf")
        self._slice_ends_s = 0.0
        self._given_up = False

    def begin(self) -> None:
        """Count the time from now on."""
        self._ends_s = time.monotonic() + self._seconds

    def stats(self) -> ReadStats:
        """Return the counts of a reading that asks this one."""
        return ReadStats(on_block=self.check, enough=self.is_half_over)

    def is_half_over(self) -> bool:
        """Tell whether the rest of the time is for making an answer of what was found."""
        return time.monotonic() >= self._ends_s - self._seconds / 2

    def give_up(self) -> None:
        """End the reading at its next block: nobody waits for it any more."""
        self._given_up = True

    def check(self) -> None:
        """Give way, if it is time; raises NotReady where the reading is to end."""
        now_s = time.monotonic()
        if self._given_up:
            raise NotReady("whoever asked has left")
        if now_s >= self._ends_s:
            raise NotReady(f"the log was read for {self._seconds:g} s without an end: ask for a narrower window")
        if now_s >= self._slice_ends_s:
            time.sleep(BREAK_S)
            self._slice_ends_s = time.monotonic() + SLICE_S


class LogReading:
    """One thread that reads the log for those who ask. For one loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._asked: set[Patience] = set()

    async def run(self, read: Callable[[Patience], Answer]) -> Answer:
        """Return what `read` finds. Raises NotReady where too many wait, or when it takes too long."""
        if len(self._asked) > MOST_WAITING:
            # Whoever asks again and again is held up by it, and costs little more than his connection.
            await asyncio.sleep(REFUSED_AFTER_S)
            raise NotReady("the log is being read for others: ask again in a few seconds")
        patience = Patience()
        self._asked.add(patience)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, _begin, read, patience)
        finally:
            # Also when the caller has left.
            patience.give_up()
            self._asked.discard(patience)

    def close(self) -> None:
        """End what is being read, and the thread."""
        for patience in self._asked:
            patience.give_up()
        self._executor.shutdown(wait=False, cancel_futures=True)


def _begin(read: Callable[[Patience], Answer], patience: Patience) -> Answer:
    patience.begin()
    return read(patience)
