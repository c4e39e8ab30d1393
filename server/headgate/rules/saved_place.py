"""One domain on disk: a file of it as a whole, and files of changes since then.

Changes are appended as they come. When they are many the domain is written as a whole again, in a thread of its own,
and meanwhile changes go on, in another file, from the version that is being written. That takes its place by one
rename, and what led to it is removed: so a kill at any moment leaves a domain that comes to the last version saved.

    <name>.domain             version a, as a whole
    <name>.<a>.changes        from a on
    <name>.<b>.changes        from b on, while b is being written as a whole

Where changes come faster than a domain is written, those that find the second file full are saved with the next whole,
which follows at once. A disk that is full keeps what it has; the domain is written again a minute later.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from headgate.rules.changes import Change
from headgate.rules.private_files import discard, remove_stale, sync_directory, take_place, write_beside
from headgate.rules.ruleset import Domain
from headgate.rules.saved_changes import SUFFIX, append_changes, changes_file
from headgate.rules.saved_domain import encode_domain

MOST_CHANGES_BYTES = 16 * 1024 * 1024
"""Size of a domain's changes at which it is written as a whole again: some 100,000, which a start makes in seconds."""

LEAST_CHANGES_BYTES = 1024 * 1024
"""Size of changes that is not worth it, however small the domain."""

RETRY_MS: Final = 60_000
"""Time after which a domain is written again where that failed."""


