"""A logger for things that can happen a thousand times a second.

At most `burst` lines per kind of event and interval are written; the first line of a
later interval says how many were kept back. The number of kinds is bounded too: those
beyond the bound share one budget.
"""

from dataclasses import dataclass
from typing import Any

from headgate.clock import Clock

MAX_KINDS = 256
OVERFLOW = "other"


@dataclass(slots=True)
class _Budget:
    until: float = float("-inf")
    left: int = 0
    suppressed: int = 0


class BoundedLogger:
    """Hands events on to `logger`, at most `burst` per kind in `interval_s` seconds."""

    def __init__(self, logger: Any, clock: Clock, *, burst: int = 5, interval_s: float = 10.0) -> None:
        self._logger = logger
        self._clock = clock
        self._burst = burst
        self._interval_s = interval_s
        self._budgets: dict[str, _Budget] = {}

    def info(self, event: str, **fields: Any) -> None:
        self.emit("info", event, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self.emit("warning", event, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self.emit("error", event, event, fields)

    def emit(self, level: str, kind: str, event: str, fields: dict[str, Any]) -> None:
        """Write the event unless the budget of its `kind` is used up. The methods above take the event as the kind."""
        budget = self._budget(kind)
        now = self._clock.monotonic()
        if now >= budget.until:
            budget.until = now + self._interval_s
            budget.left = self._burst
        if budget.left <= 0:
            budget.suppressed += 1
            return
        budget.left -= 1
        if budget.suppressed:
            fields = {**fields, "suppressed": budget.suppressed}
            budget.suppressed = 0
        getattr(self._logger, level)(event, **fields)

    def _budget(self, kind: str) -> _Budget:
        budget = self._budgets.get(kind)
        if budget is None:
            shared = len(self._budgets) >= MAX_KINDS
            budget = self._budgets.setdefault(OVERFLOW if shared else kind, _Budget())
        return budget
