"""The way back to an earlier version: rules in force as they were, and no rollout of what was changed since.

Shadows stay: they end by themselves, and whoever stopped rules from denying did not mean a version.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from headgate.errors import BadRequest
from headgate.plane.codec import decode_change, decode_entry
from headgate.plane.database import SqlConnection
from headgate.plane.entry import LogEntry, Position, RecordKind, RuleChange
from headgate.plane.marks import without
from headgate.plane.records import MOST_MARKS, Records
from headgate.v1 import rules_pb2 as pb

MOST_TOLD: Final = 5
"""Entries that are named to who expected another head, and domains of each."""


def before_last_asked(connection: SqlConnection) -> int:
    """Index before the last entry that somebody asked for, and that changes rules or stages them. Raises BadRequest."""
    for entry in _latest(connection):
        if not entry.carries_on and any(change.kind is not RecordKind.SHADOW for change in entry.changes):
            return entry.position.index - 1
    raise BadRequest("the log has no entry that could be undone")


def _latest(connection: SqlConnection) -> Iterator[LogEntry]:
    for (data,) in connection.execute("SELECT entry FROM entries ORDER BY idx DESC"):
        yield decode_entry(pb.LogEntry.FromString(bytes(data)))


def changed_since(connection: SqlConnection, index: int | None) -> str:
    """Say who changed what behind an index, the latest entries first; None: of a version that the log does not have."""
    if index is None:
        return "the log does not have that version"
    entries = [entry for entry in islice(_latest(connection), MOST_TOLD) if entry.position.index > index]
    told = "; ".join(map(_told, entries))
    more = entries[-1].position.index - index - 1 if entries else 0
    return f"since then: {told}" + (f"; and {more} more" if more else "")


def _told(entry: LogEntry) -> str:
    domains = ", ".join(entry.domains[:MOST_TOLD])
    return f"entry {entry.position.index} by {entry.who}, of {domains}" + (f" ({entry.why})" if entry.why else "")


def way_back(connection: SqlConnection, target: int, head: Position) -> list[RuleChange]:
    """Changes that lead from the head back to an index. Raises BadRequest where the log does not reach back."""
    back: dict[tuple[str, object], RuleChange] = {}
    found, domains = 0, set[str]()
    for (undo,) in connection.execute("SELECT undo FROM entries WHERE idx > ? ORDER BY idx DESC", (target,)):
        found += 1
        for message in pb.LogEntry.FromString(bytes(undo)).changes:
            change = decode_change(message)
            if change.kind is RecordKind.RULE:
                back[change.domain, change.path] = change
            if change.kind is not RecordKind.SHADOW:
                domains.add(change.domain)
    if found != head.index - target:
        raise BadRequest("the log does not reach back so far: publish the rules of that version instead")
    return [*_staged(Records(connection), sorted(domains)), *back.values()]


def _staged(records: Records, domains: list[str]) -> Iterator[RuleChange]:
    for domain in domains:
        yield from map(without, records.of_kind(domain, RecordKind.STAGED, MOST_MARKS))
