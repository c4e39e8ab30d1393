"""Log events that are history: changes of a node's state, noted in the decision log as well as in its logs.

State changes are logged where they happen, and an explanation needs a few of them later. A `NotedLogger` takes the
place of such a part's logger, hands on every event of every level, and notes those of `NOTED`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

NOTED: Final = frozenset(
    (
        "rules_in_force",
        "rules_refused",
        "rules_not_delivered",
        "rules_unchanged",
        "serving_last_good_rules",
        "breaker_changed",
        "shard_lost_memory",
        "shard_clock_set",
        "active_regions_changed",
        "key_overridden",
        "key_override_removed",
        "key_reset",
        "caller_blocked",
        "caller_unblocked",
        "block_in_force",
        "block_ended",
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

    def __getattr__(self, level: str) -> Callable[..., None]:
        """Return the method of a level: `info`, `warning` and so on."""
        return partial(self._emit, level)

    def bind(self, **fields: Any) -> "NotedLogger":
        return NotedLogger(self._logger.bind(**fields), self._note, {**self._bound, **fields})

    def _emit(self, level: str, event: str, **fields: Any) -> None:
        if event in NOTED:
            self._note(event, {**self._bound, **fields})
        getattr(self._logger, level)(event, **fields)
