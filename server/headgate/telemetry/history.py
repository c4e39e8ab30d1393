"""Log events that are history: changes of a node's state, noted in the decision log as well as in its logs.

State changes are logged where they happen, and an explanation needs a few of them later. A `NotedLogger` takes the
place of such a part's logger, hands on every event of every level, and notes those of `NOTED`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

NOTED: Final = frozenset(
    (
        "rules_in_force",
        "rules_refused",
        "rules_unchanged",
        "serving_last_good_rules",
        "breaker_changed",
        "shard_lost_memory",
        "shard_clock_set",
        "active_regions_changed",
        "key_overridden",
        "key_override_removed",
        "key_reset",
        "peer_connected",
        "peer_failed",
    )
)
"""Events that are history; everything else is only logged."""

Note = Callable[[str, dict[str, Any]], None]


class NotedLogger:
    """A logger that remembers. Has what the parts use of structlog's: levels and `bind`."""

    def __init__(self, logger: Any, note: Note, bound: Mapping[str, Any] | None = None) -> None:
        self._logger = logger
        self._note = note
        self._bound = bound or {}

    def debug(self, event: str, **fields: Any) -> None:
        self._emit("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._emit("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._emit("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._emit("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        self._emit("exception", event, fields)

    def bind(self, **fields: Any) -> "NotedLogger":
        return NotedLogger(self._logger.bind(**fields), self._note, {**self._bound, **fields})

    def _emit(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if event in NOTED:
            self._note(event, {**self._bound, **fields})
        getattr(self._logger, level)(event, **fields)
