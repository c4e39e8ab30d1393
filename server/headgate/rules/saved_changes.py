"""Changes of a domain since it was written as a whole: one line each time, appended.

    <digest of the rest> [version before, version after, [changes]]\\n

A file has the changes from one version on, and its name says which. Where it ends another may go on: one is begun
whenever the domain is written as a whole again, from the version that is written. A line counts only where its version
before is the one that is there, and it leads to its version after. So lines that another process wrote too, that were
cut off, or that are older than the domain's file do no harm.
"""

import json
import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headgate.rules.changes import Change, Delete, DomainMarks, DomainSettings, Put, Reorder, changed
from headgate.rules.content import form_of
from headgate.rules.marks import SlotOrder
from headgate.rules.one_rule import read_text
from headgate.rules.private_files import open_private, read_ours
from headgate.rules.problems import RulesError
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import Domain, rule_set
from headgate.rules.saved_marks import marks_json, marks_of, steps_of

SUFFIX = ".changes"

_DIGEST_BYTES = 8
"""Enough to tell a line that was cut off; who changes one on purpose is kept out by the file's mode."""

_VERSION_DIGITS = 32
"""Digits of a version in the name of a file: no two versions of a domain share them."""


def changes_file(place: Path, version: str) -> Path:
    """Place of the changes from a version on, of the domain whose file is at `place`."""
    return place.with_suffix(f".{version[:_VERSION_DIGITS]}{SUFFIX}")


def append_changes(path: Path, before: str, after: str, changes: Sequence[Change], most_bytes: int) -> bool:
    """Append one line; false, and nothing done, where that makes a file too large that has some. Raises OSError.

    It is not synced, which would cost more than all else about a change: who has rules by changes is told again what a
    power cut took, and a process that is killed takes nothing.
    """
    body = json.dumps([before, after, [change_json(change) for change in changes]], separators=(",", ":")).encode()
    # Behind a line that was cut off, too, it begins a line of its own.
    line = b"\n" + _digest(body) + b" " + body + b"\n"
    with open(path, "ab", opener=open_private) as file:
        if file.tell() and file.tell() + len(line) > most_bytes:
            return False
        # One call, at the end of the file, so that lines of several processes don't run together.
        os.write(file.fileno(), line)
    return True


def with_saved_changes(domain: Domain, place: Path) -> tuple[Domain, tuple[str, ...]]:
    """Make the changes that were saved after a domain; return it, and the version from which each file of them goes on.

    Raises `SnapshotError` where a file is not ours.
    """
    versions = [domain.version]
    while True:
        domain = _with_file(domain, changes_file(place, versions[-1]))
        if domain.version in versions or not changes_file(place, domain.version).exists():
            return domain, tuple(versions)
        versions.append(domain.version)


def _with_file(domain: Domain, path: Path) -> Domain:
    try:
        lines = read_ours(path).split(b"\n")
    except OSError:
        return domain
    for line in lines:
        digest, _, body = line.partition(b" ")
        if body and digest == _digest(body):
            domain = _changed(domain, *json.loads(body))
    return domain


def _changed(domain: Domain, before: str, after: str, changes: list[Any]) -> Domain:
    if domain.version != before:
        return domain
    try:
        rules = changed(rule_set({domain.name: domain}), [change_of(domain.name, item) for item in changes])
    except RulesError:
        return domain
    new = rules.domain(domain.name)
    return new if new is not None and new.version == after else domain


def change_json(change: Change) -> list[Any]:
    """A change as plain values, without its domain: [path, text], [path], [{settings}], [{"marks": …}], or
    [{"order": …}]."""
    if isinstance(change, Put):
        # As text, which is at hand, and read once for all rules that say the same.
        return [change.path, form_of(change.rule).decode()]
    if isinstance(change, Delete):
        return [change.path]
    if isinstance(change, Reorder):
        return [{"order": [change.order.above, change.order.key, change.order.patterns]}]
    if isinstance(change, DomainMarks):
        return [{"marks": marks_json(change.marks)}]
    return [{"shard_by": change.shard_by, "request_limits": change.request_limits}]


def change_of(domain: str, item: list[Any]) -> Change:
    """The change that plain values say. Raises `RulesError` for a rule that no file may have."""
    first = item[0]
    if isinstance(first, dict) and "marks" in first:
        return DomainMarks(domain, marks_of(domain, first["marks"]))
    if isinstance(first, dict) and "order" in first:
        above, key, patterns = first["order"]
        return Reorder(domain, SlotOrder(steps_of(above), str(key), tuple(map(str, patterns))))
    if isinstance(first, dict):
        said = first["request_limits"]
        return DomainSettings(domain, first["shard_by"], None if said is None else RequestLimits(said))
    path = steps_of(first)
    return Put(domain, path, read_text(domain, path, item[1].encode())) if len(item) == 2 else Delete(domain, path)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).hexdigest().encode()
