"""A logger that says at most once a second which rules are in force, however fast they change.

The first change is logged at once, and the last one when a second is over, or the process ends: whoever reads the lines
knows what is in force, and changes at a thousand a minute don't fill the log. Those between are there at debug level.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from headgate.clock import Clock

PACED: Final = "rules_in_force"
"""The event whose lines are paced."""
PAUSE_S: Final = 1.0
"""Least seconds between two of them, as long as the rules are from one source."""


class PacedLogger:
    """Hands events on to `logger`. Has what the parts use of structlog's: levels and `bind`."""

    def __init__(self, logger: Any, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._source: object = None
        """Source of the rules that the last line named."""
        self._free_s = float("-inf")
        """Time from which on a line is written at once."""
        self._left: tuple[str, dict[str, Any]] | None = None
        """Level and fields of the last event, until its line is written."""

    def __getattr__(self, level: str) -> Callable[..., None]:
        """Return the method of a level: `info`, `warning` and so on."""
        return partial(self._emit, level)

    def bind(self, **fields: Any) -> Any:
        return self._logger.bind(**fields)

    def _emit(self, level: str, event: str, **fields: Any) -> None:
        if event == PACED:
            self._pace(level, fields)
        else:
            getattr(self._logger, level)(event, **fields)

    def _pace(self, level: str, fields: dict[str, Any]) -> None:
        now_s, loop = self._clock.monotonic(), _loop()
        if loop is None or now_s >= self._free_s or fields.get("source") != self._source:
            self._write(level, fields)
            return
        if self._left is None:
            loop.call_later(self._free_s - now_s, self.close)
        self._left = level, fields
        self._logger.debug("rules_in_force", **fields)

    def close(self) -> None:
        """Write the line that waits, if one does: its time has come, or the process ends."""
        if self._left is not None:
            self._write(*self._left)

    def _write(self, level: str, fields: dict[str, Any]) -> None:
        self._left = None
        self._source, self._free_s = fields.get("source"), self._clock.monotonic() + PAUSE_S
        getattr(self._logger, level)(PACED, **fields)


def _loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs; None at the start, when changes are few."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
