"""Keeps a long load of rules from slowing down the loop that serves, and reports its progress every few seconds.

A thread that compiles a million rules would hold the interpreter for the full switch
interval (5 ms) each time the serving loop wants it. So it gives way by itself after
half a millisecond of work.
"""

import time
from collections.abc import Callable

from headgate.clock import Clock

SLICE_S = 0.0005
"""Seconds that the loader works before it lets others run: a tenth of the request path's deadline."""

BREAK_S = 0.00005
"""Seconds that it then sleeps: long enough for a waiting thread to take over, short enough not to matter."""

QUIET_S = 3.0
"""Loads that take longer than this tell how far they are."""

_TICKS_PER_LOOK = 8
"""Reading the clock for every rule would cost more than it gives."""

Progress = Callable[[str, int, float], None]
"""Called with the file, the rules read so far, and the share of the file that has been read."""


class LoadCancelledError(Exception):
    """The load was given up, because the process stops."""


class Pace:
    """Told of each rule that is read, it sleeps for a moment when the thread has worked for `SLICE_S`."""

    def __init__(
        self,
        clock: Clock,
        *,
        polite: bool = False,
        progress: Progress | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._polite = polite
        self._progress = progress
        self._stopped = stopped
        self._ticks = 0
        self._file, self._file_size = "", 1
        self._slice_end = clock.monotonic() + SLICE_S
        self._next_word = clock.monotonic() + QUIET_S

    def begin_file(self, path: str, size: int) -> None:
        """The next file is being read: its name, and its size in bytes."""
        self._file, self._file_size = path, max(1, size)

    def tick(self, position: int = 0) -> None:
        """Count one more rule, and give way if it is time; `position` says how far into the file it is."""
        self._ticks += 1
        if self._ticks % _TICKS_PER_LOOK == 0:
            self._check_time(position)

    def breathe(self) -> None:
        """Give way, if it is time: called between larger pieces of work."""
        self._check_time(0)

    def _check_time(self, position: int) -> None:
        now = self._clock.monotonic()
        if self._polite and now >= self._slice_end:
            if self._stopped():
                raise LoadCancelledError
            time.sleep(BREAK_S)
            self._slice_end = self._clock.monotonic() + SLICE_S
        if now >= self._next_word:
            self._next_word = now + QUIET_S
            if self._progress is not None:
                self._progress(self._file, self._ticks, position / self._file_size)
