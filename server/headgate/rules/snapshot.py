"""The last good rules on disk: for restarts, and to serve on when the feed has none that can be used.

    rules.snapshot            the domains, and the number of the set
    rules/<name>.domain       one domain as a whole (saved_domain.py), named by a digest of its name
    rules/<name>.changes      changes of single rules since then, a line each (saved_changes.py)

A set costs the disk what changed in it: the domains that did, or, where rules changed one by one, a line. Several
processes may write here; each writes what it has in force, whole, and they follow the same rules.
"""

import contextlib
import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from headgate.rules.changes import Change
from headgate.rules.overlay import OverlayReport
from headgate.rules.private_files import read_private, remove_stale, sync_directory, write_private
from headgate.rules.problems import NoSnapshot, Problem, RulesError, SnapshotError
from headgate.rules.ruleset import Domain, RuleSet, rule_set
from headgate.rules.saved_changes import append_changes, with_saved_changes
from headgate.rules.saved_domain import decode_domain, encode_domain
from headgate.rules.source import SourceFile

FILE_NAME = "rules.snapshot"
FOLDER = "rules"

MOST_CHANGES_BYTES = 16 * 1024 * 1024
"""Size of a domain's changes at which it is written as a whole again: some 100,000, which a start makes in seconds."""

LEAST_CHANGES_BYTES = 1024 * 1024
"""Size of changes that is not worth it, however small the domain."""

_BROKEN = (ValueError, TypeError, KeyError, IndexError, StopIteration, RecursionError, AttributeError, RulesError)
"""Errors of reading what is whole and yet makes no sense."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A rule set that was read back, and when it was saved (unix time, ms)."""

    rules: RuleSet
    saved_ms: int
    merge_domains: bool
    """The setting that its domains were made with."""


def _pause() -> None:
    """Do nothing between two pieces of work: the default, where no loop serves beside it."""


def domain_file(directory: Path, domain: str) -> Path:
    """Place of a domain."""
    name = hashlib.sha256(domain.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return directory / FOLDER / f"{name}.domain"


class SnapshotWriter:
    """Saves the sets of one process, one after the other, and knows what of them is on disk."""

    def __init__(self, directory: Path, *, merge_domains: bool = False) -> None:
        self._directory = directory
        self._merge_domains = merge_domains
        self._saved: dict[str, Domain] = {}
        self._sizes: dict[str, int] = {}
        """Bytes of the domains' files."""

    def loaded(self, rules: RuleSet) -> None:
        """Hear what was read back from here: it need not be written again."""
        self._saved = dict(rules.domains)
        for name in rules.domains:
            with contextlib.suppress(OSError):
                self._sizes[name] = domain_file(self._directory, name).stat().st_size

    def save(self, rules: RuleSet, saved_ms: int, pause: Callable[[], None] = _pause) -> Path:
        """Write the domains that changed, and the list of all. A kill at any moment leaves each as it was, or new."""
        (self._directory / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
        changed = [domain for name, domain in rules.domains.items() if self._saved.get(name) is not domain]
        for domain in changed:
            self._write(domain, pause)
        sync_directory(self._directory / FOLDER)
        path = self._list(rules, saved_ms)
        for name in [name for name in self._saved if name not in rules.domains]:
            self._remove(name)
        remove_stale(self._directory, path)
        remove_stale(self._directory / FOLDER, path)
        return path

    def append(self, rules: RuleSet, before: RuleSet, changes: list[Change], saved_ms: int) -> None:
        """Save a set that differs from the one before it, which is saved, by these changes."""
        names = dict.fromkeys(change.domain for change in changes)
        if any(not self._append(name, before, rules, changes) for name in names):
            self.save(rules, saved_ms)

    def _append(self, name: str, before: RuleSet, after: RuleSet, changes: list[Change]) -> bool:
        """Append one domain's changes to its file, if that is worth it."""
        old, new = before.domain(name), after.domain(name)
        if old is None or new is None or self._saved.get(name) is not old:
            return False
        if old is new:
            return True
        path = domain_file(self._directory, name)
        most = min(MOST_CHANGES_BYTES, max(LEAST_CHANGES_BYTES, self._sizes.get(name, 0) // 2))
        own = [change for change in changes if change.domain == name]
        if not append_changes(path.with_suffix(".changes"), old.version, new.version, own, most):
            return False
        self._saved[name] = new
        return True

    def _write(self, domain: Domain, pause: Callable[[], None]) -> None:
        path = domain_file(self._directory, domain.name)
        self._sizes[domain.name] = write_private(path, encode_domain(domain, pause))
        with contextlib.suppress(FileNotFoundError):
            path.with_suffix(".changes").unlink()
        self._saved[domain.name] = domain

    def _list(self, rules: RuleSet, saved_ms: int) -> Path:
        path = self._directory / FILE_NAME
        head = {"counter": rules.version.counter, "saved_ms": saved_ms, "merge_domains": self._merge_domains}
        layers = [[file.path, file.name, file.digest, b64encode(file.packed).decode()] for file in rules.layers]
        said = {"overlay": asdict(rules.overlay), "layers": layers}
        body = json.dumps({**head, **said, "domains": list(rules.domains)}).encode()
        write_private(path, [body])
        sync_directory(self._directory)
        return path

    def _remove(self, name: str) -> None:
        path = domain_file(self._directory, name)
        for gone in (path, path.with_suffix(".changes")):
            with contextlib.suppress(OSError):
                gone.unlink()
        self._saved.pop(name, None)
        self._sizes.pop(name, None)


def load(directory: Path, pause: Callable[[], None] = _pause) -> Snapshot:
    """Read the saved set back, or raise a `SnapshotError` that says why it can't be."""
    path = directory / FILE_NAME
    head = _sensible(path, lambda: json.loads(b"".join(read_private(path))))
    names = _sensible(path, lambda: [str(name) for name in head["domains"]])
    domains = {name: _load_domain(directory, name, pause) for name in names}
    return _sensible(path, lambda: _snapshot(head, domains))


def _snapshot(head: dict[str, Any], domains: dict[str, Domain]) -> Snapshot:
    layers = tuple(
        SourceFile.saved(path, b64decode(packed), name, digest) for path, name, digest, packed in head["layers"]
    )
    rules = rule_set(domains).numbered(int(head["counter"])).under(_report(**head["overlay"]), layers)
    return Snapshot(rules, int(head["saved_ms"]), bool(head["merge_domains"]))


def _report(entries: int, clashes: list[Any], unmatched: list[Any]) -> OverlayReport:
    return OverlayReport(
        entries, tuple(Problem(**item) for item in clashes), tuple(Problem(**item) for item in unmatched)
    )


def _sensible(path: Path, read: Callable[[], T]) -> T:
    """Read a part of a file; one that makes no sense is refused by name."""
    try:
        return read()
    except _BROKEN as error:
        raise SnapshotError(f"{path}: not readable as a snapshot ({type(error).__name__}: {error})") from None


def _load_domain(directory: Path, name: str, pause: Callable[[], None]) -> Domain:
    path = domain_file(directory, name)
    try:
        lines = read_private(path)
    except NoSnapshot:
        raise SnapshotError(f"{path}: the file of domain {name!r} is missing") from None
    domain = _sensible(path, lambda: decode_domain(lines, pause))
    return with_saved_changes(domain, path.with_suffix(".changes"))
