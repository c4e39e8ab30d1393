"""A directory of rules files: which ones count, and what is in them.

Files are read again only if they changed. All is read of one state of the directory: what changed meanwhile is read
again, so a set is no mixture of two states, unless the directory changes faster than it can be read.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from headgate.clock import SystemClock
from headgate.rules.compiling import compile_source
from headgate.rules.defaults import PROGRAM, Defaults
from headgate.rules.overlay_reader import read_overlay
from headgate.rules.pace import Pace
from headgate.rules.problems import Problem, RulesError
from headgate.rules.reader import MAX_FILE_BYTES
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import OVERLAY, RulesSource, SourceFile, source_of

EXTENSIONS = (".yaml", ".yml")

MAX_DEPTH = 8
"""Deepest nesting of directories that is read: far more than anyone needs, and the end of a loop of links."""

ATTEMPTS = 10
"""Times that what changed while it was read is read again, before it is taken as it is: every file is whole by itself.
Each reads only what changed since the one before it."""

FileState = tuple[str, int, int, int, int, int, int]
Signature = tuple[FileState, ...]
"""State of the directory: name, device, inode, size, times and kind of each file."""


def signature(directory: Path) -> Signature | None:
    """The directory's state, or None while it can't be listed. Links are followed, so a swapped one shows."""
    try:
        return _states(directory)
    except OSError:
        return None


def _states(directory: Path) -> Signature:
    names = sorted(_names_below(str(directory), "", ()))
    return tuple(_file_state(os.path.join(directory, name), name) for name in names)


def _names_below(directory: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Paths of all rules files, relative to the directory: `edge.yaml`, `team-a/edge.yaml`. Raises OSError.

    Links to directories are followed, except back to one that we are in (`above`): that has no end.
    """
    info = os.stat(directory)
    if (info.st_dev, info.st_ino) in above or len(above) >= MAX_DEPTH:
        return
    with os.scandir(directory) as entries:
        listed = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in listed:
        if entry.name.endswith(EXTENSIONS):
            yield prefix + entry.name
        elif entry.is_dir():
            yield from _names_below(entry.path, f"{prefix}{entry.name}/", (*above, (info.st_dev, info.st_ino)))


def _file_state(path: str, name: str) -> FileState:
    try:
        info = os.stat(path)
    except OSError as error:
        return (name, 0, 0, -1, error.errno or 0, 0, 0)
    return (name, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)


class DirectoryReader:
    """Reads a directory again and again; what did not change is handed over as it was read before."""

    def __init__(self, directory: Path, layer: str = "") -> None:
        """`layer` begins the names of files that are no rules, but an overlay."""
        self._directory = directory
        self._layer = layer
        self._what = "overlay" if layer else "rules"
        self._files: dict[str, tuple[FileState, SourceFile]] = {}

    def read(self) -> RulesSource:
        """Read all rules files; one that can't be has its problem. Raises `RulesError` where there is none."""
        for _ in range(ATTEMPTS):
            states = self._list()
            self._files = {state[0]: (state, self._file(state)) for state in states}
            if signature(self._directory) == states:
                break
        return source_of(file for _, file in self._files.values())

    def _list(self) -> Signature:
        try:
            states = _states(self._directory)
        except OSError as error:
            place = error.filename or str(self._directory)
            problem = Problem(place, 1, f"can't list the {self._what} directory: {error.strerror}")
            raise RulesError([problem], transient=True) from None
        if not states:
            reason = f"no {self._what} file ({' or '.join(EXTENSIONS)}) in this directory"
            raise RulesError([Problem(str(self._directory), 1, reason)])
        return states

    def _file(self, state: FileState) -> SourceFile:
        known = self._files.get(state[0])
        if known is not None and known[0] == state and known[1].problem is None:
            return known[1]
        file = read_source(os.path.join(self._directory, state[0]), self._layer + state[0])
        # The same object where the text is the same: it is packed once.
        return known[1] if known is not None and known[1] == file else file


def read_source(path: str, name: str) -> SourceFile:
    """Read one file, or tell why it can't be."""
    try:
        return SourceFile(path, _read_whole(path), name)
    except OSError as error:
        return SourceFile(path, b"", name, Problem(path, 1, error.strerror or str(error)))


def _read_whole(path: str) -> bytes:
    """Read a file of one state; what was written while it was read is read again."""
    for _ in range(ATTEMPTS):
        before = _file_state(path, path)
        data = _read(path)
        if _file_state(path, path) == before:
            return data
    raise OSError(errno.EAGAIN, "it is being written, and was never the same before and after it was read")


def _read(path: str) -> bytes:
    # Non-blocking: a FIFO that someone named x.yaml must not hold the process.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        too_large = f"larger than {MAX_FILE_BYTES // 1024**2} MiB"
        if info.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, too_large)
        data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, too_large)
        return data


def load_directory(
    directory: Path | str,
    *,
    merge_domains: bool = False,
    overlay: Path | None = None,
    defaults: Defaults = PROGRAM,
) -> RuleSet:
    """Read, check and compile a directory, or one file of any name; raises `RulesError` with every problem."""
    layers = (*(() if overlay is None else read_path(overlay, layer=OVERLAY).files), *defaults.to_file())
    source = read_path(Path(directory)).under(layers)
    return compile_source(source, Pace(SystemClock()), merge_domains=merge_domains)


def check_overlay(overlay: Path) -> int:
    """Read and check an overlay by itself; return the number of its entries. Raises `RulesError` with every problem."""
    files = read_path(overlay, layer=OVERLAY).files
    entries, problems = read_overlay(files)
    unread = [file.problem for file in files if file.problem is not None]
    if problems or unread:
        raise RulesError([*unread, *problems])
    return len(entries)


def read_path(path: Path, *, layer: str = "") -> RulesSource:
    """Read a directory, or one file of any name."""
    if path.is_file():
        return RulesSource((read_source(str(path), layer + path.name),))
    return DirectoryReader(path, layer).read()
