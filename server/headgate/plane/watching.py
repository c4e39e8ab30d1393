"""The plane's side of one stream, without I/O of its own: a follower says what it has, and is sent what it lacks.

Nothing is queued for a follower: it has a place in the log, and what is behind that place is read when it can be sent.
So a slow follower costs nothing but its place.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from headgate.errors import BadRequest
from headgate.plane.entry import Beat, FromPlane, LogEntry, Position, RulesPart

BEAT_S: Final = 1.0
"""Seconds between beats."""
ENTRIES_READ: Final = 100
"""Entries that are read at a time for a follower that is behind."""
BYTES_READ: Final = 4 * 1024 * 1024


class LogReader(Protocol):
    """The log, as a stream reads it. Calls may block."""

    @property
    def position(self) -> Position:
        """Position of the head."""

    def begin_of(self, has: Position) -> int | None:
        """Index from which a follower can go on with entries; None: it needs all rules."""

    def entries_after(self, index: int, most: int, most_bytes: int) -> list[LogEntry]:
        """Entries behind an index, in order; raises BadRequest if the log begins later."""

    def parts(self) -> Iterator[RulesPart]:
        """All rules of one moment, in parts."""


class Watching:
    """The place of one follower in the log."""

    def __init__(self, log: LogReader, age_ms: Callable[[], int]) -> None:
        """`age_ms` is the time since the log was known to end where the root's does."""
        self._log = log
        self._age_ms = age_ms
        self._asked: Position | None = None
        """Position that the follower said it has, until it was sent something."""
        self._sent = 0
        """Index of the last entry that it was sent, or has."""
        self._beat_due_s = float("-inf")

    def hello(self, has: Position) -> None:
        """Begin, or begin anew, from what the follower has."""
        self._asked = has
        self._beat_due_s = float("-inf")

    def is_due(self, now_s: float) -> bool:
        """Return true if there may be something to send."""
        waits = self._asked is not None and self._can_begin(self._asked)
        return waits or now_s >= self._beat_due_s or (self._asked is None and self._sent < self._log.position.index)

    def outgoing(self, now_s: float) -> Iterator[FromPlane]:
        """Yield what is to be sent now, read as it is wanted."""
        asked = self._asked
        if asked is not None and self._can_begin(asked):
            self._asked = None
            begin = self._log.begin_of(asked)
            if begin is None:
                yield from self._all_rules()
            else:
                self._sent = begin
        if self._asked is None:
            yield from self._entries()
        if now_s >= self._beat_due_s:
            self._beat_due_s = now_s + BEAT_S
            yield Beat(self._log.position, self._age_ms())

    def _can_begin(self, asked: Position) -> bool:
        """Return false while there is nothing for a follower: no rules yet, or it has more than this plane."""
        head = self._log.position
        return head.index > 0 and not head.is_behind(asked)

    def _all_rules(self) -> Iterator[FromPlane]:
        for part in self._log.parts():
            yield part
            self._sent = part.position.index

    def _entries(self) -> Iterator[FromPlane]:
        while self._sent < self._log.position.index:
            try:
                entries = self._log.entries_after(self._sent, ENTRIES_READ, BYTES_READ)
            except BadRequest:
                # It was read so slowly that the log no longer reaches back.
                yield from self._all_rules()
                continue
            if not entries:
                return
            for entry in entries:
                yield entry
                self._sent = entry.position.index