class SavedPlace:
    """Files of one domain, as one process writes them: one thread saves, another writes as a whole beside it."""

    __slots__ = (
        "_begun_ms",
        "_gone",
        "_lock",
        "_missed",
        "_next",
        "_path",
        "_retry_ms",
        "_saved",
        "_size",
        "_tail",
        "_versions",
    )

    def __init__(self, path: Path) -> None:
        """`path` is the file of the domain as a whole."""
        self._path = path
        self._lock = threading.Lock()
        self._size = 0
        """Bytes of the domain as a whole."""
        self._versions: tuple[str, ...] = ()
        """Versions from which changes go on, file after file; the first is that of the domain as a whole."""
        self._tail = ""
        """The version from which the file goes on that changes are appended to."""
        self._gone: tuple[str, ...] = ()
        """Versions whose changes nothing leads to any more."""
        self._saved: Domain | None = None
        """The domain that the files come to, once `_next` is in its place; None: they are behind."""
        self._next: Domain | None = None
        """The domain that is to be written as a whole, or is being written."""
        self._missed: Domain | None = None
        """The last domain that was to be saved while the files were behind."""
        self._begun_ms = self._retry_ms = 0

    @property
    def is_due(self) -> bool:
        """Return true if the domain has to be written as a whole: `rewrite` does."""
        return self._next is not None

    def has(self, domain: Domain) -> bool:
        """Return true if the files come to this domain."""
        return self._saved is domain

    def leads_to(self, path: Path) -> bool:
        """Return true if a file of changes is one of those that count."""
        return path in {changes_file(self._path, version) for version in (*self._versions, self._tail)}

    def loaded(self, domain: Domain, versions: tuple[str, ...]) -> None:
        """Hear what was read back, and from which versions its changes go on."""
        self._size = self._path.stat().st_size
        self._saved, self._versions, self._tail = domain, versions, versions[-1]
        if len(versions) > 1:
            # A process was killed while it wrote the domain as a whole.
            self._begin(domain, 0)

    # In the thread that saves

    def write(self, domain: Domain, pause: Callable[[], None]) -> None:
        """Write the domain as a whole, now; `tidy` comes when that is on the disk. Raises OSError."""
        temporary, size = write_beside(self._path, encode_domain(domain, pause))
        with self._lock:
            # Changes may be there from when the domain had this version before: they led elsewhere.
            discard(changes_file(self._path, domain.version))
            self._take(temporary, domain, size)
            self._saved, self._next, self._missed = domain, None, None

    def append(self, before: Domain, after: Domain, changes: Sequence[Change], now_ms: int) -> None:
        """Save the changes that lead from one state to the next, if the files come to the first one. Raises OSError."""
        with self._lock:
            if self._saved is not before:
                self._catch_up(after, now_ms)
            elif self._appended(before, after, changes):
                self._saved = after
            elif self._next is not None:
                self._saved, self._missed = None, after
            else:
                self._begin(before, now_ms)
                self._appended(before, after, changes)
                self._saved = after

    def tidy(self) -> None:
        """Remove changes that nothing leads to any more."""
        while self._gone:
            with self._lock:
                version, *gone = self._gone
                self._gone = tuple(gone)
                if version not in (*self._versions, self._tail):
                    discard(changes_file(self._path, version))

    def remove(self) -> None:
        """Remove all files: there is no such domain any more."""
        with self._lock:
            self._saved = self._next = self._missed = None
            discard(self._path)
            self._gone += tuple({*self._versions, self._tail} - {""})
            self._versions, self._tail = (), ""
        self.tidy()

    def _appended(self, before: Domain, after: Domain, changes: Sequence[Change]) -> bool:
        path = changes_file(self._path, self._tail)
        most = min(MOST_CHANGES_BYTES, max(LEAST_CHANGES_BYTES, self._size // 2))
        return append_changes(path, before.version, after.version, changes, most)

    def _catch_up(self, domain: Domain, now_ms: int) -> None:
        self._saved, self._missed = None, domain
        if self._next is None and now_ms >= self._retry_ms:
            self._begin(domain, now_ms)

    def _begin(self, domain: Domain, now_ms: int) -> None:
        """Have a domain written as a whole, and let changes go on from it."""
        version, versions = domain.version, self._versions
        discard(changes_file(self._path, version))
        if version in versions:
            # The files come to it now, without what led away from it and back.
            self._versions = versions[: versions.index(version) + 1]
            self._gone += versions[len(self._versions) :]
        elif self._saved is domain:
            self._versions = (*versions, version)
        self._saved, self._tail, self._missed, self._begun_ms = domain, version, None, now_ms
        self._next = None if self._versions == (version,) else domain

    # In the thread that writes beside it

    def rewrite(self, pause: Callable[[], None]) -> None:
        """Write what is due as a whole. Raises OSError, and then the files are what they were."""
        while (domain := self._next) is not None:
            self._rewrite(domain, pause)

    def _rewrite(self, domain: Domain, pause: Callable[[], None]) -> None:
        try:
            temporary, size = write_beside(self._path, encode_domain(domain, pause))
            with self._lock:
                if self._next is not domain:
                    discard(temporary)
                    return
                self._take(temporary, domain, size)
            sync_directory(self._path.parent)
            self.tidy()
            self._remove_stale()
        except BaseException:
            self._give_up(domain)
            raise
        with self._lock:
            if self._next is domain:
                self._next = None
                if self._missed is not None:
                    self._begin(self._missed, self._begun_ms)

    def _take(self, temporary: Path, domain: Domain, size: int) -> None:
        """Put the domain in its place. What led to it counts no more."""
        take_place(temporary, self._path)
        self._gone += tuple({*self._versions, self._tail} - {domain.version, ""})
        self._versions, self._tail, self._size = (domain.version,), domain.version, size

    def _give_up(self, domain: Domain) -> None:
        with self._lock:
            if self._next is not domain:
                return
            self._saved = self._next = None
            self._retry_ms = self._begun_ms + RETRY_MS
            if self._tail not in self._versions:
                discard(changes_file(self._path, self._tail))

    def _remove_stale(self) -> None:
        """Remove changes that other processes left, which nothing leads to either."""
        beside = self._path.parent.glob(f"{self._path.stem}*{SUFFIX}")
        remove_stale((path for path in beside if not self.leads_to(path)), self._path)
