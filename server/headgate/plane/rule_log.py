"""The log of a plane in its database: entries, and the rules that they come to.

An entry and what it does to the rules are one transaction, so the rules are always those of some index. The versions
are computed here from what is stored and never taken from a message: an entry that does not lead to the version that it
names is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from headgate.errors import BadRequest, Misconfigured
from headgate.plane import content
from headgate.plane.codec import decode_entry, encode_change, encode_entry
from headgate.plane.database import Database, SqlConnection
from headgate.plane.domain_marks import marks_of, staged_slots
from headgate.plane.entry import MOST_CHANGES, NOWHERE, LogEntry, Position, RecordKind, RuleChange, RulesPart
from headgate.plane.records import Records
from headgate.plane.way_back import before_last_asked, changed_since, way_back
from headgate.rules.marks import Marks
from headgate.v1 import rules_pb2 as pb

KEPT_ENTRIES: Final = 100_000
"""Entries that are kept: for followers that come back, for history and for rollbacks."""
KEPT_BYTES: Final = 1024**3
"""Bytes of all entries that are kept."""
TRIMMED_EVERY: Final = 256
"""Entries between two looks at how many there are."""
MOST_BEHIND: Final = 10_000
"""Entries that a follower may be behind and still be sent one by one; one that is further behind gets all rules."""
PART_RULES: Final = 2_000
"""Rules in one part of a snapshot: some hundred kilobytes."""
PART_BYTES: Final = 1024 * 1024
PATHS_READ: Final = 500
"""Paths that one statement asks for."""


RecordName = tuple[str, RecordKind, str]
"""Name of a record in its table: domain, kind, and path as text."""

UNSEEN: Final = Position("", -1, "")
"""Position of a head that was not looked at yet."""


class WrongVersion(BadRequest):
    """An entry or a snapshot that does not lead to the version that it names."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes rules, why, and when."""

    who: str
    why: str
    now_ms: int
    carries_on: int = 0
    """Index of the entry whose rollout the plane carries on; 0: somebody asks for the change."""


@dataclass(slots=True)
class _Outcome:
    """Effect of some changes: those that change anything, how to undo them, and the domains' sums after them."""

    changes: list[RuleChange]
    undo: list[RuleChange]
    domains: dict[str, "_Domain"]


@dataclass(frozen=True, slots=True)
class _Domain:
    total: int
    rules: int


def _anybody(_: Iterable[str]) -> None:
    """Let an author change every domain."""


