"""Rows of a plane's tables, each read within a transaction of the caller's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from headgate.plane import content
from headgate.plane.codec import decode_entry
from headgate.plane.database import SqlConnection
from headgate.plane.entry import Position, RecordKind, RuleChange
from headgate.v1 import rules_pb2 as pb

PATHS_READ: Final = 500
"""Paths that one statement asks for."""

RecordName = tuple[str, RecordKind, str]
"""Name of a record in its table: domain, kind, and path as text."""


@dataclass(frozen=True, slots=True)
class DomainState:
    """A domain as a log has it: equal where its content is."""

    total: int
    """The sum that its version is made from."""
    rules: int


def name_of(change: RuleChange) -> RecordName:
    """Name of a record in its table."""
    return change.domain, change.kind, content.path_text(change.path)


def record(connection: SqlConnection, domain: str, kind: RecordKind, path: str) -> bytes | None:
    """Return the content of one record; None if there is none."""
    query = "SELECT rule FROM rules WHERE domain = ? AND kind = ? AND path = ?"
    row = connection.execute(query, (domain, int(kind), path)).fetchone()
    return None if row is None else bytes(row[0])


def write(
    connection: SqlConnection,
    gone: Sequence[RecordName],
    given: Sequence[tuple[bytes, *RecordName]],
    new: Sequence[tuple[*RecordName, bytes, str | None]],
) -> None:
    """Take records away, give others that are there another content, and write new ones with their slots."""
    named = "WHERE domain = ? AND kind = ? AND path = ?"
    for statement, values in (
        (f"DELETE FROM rules {named}", gone),  # noqa: S608 - words of ours
        (f"UPDATE rules SET rule = ? {named}", given),  # noqa: S608
        ("INSERT INTO rules (domain, kind, path, rule, slot) VALUES (?, ?, ?, ?, ?)", new),
    ):
        if values:
            connection.executemany(statement, values)


def change_of(domain: str, kind: int, path: str, rule: bytes) -> RuleChange:
    """Make the change that puts a row."""
    return RuleChange(domain, content.path_of(path), bytes(rule), RecordKind(kind))


def marks(connection: SqlConnection) -> list[RuleChange]:
    """Return all records that are no rules in force, in order."""
    query = "SELECT domain, kind, path, rule FROM rules WHERE kind > 0 ORDER BY domain, kind, path"
    return [change_of(*row) for row in connection.execute(query)]


def places(connection: SqlConnection, domain: str, slot: content.Slot) -> dict[str, int]:
    """Places of the patterns of a slot that are in force."""
    text = content.path_text((*slot[0], (slot[1], "")))
    rows = connection.execute("SELECT path, rule FROM rules WHERE domain = ? AND slot = ?", (domain, text))
    return {content.path_of(path)[-1][1]: content.place_of(bytes(rule)) for path, rule in rows}


def standing(connection: SqlConnection, names: Iterable[RecordName]) -> dict[RecordName, bytes]:
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


def order_numbers(connection: SqlConnection, domain: str, slot: str, changes: Sequence[RuleChange]) -> tuple[int, int]:
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


def domains(connection: SqlConnection) -> dict[str, DomainState]:
    """Return the domains that have rules, by name."""
    rows = connection.execute("SELECT domain, total, rules FROM domains")
    return {name: DomainState(content.unpack(bytes(total)), rules) for name, total, rules in rows}


def place(connection: SqlConnection) -> Position:
    """Return the position of the log's end."""
    row = connection.execute("SELECT plane, idx, version FROM place").fetchone()
    return Position("", 0, content.EMPTY_VERSION) if row is None else Position(*row)


def version_at(connection: SqlConnection, index: int, head: Position) -> tuple[str | None, str]:
    """Version at an index, None if it is not known; and the log that the next entry is of."""
    if index == head.index:
        return head.version, head.plane
    row = connection.execute("SELECT entry FROM entries WHERE idx = ?", (index + 1,)).fetchone()
    if row is None:
        return None, ""
    entry = decode_entry(pb.LogEntry.FromString(bytes(row[0])))
    return entry.predecessor, entry.position.plane


def index_of(connection: SqlConnection, version: str, head: Position) -> int | None:
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


def records(connection: SqlConnection, domains: Sequence[str] | None) -> Iterator[RuleChange]:
    """Yield the records of some domains, or all (None)."""
    query = "SELECT domain, kind, path, rule FROM rules"
    rows = (
        connection.execute(query)
        if domains is None
        else (row for name in domains for row in connection.execute(f"{query} WHERE domain = ?", (name,)))
    )
    yield from (change_of(*row) for row in rows)


def totals(domains: Mapping[str, DomainState]) -> dict[str, int]:
    """Return the sums that the version of a set is made from, by domain."""
    return {name: domain.total for name, domain in domains.items() if domain.rules}
