"""The last good rules on disk: for restarts, and to serve on when the feed has none that can be used.

    rules.snapshot            the domains, and the number of the set
    rules/<name>.domain       one domain as a whole (saved_domain.py), named by a digest of its name
    rules/<name>.<v>.changes  changes of single rules since its version v, a line each (saved_changes.py)

A set costs the disk what changed in it: the domains that did, or, where rules changed one by one, a line; how these
become a whole again is saved_place.py's matter. Several processes may write here; each writes what it has in force,
whole, and they follow the same rules.
"""

import contextlib
import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from headgate.rules.changes import Change
from headgate.rules.overlay import OverlayReport
from headgate.rules.private_files import read_private, remove_stale, sync_directory, write_private
from headgate.rules.problems import NoSnapshot, Problem, RulesError, SnapshotError
from headgate.rules.ruleset import Domain, RuleSet, rule_set
from headgate.rules.saved_changes import SUFFIX, with_saved_changes
from headgate.rules.saved_domain import decode_domain
from headgate.rules.saved_place import SavedPlace
from headgate.rules.source import SourceFile

FILE_NAME = "rules.snapshot"
FOLDER = "rules"

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
    changes: Mapping[str, tuple[str, ...]]
    """The versions from which the changes of each domain go on, file after file."""


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
        self._places: dict[str, SavedPlace] = {}
        """Places of the domains that are listed."""
        self._due: set[str] = set()
        """Domains that may have to be written as a whole."""

    def loaded(self, saved: Snapshot) -> None:
        """Hear what was read back from here: it need not be written again."""
        for name, domain in saved.rules.domains.items():
            with contextlib.suppress(OSError):
                place = SavedPlace(domain_file(self._directory, name))
                place.loaded(domain, saved.changes[name])
                self._places[name] = place
                if place.is_due:
                    self._due.add(name)

    def save(self, rules: RuleSet, saved_ms: int, pause: Callable[[], None] = _pause) -> Path:
        """Write the domains that changed, and the list of all. A kill at any moment leaves each as it was, or new."""
        folder = self._directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        others = [domain for domain in rules.domains.values() if not self._has(domain)]
        written = {domain.name: self._written(domain, pause) for domain in others}
        sync_directory(folder)
        path = self._list(rules, saved_ms)
        self._places |= written
        for place in written.values():
            place.tidy()
        for name in [name for name in self._places if name not in rules.domains]:
            self._places.pop(name).remove()
        self._remove_stale(path, written)
        return path

    def append(self, rules: RuleSet, before: RuleSet, changes: Sequence[Change], saved_ms: int) -> None:
        """Save a set that differs from the one before it by these changes."""
        own: dict[str, list[Change]] = {}
        for change in changes:
            own.setdefault(change.domain, []).append(change)
        kept = [self._append(name, before, rules, some, saved_ms) for name, some in own.items()]
        if not all(kept):
            self.save(rules, saved_ms)

    @property
    def is_due(self) -> bool:
        """Return true if a domain may have so many changes that it has to be written as a whole: `rewrite` does."""
        return bool(self._due)

    def rewrite(self, pause: Callable[[], None] = _pause) -> None:
        """Write domains with many changes as a whole. Another thread may do it, beside all else. Raises OSError."""
        while self._due:
            place = self._places.get(self._due.pop())
            if place is not None:
                place.rewrite(pause)

    def _has(self, domain: Domain) -> bool:
        place = self._places.get(domain.name)
        return place is not None and place.has(domain)

    def _append(self, name: str, before: RuleSet, after: RuleSet, changes: list[Change], saved_ms: int) -> bool:
        """Append one domain's changes to its file; false where the list of domains has to be written too."""
        old, new, place = before.domain(name), after.domain(name), self._places.get(name)
        if old is None or new is None or place is None:
            return old is new
        if old is not new:
            place.append(old, new, changes, saved_ms)
        if place.is_due:
            self._due.add(name)
        return True

    def _written(self, domain: Domain, pause: Callable[[], None]) -> SavedPlace:
        place = self._places.get(domain.name) or SavedPlace(domain_file(self._directory, domain.name))
        place.write(domain, pause)
        return place

    def _remove_stale(self, newest: Path, written: Mapping[str, SavedPlace]) -> None:
        folder = self._directory / FOLDER
        places = {domain_file(self._directory, name).stem: place for name, place in written.items()}
        changes = [(path, places.get(path.name.partition(".")[0])) for path in folder.glob(f"*{SUFFIX}")]
        beside = [path for path, place in changes if place is not None and not place.leads_to(path)]
        remove_stale([*self._directory.glob("*.tmp"), *folder.glob("*.tmp"), *beside], newest)

    def _list(self, rules: RuleSet, saved_ms: int) -> Path:
        path = self._directory / FILE_NAME
        head = {"counter": rules.version.counter, "saved_ms": saved_ms, "merge_domains": self._merge_domains}
        layers = [[file.path, file.name, file.digest, b64encode(file.packed).decode()] for file in rules.layers]
        said = {"overlay": asdict(rules.overlay), "layers": layers}
        body = json.dumps({**head, **said, "domains": list(rules.domains)}).encode()
        write_private(path, [body])
        sync_directory(self._directory)
        return path


def load(directory: Path, pause: Callable[[], None] = _pause) -> Snapshot:
    """Read the saved set back, or raise a `SnapshotError` that says why it can't be."""
    path = directory / FILE_NAME
    head = _sensible(path, lambda: json.loads(b"".join(read_private(path))))
    names = _sensible(path, lambda: [str(name) for name in head["domains"]])
    loaded = {name: _load_domain(directory, name, pause) for name in names}
    return _sensible(path, lambda: _snapshot(head, loaded))


def _snapshot(head: dict[str, Any], loaded: dict[str, tuple[Domain, tuple[str, ...]]]) -> Snapshot:
    layers = tuple(
        SourceFile.saved(path, b64decode(packed), name, digest) for path, name, digest, packed in head["layers"]
    )
    rules = rule_set({name: domain for name, (domain, _) in loaded.items()})
    rules = rules.numbered(int(head["counter"])).under(_report(**head["overlay"]), layers)
    changes = {name: versions for name, (_, versions) in loaded.items()}
    return Snapshot(rules, int(head["saved_ms"]), bool(head["merge_domains"]), changes)


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


def _load_domain(directory: Path, name: str, pause: Callable[[], None]) -> tuple[Domain, tuple[str, ...]]:
    path = domain_file(directory, name)
    try:
        lines = read_private(path)
    except NoSnapshot:
        raise SnapshotError(f"{path}: the file of domain {name!r} is missing") from None
    domain = _sensible(path, lambda: decode_domain(lines, pause))
    return with_saved_changes(domain, path)