class RuleLog:
    """One plane in one database. Calls block: a thread makes them, one at a time, except for `parts`."""

    def __init__(self, database: Database, most_behind: int = MOST_BEHIND) -> None:
        self._database = database
        self._most_behind = most_behind
        self._domains: dict[str, _Domain] = {}
        self._head = UNSEEN
        """Position of the head in the transaction that is under way, of which the domains are."""
        self._appended = 0
        self.position = NOWHERE
        """Position of the head, as of the last call: never of what is not committed."""
        self.refresh()

    @property
    def rules(self) -> int:
        """Number of rules, the domains' own fields among them."""
        return sum(domain.rules for domain in self._domains.values())

    @property
    def domains(self) -> Mapping[str, object]:
        """Domains that have rules, by name."""
        return self._domains

    def refresh(self) -> Position:
        """Look where the log ends: another process may have written."""
        with self._database.reading() as connection:
            self._look(connection)
        self.position = self._head
        return self.position

    def name(self, plane: str, *, own: bool = True) -> None:
        """Give the log a name: its own, later than that of the copy which it was; or, of a copy, that of its source."""
        with self._writing() as connection:
            self._move(connection, Position(plane, self._head.index, self._head.version), own=own)

    @property
    def is_copy(self) -> bool:
        """True if the log was written elsewhere, and followed into this database."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT own FROM place").fetchone()
        return row is not None and not row[0]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep all others from writing, from looks that a change relies on to the change; `position` is the head."""
        with self._database.alone():
            self.refresh()
            yield

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # Writing

    def change(self, changes: Sequence[RuleChange], author: Author, expect: str = "") -> LogEntry | None:
        """Append what these changes come to; None if they change nothing. Raises Misconfigured for another head."""
        with self._writing() as connection:
            self._expect(connection, expect)
            return self._append(connection, changes, author)

    def rollback(
        self, version: str, author: Author, expect: str = "", allow: Callable[[Iterable[str]], None] = _anybody
    ) -> list[LogEntry]:
        """Append entries that lead back to a version; empty: to that before the last entry that somebody asked for.

        `allow` raises where the author may not change one of the domains.
        """
        with self._writing() as connection:
            self._expect(connection, expect)
            changes = way_back(connection, self._target(connection, version), self._head)
            allow({change.domain for change in changes})
            made = [
                self._append(connection, changes[start : start + MOST_CHANGES], author)
                for start in range(0, len(changes), MOST_CHANGES)
            ]
            return [entry for entry in made if entry is not None]

    def take(self, entry: LogEntry) -> None:
        """Append another's entry. Raises WrongVersion, and changes nothing, if it leads elsewhere than it says."""
        with self._writing() as connection:
            if not entry.follows(self._head):
                raise WrongVersion(f"entry {entry.position.index} does not follow on {self._head.index}")
            if entry.position.plane != self._head.plane:
                # Indexes of another log: what is here of the former one can't stand beside them.
                connection.execute("DELETE FROM entries")
            self._write(connection, entry, self._outcome(connection, entry.changes), own=False)

    def replace(self, position: Position, rules: Iterable[RuleChange]) -> None:
        """Take another's rules as a whole. Raises WrongVersion, and changes nothing, if they are not what it says."""
        with self._writing() as connection:
            for table in ("rules", "domains", "entries"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            self._domains = {}
            outcome = self._outcome(connection, rules)
            if content.set_version(_totals(outcome.domains)) != position.version:
                raise WrongVersion(f"rules of version {position.version} that have another one")
            self._store(connection, outcome)
            self._move(connection, position, own=False)

    @contextmanager
    def _writing(self) -> Iterator[SqlConnection]:
        """Begin to write at the head; what is known of it is what it was if that fails."""
        known = self._head, self._domains
        try:
            with self._database.writing() as connection:
                self._look(connection)
                yield connection
        except BaseException:
            self._head, self._domains = known
            raise
        # Only now: others read it, and then what is behind it.
        self.position = self._head

    def _append(self, connection: SqlConnection, changes: Sequence[RuleChange], author: Author) -> LogEntry | None:
        outcome = self._outcome(connection, changes)
        if not outcome.changes:
            return None
        before, version = self._head, content.set_version(_totals(self._domains | outcome.domains))
        position = Position(before.plane, before.index + 1, version)
        entry = LogEntry(
            position,
            before.version,
            tuple(outcome.changes),
            author.who,
            author.why,
            author.now_ms,
            author.carries_on,
        )
        self._write(connection, entry, outcome, own=True)
        return entry

    def _write(self, connection: SqlConnection, entry: LogEntry, outcome: _Outcome, *, own: bool) -> None:
        if content.set_version(_totals(self._domains | outcome.domains)) != entry.position.version:
            raise WrongVersion(f"entry {entry.position.index} leads to another version than it says")
        self._store(connection, outcome)
        undo = pb.LogEntry(changes=map(encode_change, outcome.undo)).SerializeToString()
        values = (entry.position.index, entry.position.version, encode_entry(entry).SerializeToString(), undo)
        connection.execute("INSERT INTO entries (idx, version, entry, undo) VALUES (?, ?, ?, ?)", values)
        self._move(connection, entry.position, own=own)
        self._trim(connection)

    def _outcome(self, connection: SqlConnection, changes: Iterable[RuleChange]) -> _Outcome:
        """Work out what changes come to, without writing. A later change of a rule wins over an earlier one."""
        outcome = _Outcome([], [], {})
        slots: dict[tuple[str, str], list[RuleChange]] = {}
        last = {_name(item): item for item in changes}
        standing = _standing(connection, last)
        for (domain, kind, path), change in last.items():
            before = standing.get((domain, kind, path))
            if before == change.rule:
                continue
            numbers = -content.number(kind, change.path, before), content.number(kind, change.path, change.rule)
            self._add(outcome, domain, (change.rule is not None) - (before is not None), *numbers)
            outcome.changes.append(change)
            outcome.undo.append(RuleChange(domain, change.path, before, kind))
            if (slot := content.slot_text(change)) is not None:
                slots.setdefault((domain, slot), []).append(change)
        for (domain, slot), changed in slots.items():
            self._add(outcome, domain, 0, *_order(connection, domain, slot, changed))
        return outcome

    def _add(self, outcome: _Outcome, domain: str, rules: int, *numbers: int) -> None:
        was = outcome.domains.get(domain) or self._domains.get(domain) or _Domain(0, 0)
        outcome.domains[domain] = _Domain(content.added(was.total, *numbers), was.rules + rules)

    def _store(self, connection: SqlConnection, outcome: _Outcome) -> None:
        connection.executemany(
            "DELETE FROM rules WHERE domain = ? AND kind = ? AND path = ?",
            [_name(undo) for undo in outcome.undo if undo.rule is not None],
        )
        connection.executemany(
            "INSERT INTO rules (domain, kind, path, rule, slot) VALUES (?, ?, ?, ?, ?)",
            [
                (*_name(change), change.rule, content.slot_text(change))
                for change in outcome.changes
                if change.rule is not None
            ],
        )
        for name, domain in outcome.domains.items():
            if domain.rules:
                connection.execute(
                    "INSERT INTO domains (domain, total, rules) VALUES (?, ?, ?)"
                    " ON CONFLICT (domain) DO UPDATE SET total = excluded.total, rules = excluded.rules",
                    (name, content.pack(domain.total), domain.rules),
                )
            else:
                connection.execute("DELETE FROM domains WHERE domain = ?", (name,))
        self._domains = {name: item for name, item in (self._domains | outcome.domains).items() if item.rules}

    def _move(self, connection: SqlConnection, position: Position, *, own: bool) -> None:
        connection.execute("DELETE FROM place")
        connection.execute(
            "INSERT INTO place (one, plane, idx, version, own) VALUES (1, ?, ?, ?, ?)",
            (position.plane, position.index, position.version, int(own)),
        )
        self._head = position

    def _trim(self, connection: SqlConnection) -> None:
        self._appended += 1
        if self._appended % TRIMMED_EVERY:
            return
        oldest = self._head.index - KEPT_ENTRIES
        connection.execute("DELETE FROM entries WHERE idx <= ?", (oldest,))
        size = 0
        rows = connection.execute("SELECT idx, LENGTH(entry) + LENGTH(undo) FROM entries ORDER BY idx DESC")
        for index, bytes_ in rows:
            size += bytes_
            if size > KEPT_BYTES:
                connection.execute("DELETE FROM entries WHERE idx <= ?", (index,))
                return

    # Looking

    def _look(self, connection: SqlConnection) -> None:
        head = _place(connection)
        if head != self._head:
            self._domains = _read_domains(connection)
            self._head = head

    def _expect(self, connection: SqlConnection, version: str) -> None:
        if version and version != self._head.version:
            raise Misconfigured(
                f"the head is version {self._head.version} (entry {self._head.index}), and {version} was expected; "
                f"{changed_since(connection, _index_of(connection, version, self._head))}"
            )

    def _target(self, connection: SqlConnection, version: str) -> int:
        """Index to go back to. Raises BadRequest where the log does not have it."""
        if not version:
            return before_last_asked(connection)
        target = _index_of(connection, version, self._head)
        if target is None:
            raise BadRequest(f"the log has no version {version!r}: `headgate rules history` shows those that it has")
        return target

    # Reading

    def begin_of(self, has: Position) -> int | None:
        """Index of this log from which a follower can go on with entries; None: it needs a snapshot.

        It goes on from its index, if its version is the one there. One of an earlier log goes on from where its version
        last was, if what comes next is of a later log: an entry of its own log has to be the next one by index.
        """
        with self._database.reading() as connection:
            # Its own look: what the thread that writes knows of the head is not a reader's to change.
            head = _place(connection)
            version, _ = _at(connection, has.index, head)
            index = has.index if version == has.version else _index_of(connection, has.version, head)
            if index is None or head.index - index > self._most_behind:
                return None
            _, plane = _at(connection, index, head)
            return index if index == has.index or plane > has.plane else None

    def entries_after(self, index: int, most: int, most_bytes: int) -> list[LogEntry]:
        """Entries behind an index in order, at least one if there is one; BadRequest if the log begins later."""
        found: list[LogEntry] = []
        size = 0
        with self._database.reading() as connection:
            query = "SELECT entry FROM entries WHERE idx > ? ORDER BY idx LIMIT ?"
            for (data,) in connection.execute(query, (index, most)):
                size += len(data)
                if found and size > most_bytes:
                    break
                found.append(decode_entry(pb.LogEntry.FromString(bytes(data))))
        if index < self.position.index and (not found or found[0].position.index != index + 1):
            raise BadRequest(f"the log begins behind entry {index}")
        return found

    def history(self, before: int, most: int, domain: str = "") -> tuple[list[LogEntry], int]:
        """Entries before an index (0: from the head), the latest first; and the first index that is kept."""
        found: list[LogEntry] = []
        with self._database.reading() as connection:
            first = connection.execute("SELECT MIN(idx) FROM entries").fetchone()[0]
            query = "SELECT entry FROM entries WHERE idx < ? ORDER BY idx DESC"
            for (data,) in connection.execute(query, (before or self.position.index + 1,)):
                entry = decode_entry(pb.LogEntry.FromString(bytes(data)))
                if not domain or domain in entry.domains:
                    found.append(entry)
                if len(found) == most:
                    break
        return found, first or 0

    def domains_since(self, known: Mapping[str, object]) -> tuple[Position, Mapping[str, object], list[RuleChange]]:
        """All domains of one moment, each with what its content is known by; and all records of those that are not as
        `known`. Any thread."""
        with self._database.reading() as connection:
            domains = _read_domains(connection)
            others = [name for name, state in domains.items() if known.get(name) != state]
            return _place(connection), domains, list(_read(connection, others))

    def rule(self, domain: str, path: tuple[tuple[str, str], ...]) -> bytes | None:
        """Return one rule as it stands; None if there is none."""
        with self._database.reading() as connection:
            return _record(connection, domain, RecordKind.RULE, content.path_text(path))

    @contextmanager
    def looking(self) -> Iterator[Records]:
        """Begin to look records up, all of them as of one moment. Any thread."""
        with self._database.reading() as connection:
            yield Records(connection)

    def marks(self) -> list[RuleChange]:
        """Return all records that are no rules in force: rollouts with their rules, and shadows."""
        with self._database.reading() as connection:
            return _marks(connection)

    def read_marks(self) -> tuple[Position, dict[str, Marks]]:
        """Read the marks of all domains at one moment, and which that was. Raises RulesError."""
        with self._database.reading() as connection:
            by_domain: dict[str, list[RuleChange]] = {}
            for record in _marks(connection):
                by_domain.setdefault(record.domain, []).append(record)
            slots = {
                name: {slot: _places(connection, name, slot) for slot in staged_slots(records)}
                for name, records in by_domain.items()
            }
            return _place(connection), {name: marks_of(records, slots[name]) for name, records in by_domain.items()}

    def parts(self, domains: Sequence[str] | None = None) -> Iterator[RulesPart]:
        """All records of one moment, or those of some domains, in parts; there is always a last one. Any thread."""
        with self._database.reading() as connection:
            position = _place(connection)
            number, rules, size = 0, list[RuleChange](), 0
            for change in _read(connection, domains):
                if len(rules) == PART_RULES or size > PART_BYTES:
                    yield RulesPart(position, number, tuple(rules), last=False)
                    number, rules, size = number + 1, [], 0
                rules.append(change)
                size += len(change.rule or b"")
            yield RulesPart(position, number, tuple(rules), last=True)


def _name(change: RuleChange) -> RecordName:
    """Name of a record in its table."""
    return change.domain, change.kind, content.path_text(change.path)


def _record(connection: SqlConnection, domain: str, kind: RecordKind, path: str) -> bytes | None:
    query = "SELECT rule FROM rules WHERE domain = ? AND kind = ? AND path = ?"
    row = connection.execute(query, (domain, int(kind), path)).fetchone()
    return None if row is None else bytes(row[0])


def _change_of(domain: str, kind: int, path: str, rule: bytes) -> RuleChange:
    return RuleChange(domain, content.path_of(path), bytes(rule), RecordKind(kind))


def _marks(connection: SqlConnection) -> list[RuleChange]:
    query = "SELECT domain, kind, path, rule FROM rules WHERE kind > 0 ORDER BY domain, kind, path"
    return [_change_of(*row) for row in connection.execute(query)]


def _places(connection: SqlConnection, domain: str, slot: content.Slot) -> dict[str, int]:
    """Places of the patterns of a slot that are in force."""
    text = content.path_text((*slot[0], (slot[1], "")))
    rows = connection.execute("SELECT path, rule FROM rules WHERE domain = ? AND slot = ?", (domain, text))
    return {content.path_of(path)[-1][1]: content.place_of(bytes(rule)) for path, rule in rows}


def _standing(connection: SqlConnection, names: Iterable[RecordName]) -> dict[RecordName, bytes]:
    """Read the records that have some names, many at a time: the database may be a network away."""
    found: dict[RecordName, bytes] = {}
    for (domain, kind), group in groupby(sorted(names), key=itemgetter(0, 1)):
        paths = [path for *_, path in group]
        for start in range(0, len(paths), PATHS_READ):
            some = paths[start : start + PATHS_READ]
            marks = ", ".join("?" * len(some))
            query = f"SELECT path, rule FROM rules WHERE domain = ? AND kind = ? AND path IN ({marks})"  # noqa: S608
            rows = connection.execute(query, (domain, int(kind), *some))
            found.update(((domain, kind, path), bytes(rule)) for path, rule in rows)
    return found


def _order(connection: SqlConnection, domain: str, slot: str, changes: Sequence[RuleChange]) -> tuple[int, int]:
    """Numbers of the order in a slot, before some changes of its patterns (to be taken away) and after them."""
    rows = connection.execute("SELECT path, rule FROM rules WHERE domain = ? AND slot = ?", (domain, slot))
    before = {content.path_of(path)[-1][1]: bytes(rule) for path, rule in rows}
    after = before | {change.path[-1][1]: change.rule for change in changes if change.rule is not None}
    for change in changes:
        if change.rule is None:
            after.pop(change.path[-1][1], None)
    *above, (key, _) = content.path_of(slot)
    numbered = [content.order_number((tuple(above), key), rules) for rules in (before, after)]
    return -numbered[0], numbered[1]


def _read_domains(connection: SqlConnection) -> dict[str, _Domain]:
    rows = connection.execute("SELECT domain, total, rules FROM domains")
    return {name: _Domain(content.unpack(bytes(total)), rules) for name, total, rules in rows}


def _place(connection: SqlConnection) -> Position:
    row = connection.execute("SELECT plane, idx, version FROM place").fetchone()
    return Position("", 0, content.EMPTY_VERSION) if row is None else Position(*row)


def _at(connection: SqlConnection, index: int, head: Position) -> tuple[str | None, str]:
    """Version at an index, None if it is not known; and the log that the next entry is of."""
    if index == head.index:
        return head.version, head.plane
    row = connection.execute("SELECT entry FROM entries WHERE idx = ?", (index + 1,)).fetchone()
    if row is None:
        return None, ""
    entry = decode_entry(pb.LogEntry.FromString(bytes(row[0])))
    return entry.predecessor, entry.position.plane


def _index_of(connection: SqlConnection, version: str, head: Position) -> int | None:
    """Find where a version last was; None if the log does not have it."""
    if version == head.version:
        return head.index
    query = "SELECT idx FROM entries WHERE version = ? ORDER BY idx DESC LIMIT 1"
    row = connection.execute(query, (version,)).fetchone()
    if row is not None:
        return int(row[0])
    first = connection.execute("SELECT entry FROM entries ORDER BY idx LIMIT 1").fetchone()
    entry = None if first is None else decode_entry(pb.LogEntry.FromString(bytes(first[0])))
    return None if entry is None or entry.predecessor != version else entry.position.index - 1


def _read(connection: SqlConnection, domains: Sequence[str] | None) -> Iterator[RuleChange]:
    query = "SELECT domain, kind, path, rule FROM rules"
    rows = (
        connection.execute(query)
        if domains is None
        else (row for name in domains for row in connection.execute(f"{query} WHERE domain = ?", (name,)))
    )
    yield from (_change_of(*row) for row in rows)


def _totals(domains: Mapping[str, _Domain]) -> dict[str, int]:
    return {name: domain.total for name, domain in domains.items() if domain.rules}
