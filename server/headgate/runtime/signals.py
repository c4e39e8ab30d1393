"""SIGTERM and SIGINT: the first asks to stop, the second insists.

Handlers are Python's own, not the loop's: they run even while the loop is busy, so a
second signal always works. What was installed before is put back at the end.
"""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles both signals inside a `with` block. The callbacks run at any moment of the program, so they must be
    quick.
    """

    def __init__(self, on_first: Callable[[signal.Signals], None], on_again: Callable[[signal.Signals], None]) -> None:
        self._on_first = on_first
        self._on_again = on_again
        self._count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        callback = self._on_first if self._count == 1 else self._on_again
        callback(signal.Signals(number))
