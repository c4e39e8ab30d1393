"""Signals that stop a process: a first one drains it, a second hurries it, and an alarm cuts it.

Whoever serves waits in `wait` and then drains for as long as it is not hurried. A second SIGTERM or
SIGINT sets `hurried` and an alarm: if the process has not ended by then, or a third signal comes, it
is cut: `before_cut` removes what must not stay behind, and the process leaves without another word.
The exit status is 0, or 128 plus the number of the signal that hurried it, as shells report it.

Handlers are Python's own, not the loop's: they run even while the loop is busy, so a second signal
always works. They replace what was inherited (a shell's `&` lets its children ignore SIGINT), and
put it back at the end.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

EXIT_OK: Final = 0
EXIT_SIGNAL_BASE: Final = 128
"""A hurried process's exit status is this plus the signal's number: 143 or 130."""


class Stopping:
    """Counts signals from `with` to its end. Make and enter it on the loop's thread, which must be the main one."""

    def __init__(
        self,
        logger: Any,
        *,
        state: Callable[[], str],
        cut_after_s: float,
        before_cut: Callable[[], None],
        on_stop: Callable[[], None] = lambda: None,
        drain_s: float = 0.0,
    ) -> None:
        """`state` is named when stopping is logged, and that it drains; `on_stop` is called on the loop when the first
        signal is noted.

        `before_cut` may be called at any moment, in the middle of anything: it must be quick and take no lock.
        """
        self.asked = False
        """True once the process is to stop. Set within the signal handler, for a startup that keeps the loop busy."""
        self.forced: signal.Signals | None = None
        """Signal that hurried the process; None while it may take its time."""
        self.hurried = asyncio.Event()
        """Set on the loop when the process is to end at once."""
        self._noted = asyncio.Event()
        self._logger = logger
        self._state = state
        self._cut_after_s = cut_after_s
        self._before_cut = before_cut
        self._on_stop = on_stop
        self._drain = {"drain_s": drain_s, "again": "a second signal ends it at once"} if drain_s else {}
        self._signals = 0
        self._handlers_before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            self._handlers_before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        # It ended in time: an alarm that rang now, while the interpreter shuts down, would be the end's status.
        signal.setitimer(signal.ITIMER_REAL, 0)

    @property
    def exit_status(self) -> int:
        """0 after a clean end; 128 and the signal's number after one that was cut short."""
        return EXIT_OK if self.forced is None else EXIT_SIGNAL_BASE + self.forced

    async def wait(self) -> None:
        """Return once the process is to stop."""
        await self._noted.wait()

    def stop(self, reason: str) -> None:
        """Stop as after a first signal, unless that has come already. Call it on the loop."""
        if not self._noted.is_set():
            self._note(reason=reason)

    def hurry(self) -> None:
        """Hurry as after a second signal. Call it on the loop."""
        self._insist(signal.SIGTERM)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            self.asked = True
            self._loop.call_soon_threadsafe(lambda: self._note(signal=signal.Signals(number).name))
        else:
            self._insist(signal.Signals(number))

    def _note(self, **why: str) -> None:
        self.asked = True
        # Whoever pressed Ctrl-C sees why nothing else happens for some seconds.
        self._logger.info("stopping", **why, state=self._state(), **self._drain)
        self._noted.set()
        self._on_stop()

    def _insist(self, number: signal.Signals) -> None:
        if self.forced is not None:
            self._cut()
        self.asked = True
        self.forced = number
        self._loop.call_soon_threadsafe(self._hurry)
        # An alarm and not a thread: we may have interrupted anything, even the start of a thread.
        signal.signal(signal.SIGALRM, lambda *_: self._cut())
        signal.setitimer(signal.ITIMER_REAL, self._cut_after_s)

    def _hurry(self) -> None:
        self._noted.set()
        self.hurried.set()

    def _cut(self) -> None:
        """Ending took too long, the loop is stuck, or somebody insists once more: leave without it."""
        self._before_cut()
        os._exit(self.exit_status)
