"""An event loop that shares a lock with another thread: one of the two runs at a time.

The loop holds the lock whenever it runs something, and releases it only while it waits for its sockets. A thread that
holds the lock may therefore use whatever the loop's callbacks use (engine, counters, statistics), as if it were one of
them: nothing behind the transports needs a lock of its own. It may not wait for anything, nor schedule anything on the
loop but by `call_soon_threadsafe`.

The lock is fair: who releases it hands it to the other, if that one waits for it. So neither a flood of calls nor a
busy loop keeps the other from running, not even while it has been woken and no core has taken it up yet. That takes
both to be in line, and who comes back from its sockets needs the interpreter first, which is given up when somebody has
asked for it for a while (`SWITCH_S`).
"""

import asyncio
import selectors
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    Ready = list[tuple[selectors.SelectorKey, int]]


SWITCH_S: Final = 0.0002
"""Time after which a thread that waits for the interpreter asks the one that has it. A thread that decides gives it up
each half millisecond by itself, but takes it again before another one has woken up, unless that one has asked: Python's
5 ms are never over by then. Shorter, and threads change places more often than they work."""


class LoopLock:
    """A fair lock between two threads, of which one runs the loop."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._line: deque[threading.Lock] = deque()
        """A gate of who waits, which is opened when the lock is handed over."""

    def acquire(self) -> None:
        """Wait for the lock."""
        # Nobody waits for it, and nobody has it: as mostly.
        if not self._held.acquire(False):
            self._wait()

    def release(self) -> None:
        """Let the other one have it: at once, if it waits."""
        if self._line:
            self._line.popleft().release()
            return
        self._held.release()
        # Who stood in line in between found it held, and nobody would open its gate.
        if self._line and self._held.acquire(False):
            self._line.popleft().release()

    def _wait(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        self._line.append(gate)
        if self._held.acquire(False):
            # It was released before somebody stood in line.
            self._line.remove(gate)
        else:
            gate.acquire()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Selector(selectors.DefaultSelector):
    """Waits for sockets without the lock."""

    def __init__(self, lock: LoopLock) -> None:
        super().__init__()
        self._lock = lock

    def select(self, timeout: float | None = None) -> "Ready":
        self._lock.release()
        try:
            return super().select(timeout)
        finally:
            self._lock.acquire()


class SharedLoop(asyncio.SelectorEventLoop):
    """The loop of a serving process. Make, run and close it on one thread."""

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self.lock = LoopLock()
        self.lock.acquire()
        super().__init__(_Selector(self.lock))

    def close(self) -> None:
        """Close it, and let whoever waits for the lock have it for good."""
        if not self.is_closed():
            super().close()
            self.lock.release()
