"""The log of a plane in its database: entries, and the rules that they come to.

An entry and what it does to the rules are one transaction, so the rules are always those of some index. The versions
are computed here from what is stored and never taken from a message: an entry that does not lead to the version that it
names is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from headgate.errors import BadRequest, Misconfigured
from headgate.plane import content, rows
from headgate.plane.codec import decode_entry, encode_change, encode_entry
from headgate.plane.database import Database, SqlConnection
from headgate.plane.domain_marks import marks_of, staged_slots
from headgate.plane.entry import MOST_CHANGES, NOWHERE, LogEntry, Position, RecordKind, RuleChange, RulesPart
from headgate.plane.records import Records
from headgate.plane.rows import DomainState
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
    """Effect of some changes: those that change anything, and the domains' sums after them."""

    records: list[tuple[rows.RecordName, RuleChange, bytes | None]]
    """Each change with the name of its record, and what stood there."""
    domains: dict[str, "DomainState"]

    def changes(self) -> list[RuleChange]:
        """Return the changes."""
        return [change for _, change, _ in self.records]

    def undo(self) -> list[RuleChange]:
        """Return the changes that take them back."""
        return [RuleChange(change.domain, change.path, before, change.kind) for _, change, before in self.records]


def _anybody(_: Iterable[str]) -> None:
    """Let an author change every domain."""


