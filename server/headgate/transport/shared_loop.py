"""An event loop whose thread takes turns with another: between them, one thread at a time.

The loop holds the turn whenever it runs something, and gives it away only while it waits for its
sockets. A thread that has taken the turn may therefore use whatever the loop's callbacks use (engine,
counters, statistics), as if it were one of them: nothing behind the transports needs a lock of its own. It may not
wait for anything, nor schedule anything on the loop but by `call_soon_threadsafe`.

Turns are fair: who gives the turn away gets it back only after the other, if that one waits for it. So neither
a flood of calls nor a busy loop keeps the other from running.
"""

import asyncio
import selectors
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Ready = list[tuple[selectors.SelectorKey, int]]


class Turn:
    """Whose turn it is, of two threads."""

    def __init__(self) -> None:
        self._next = threading.Lock()
        """Held by who waits: the other one stands behind it, and can't be first again."""
        self._mine = threading.Lock()
        self.give = self._mine.release
        """Let the other one have it."""

    def take(self) -> None:
        """Wait for the turn."""
        # Nobody waits for it, and nobody has it: as mostly.
        if self._next.locked() or not self._mine.acquire(False):
            with self._next:
                self._mine.acquire()

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give()


class _Selector(selectors.DefaultSelector):
    """Waits for sockets without the turn."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    def select(self, timeout: float | None = None) -> "Ready":
        self._turn.give()
        try:
            return super().select(timeout)
        finally:
            self._turn.take()


class SharedLoop(asyncio.SelectorEventLoop):
    """The loop of a serving process. Make, run and close it on one thread."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.turn.take()
        super().__init__(_Selector(self.turn))

    def close(self) -> None:
        """Close it, and let whoever waits for the turn have it for good."""
        if not self.is_closed():
            super().close()
            self.turn.give()
