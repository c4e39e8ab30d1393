"""A node's copy of the log: rules in a database of its own, and entries that came since and are not written yet.

An entry is noted where it is heard, and written by the thread that brings it into force, just before that does: one
thread is woken for a change and not two, and what came together is one transaction.

- `position` is that of the last entry that was noted. What is written is never behind what is in force.
- A noted entry is known to be the next one; that it leads to the version that it names is seen when it is written. If
  it does not, it is dropped with all that came behind it, and the position is again that of what is written.
"""

import threading
from collections.abc import Sequence
from typing import Final

from headgate.plane.entry import LogEntry, Position, RuleChange
from headgate.plane.rule_log import RuleLog

MOST_NOTED: Final = 1_000
"""Entries that are noted; with more, the rules are handed over as a whole."""


class NodeCopy:
    """Implements `Copy`. One thread notes; another one may write meanwhile."""

    def __init__(self, log: RuleLog) -> None:
        self._log = log
        self._noted: list[LogEntry] = []
        self._whole = False
        """True if something was written that `write` did not return."""
        self._writing = threading.Lock()

    @property
    def position(self) -> Position:
        """Position of the last entry that was noted, or else of what is written."""
        noted = self._noted[-1:]
        return noted[0].position if noted else self._log.position

    @property
    def is_full(self) -> bool:
        """True if no more can be noted."""
        return len(self._noted) >= MOST_NOTED

    def take(self, entry: LogEntry) -> None:
        """Note an entry."""
        self._noted.append(entry)

    def replace(self, position: Position, rules: Sequence[RuleChange]) -> None:
        """Write all rules. Raises WrongVersion, and changes nothing, if they have another version."""
        with self._writing:
            self._log.replace(position, rules)
            self._noted.clear()
            self._whole = True

    def write(self) -> tuple[Position, list[LogEntry] | None]:
        """Write what was noted, and return where that led, and the entries since the last call; None where it was not
        by entries alone. Raises WrongVersion."""
        with self._writing:
            entries = self._write_noted()
            whole, self._whole = self._whole, False
            return self._log.position, None if whole else entries

    def make_room(self) -> None:
        """Write what was noted because it is too much. Raises WrongVersion."""
        with self._writing:
            self._write_noted()
            self._whole = True

    def _write_noted(self) -> list[LogEntry]:
        entries = list(self._noted)
        try:
            if entries:
                self._log.take(*entries)
        except BaseException:
            self._noted.clear()
            raise
        # Only now: the position never moves back.
        del self._noted[: len(entries)]
        return entries