class RuleLog:
    """One plane in one database. Calls block: a thread makes them, one at a time, except for `parts`."""

    def __init__(self, database: Database, most_behind: int = MOST_BEHIND, *, keeps_entries: bool = True) -> None:
        """`keeps_entries`: false where nobody follows, and only the rules are needed."""
        self._database = database
        self._most_behind = most_behind
        self._keeps_entries = keeps_entries
        self._domains: dict[str, DomainState] = {}
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

    def versions(self, most: int) -> list[tuple[str, str]]:
        """Return the versions of domains, in the order of their names; at most so many."""
        domains = self._domains
        return [(name, content.domain_version(domains[name].total)) for name in sorted(domains)[:most]]

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

    def take(self, *entries: LogEntry) -> None:
        """Append another's entries, all or none. Raises WrongVersion if one leads elsewhere than it says."""
        with self._writing() as connection:
            for entry in entries:
                self._take(connection, entry)

    def _take(self, connection: SqlConnection, entry: LogEntry) -> None:
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
            if content.set_version(rows.totals(outcome.domains)) != position.version:
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
        if not outcome.records:
            return None
        before, version = self._head, content.set_version(rows.totals(self._domains | outcome.domains))
        position = Position(before.plane, before.index + 1, version)
        entry = LogEntry(
            position,
            before.version,
            tuple(outcome.changes()),
            author.who,
            author.why,
            author.now_ms,
            author.carries_on,
        )
        self._write(connection, entry, outcome, own=True)
        return entry

    def _write(self, connection: SqlConnection, entry: LogEntry, outcome: _Outcome, *, own: bool) -> None:
        if content.set_version(rows.totals(self._domains | outcome.domains)) != entry.position.version:
            raise WrongVersion(f"entry {entry.position.index} leads to another version than it says")
        self._store(connection, outcome)
        if self._keeps_entries:
            undo = pb.LogEntry(changes=map(encode_change, outcome.undo())).SerializeToString()
            values = (entry.position.index, entry.position.version, encode_entry(entry).SerializeToString(), undo)
            connection.execute("INSERT INTO entries (idx, version, entry, undo) VALUES (?, ?, ?, ?)", values)
        self._move(connection, entry.position, own=own)
        self._trim(connection)

    def _outcome(self, connection: SqlConnection, changes: Iterable[RuleChange]) -> _Outcome:
        """Work out what changes come to, without writing. A later change of a rule wins over an earlier one."""
        outcome = _Outcome([], {})
        slots: dict[tuple[str, str], list[RuleChange]] = {}
        last = {rows.name_of(item): item for item in changes}
        standing = rows.standing(connection, last)
        counts: dict[str, int] = {}
        numbers: dict[str, list[int]] = {}
        for name, change in last.items():
            domain, kind, _ = name
            before = standing.get(name)
            if before == change.rule:
                continue
            counts[domain] = counts.get(domain, 0) + (change.rule is not None) - (before is not None)
            numbers.setdefault(domain, []).extend(
                (-content.number(kind, change.path, before), content.number(kind, change.path, change.rule))
            )
            outcome.records.append((name, change, before))
            if (slot := content.slot_text(change)) is not None:
                slots.setdefault((domain, slot), []).append(change)
        for (domain, slot), changed in slots.items():
            numbers[domain] += rows.order_numbers(connection, domain, slot, changed)
        for domain, own in numbers.items():
            was = self._domains.get(domain) or DomainState(0, 0)
            outcome.domains[domain] = DomainState(content.added(was.total, *own), was.rules + counts[domain])
        return outcome

    def _store(self, connection: SqlConnection, outcome: _Outcome) -> None:
        # A rule that is there and gets another content keeps its row, and its indexes stay as they are.
        gone: list[rows.RecordName] = []
        given: list[tuple[bytes, *rows.RecordName]] = []
        new: list[tuple[*rows.RecordName, bytes, str | None]] = []
        for record, change, before in outcome.records:
            if change.rule is None:
                gone.append(record)
            elif before is None:
                new.append((*record, change.rule, content.slot_text(change)))
            else:
                given.append((change.rule, *record))
        rows.write(connection, gone, given, new)
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
        connection.execute(
            "INSERT INTO place (one, plane, idx, version, own) VALUES (1, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE"
            " SET plane = excluded.plane, idx = excluded.idx, version = excluded.version, own = excluded.own",
            (position.plane, position.index, position.version, int(own)),
        )
        self._head = position

    def _trim(self, connection: SqlConnection) -> None:
        self._appended += 1
        if self._appended % TRIMMED_EVERY:
            return
        oldest = self._head.index - (KEPT_ENTRIES if self._keeps_entries else 0)
        connection.execute("DELETE FROM entries WHERE idx <= ?", (oldest,))
        size = 0
        sizes = connection.execute("SELECT idx, LENGTH(entry) + LENGTH(undo) FROM entries ORDER BY idx DESC")
        for index, bytes_ in sizes:
            size += bytes_
            if size > KEPT_BYTES:
                connection.execute("DELETE FROM entries WHERE idx <= ?", (index,))
                return

    # Looking

    def _look(self, connection: SqlConnection) -> None:
        head = rows.place(connection)
        if head != self._head:
            self._domains = rows.domains(connection)
            self._head = head

    def _expect(self, connection: SqlConnection, version: str) -> None:
        if version and version != self._head.version:
            raise Misconfigured(
                f"the head is version {self._head.version} (entry {self._head.index}), and {version} was expected; "
                f"{changed_since(connection, rows.index_of(connection, version, self._head))}"
            )

    def _target(self, connection: SqlConnection, version: str) -> int:
        """Index to go back to. Raises BadRequest where the log does not have it."""
        if not version:
            return before_last_asked(connection)
        target = rows.index_of(connection, version, self._head)
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
            head = rows.place(connection)
            version, _ = rows.version_at(connection, has.index, head)
            index = has.index if version == has.version else rows.index_of(connection, has.version, head)
            if index is None or head.index - index > self._most_behind:
                return None
            _, plane = rows.version_at(connection, index, head)
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
            domains = rows.domains(connection)
            others = [name for name, state in domains.items() if known.get(name) != state]
            return rows.place(connection), domains, list(rows.records(connection, others))

    def rule(self, domain: str, path: tuple[tuple[str, str], ...]) -> bytes | None:
        """Return one rule as it stands; None if there is none."""
        with self._database.reading() as connection:
            return rows.record(connection, domain, RecordKind.RULE, content.path_text(path))

    def order(self, domain: str, slot: content.Slot) -> list[str]:
        """Return the patterns of a slot that are in force, in order. Any thread."""
        with self._database.reading() as connection:
            return content.in_order(rows.places(connection, domain, slot))

    @contextmanager
    def looking(self) -> Iterator[Records]:
        """Begin to look records up, all of them as of one moment. Any thread."""
        with self._database.reading() as connection:
            yield Records(connection)

    def marks(self) -> list[RuleChange]:
        """Return all records that are no rules in force: rollouts with their rules, and shadows."""
        with self._database.reading() as connection:
            return rows.marks(connection)

    def read_marks(self) -> tuple[Position, dict[str, Marks]]:
        """Read the marks of all domains at one moment, and which that was. Raises RulesError."""
        with self._database.reading() as connection:
            by_domain: dict[str, list[RuleChange]] = {}
            for record in rows.marks(connection):
                by_domain.setdefault(record.domain, []).append(record)
            slots = {
                name: {slot: rows.places(connection, name, slot) for slot in staged_slots(records)}
                for name, records in by_domain.items()
            }
            return rows.place(connection), {name: marks_of(records, slots[name]) for name, records in by_domain.items()}

    def parts(self, domains: Sequence[str] | None = None) -> Iterator[RulesPart]:
        """All records of one moment, or those of some domains, in parts; there is always a last one. Any thread."""
        with self._database.reading() as connection:
            position = rows.place(connection)
            number, rules, size = 0, list[RuleChange](), 0
            for change in rows.records(connection, domains):
                if len(rules) == PART_RULES or size > PART_BYTES:
                    yield RulesPart(position, number, tuple(rules), last=False)
                    number, rules, size = number + 1, [], 0
                rules.append(change)
                size += len(change.rule or b"")
            yield RulesPart(position, number, tuple(rules), last=True)
