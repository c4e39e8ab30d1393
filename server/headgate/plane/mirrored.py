"""The database of a root that writes one log with others: written where all of them write, read from a copy here.

Followers are served from the copy, so a store that is away takes nothing from them, and many followers are no load for
it. The copy is taken entry by entry, each checked by its version, as a relay's is.

- What is written is in the copy before it is said to be written.
- A copy that has entries which the store lacks gives them back: a standby that took over may have missed the last ones.
- While the store can't be used nothing is written, at once and with the reason, until `catch_up` has reached it again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from headgate.clock import Clock
from headgate.errors import BadRequest, Misconfigured
from headgate.plane.database import Database, SqlConnection, StoreUnavailable
from headgate.plane.entry import Position, RuleChange
from headgate.plane.rule_log import RuleLog

ENTRIES_READ: Final = 100
"""Entries that are read at a time."""
BYTES_READ: Final = 4 * 1024 * 1024


class SharedDatabase(Database, Protocol):
    """A database that several processes write."""

    def beside(self) -> AbstractContextManager[SqlConnection]:
        """Begin a transaction that touches nothing of the log, and waits for nobody who writes it."""

    def listen(self, timeout_s: float) -> None:
        """Wait until something was written, or for that time. Another thread than those that write and read."""


class Mirrored:
    """A store and this root's copy of it; implements `Database`. One thread writes and catches up."""

    def __init__(
        self, store: SharedDatabase, copy: Database, clock: Clock, new_name: Callable[[], str], *, promote: bool
    ) -> None:
        """`promote` puts the copy's rules into a store that is empty."""
        self.store = store
        self._copies = copy
        self._copy = RuleLog(copy)
        self._clock = clock
        self._new_name = new_name
        self._promote = promote
        self._stored: RuleLog | None = None
        """The log in the store, from when that was first reached."""
        self.reason = ""
        """Reason why the store can't be used; empty while it can."""
        self.fresh_s: float | None = None
        """Time at which the copy was last known to have the end of the log."""

    # Implementing `Database`

    @contextmanager
    def writing(self) -> Iterator[SqlConnection]:
        with self.store.writing() as connection:
            yield connection
        try:
            self.catch_up()
        except Exception as error:
            raise StoreUnavailable(f"it was written, and could not be read back at once: {error}") from error

    def reading(self) -> AbstractContextManager[SqlConnection]:
        return self._copies.reading()

    @contextmanager
    def alone(self) -> Iterator[None]:
        if self.reason:
            raise StoreUnavailable(self.reason)
        self._open()
        with self.store.alone():
            self.catch_up()
            yield

    def close(self) -> None:
        self.store.close()
        self._copies.close()

    # The copy

    def catch_up(self) -> None:
        """Bring the copy to the end of the log. Raises what keeps it from that."""
        try:
            self._follow(self._open())
        except Exception as error:
            self.reason = str(error) or type(error).__name__
            raise
        self.reason, self.fresh_s = "", self._clock.monotonic()

    def _follow(self, stored: RuleLog) -> None:
        head = stored.refresh()
        if head == self._copy.position:
            return
        if head.is_behind(self._copy.position):
            self._give_back(stored, head)
            head = stored.position
        if stored.begin_of(self._copy.position) is None:
            self._take_all(stored)
        while self._copy.position.index < head.index:
            for entry in stored.entries_after(self._copy.position.index, ENTRIES_READ, BYTES_READ):
                self._copy.take(entry)
        if self._copy.position.plane != head.plane:
            self._copy.name(head.plane, own=False)

    def _take_all(self, stored: RuleLog) -> None:
        if self._copy.position.index and not self._copy.is_copy:
            raise Misconfigured(
                "data_dir holds the log of a root of its own, and the plane's store another: give each its own data_dir"
            )
        position, rules = _everything(stored)
        self._copy.replace(position, rules)

    def _give_back(self, stored: RuleLog, head: Position) -> None:
        has = self._copy.position
        try:
            while stored.position.index < has.index:
                for entry in self._copy.entries_after(stored.position.index, ENTRIES_READ, BYTES_READ):
                    stored.take(entry)
        except BadRequest:
            raise Misconfigured(
                f"the plane's store ends at entry {head.index} of log {head.plane}, and data_dir has entry {has.index} "
                f"of log {has.plane}, which does not follow on it: the store was set back"
            ) from None

    # The store

    def _open(self) -> RuleLog:
        if self._stored is None:
            stored = RuleLog(self.store)
            if not stored.position.plane:
                self._begin(stored)
            self._stored = stored
        return self._stored

    def _begin(self, stored: RuleLog) -> None:
        """Name the log of a store that is new; the first root does."""
        with self.store.alone():
            if stored.refresh().plane:
                return
            if not self._copy.position.index:
                stored.name(self._new_name())
            elif self._promote:
                position, rules = _everything(self._copy)
                stored.replace(Position(self._new_name(), position.index, position.version), rules)
            else:
                raise Misconfigured(
                    f"the plane's store is empty, and data_dir has entry {self._copy.position.index}: say --promote to "
                    "go on from there in the store"
                )


def _everything(log: RuleLog) -> tuple[Position, Iterator[RuleChange]]:
    """All rules of a log, and where they stand in it."""
    parts = log.parts()
    first = next(parts)

    def rules() -> Iterator[RuleChange]:
        yield from first.rules
        for part in parts:
            yield from part.rules

    return first.position, rules()
