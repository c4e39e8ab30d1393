"""Files that are served as they are, and so must be ours: written whole or not at all, and read only if no other user
may have written them.

    <magic> <format> <sha256 of the rest> <bytes of the rest>\\n
    the rest

A file is written beside its place, line by line, synced and renamed, so a kill at any moment leaves the old file or the
new one. It is used only if it is a plain file of the user that we are, that no other user may read or write, and whole
by its digest. Anything else is refused by name.
"""

import contextlib
import hashlib
import io
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from headgate.rules.problems import NoSnapshot, SnapshotError

MAGIC = "headgate-rules-snapshot"
FORMAT = 9
"""Goes up whenever an older program would misread what a newer one writes, or the other way round."""

MODE = 0o600
"""Mode of the files: rules may name customers, and are served as they are, so only the owner reads or writes them."""

STALE_S = 3600.0
"""A file this old that nothing leads to belongs to a process that was killed; a younger one may be in use."""


_numbers = itertools.count()
"""Numbers of temporary files: several threads may write at a time."""


def write_private(path: Path, lines: Iterable[bytes]) -> int:
    """Write a file atomically; return its size. The caller syncs the directory (`sync_directory`)."""
    temporary, size = write_beside(path, lines)
    take_place(temporary, path)
    return size


def write_beside(path: Path, lines: Iterable[bytes]) -> tuple[Path, int]:
    """Write a file that may take that place; return it, and its size. Lines are written as they come."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{next(_numbers)}.tmp")
    try:
        with open(temporary, "wb", opener=open_private) as file:
            # What the head says is known at the end.
            head = len(_head("0" * 64, 0))
            file.seek(head)
            checksum, size = hashlib.sha256(), 0
            for line in lines:
                checksum.update(line)
                size += file.write(line)
            file.seek(0)
            file.write(_head(checksum.hexdigest(), size))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        discard(temporary)
        raise
    return temporary, head + size


def _head(checksum: str, size: int) -> bytes:
    """Write a head; all have one length."""
    return f"{MAGIC} {FORMAT} {checksum} {size:020}\n".encode()


def take_place(temporary: Path, path: Path) -> None:
    """Put a file that was written beside a place there."""
    try:
        os.replace(temporary, path)
    except BaseException:
        discard(temporary)
        raise


def discard(path: Path) -> None:
    """Remove a file, if it is there and that can be."""
    with contextlib.suppress(OSError):
        path.unlink()


def open_private(path: str, flags: int) -> int:
    """Open a file for this user alone, even if one of that name was left behind with another mode."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    try:
        os.fchmod(handle, MODE)
    except BaseException:
        os.close(handle)
        raise
    return handle


def sync_directory(directory: Path) -> None:
    """Bring renames and removals in a directory to the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_stale(paths: Iterable[Path], newest: Path) -> None:
    """Remove files of killed processes, by the time of a file just written: so no clock is read."""
    now = newest.stat().st_mtime
    for path in paths:
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > STALE_S:
                path.unlink()


def read_private(path: Path) -> Iterator[bytes]:
    """Read a file's lines, after its head. Raises `SnapshotError`, which names the file."""
    try:
        data = read_ours(path)
    except FileNotFoundError:
        raise NoSnapshot(f"{path}: there is no snapshot") from None
    except OSError as error:
        raise SnapshotError(f"{path}: {error.strerror}") from None
    try:
        return checked(data)
    except SnapshotError as error:
        raise type(error)(f"{path}: {error}") from None


def read_ours(path: Path) -> bytes:
    """Read a file if only this user may write it: another user could have rules of their choice served."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise SnapshotError(f"{path}: not used: it is not a plain file")
        if info.st_uid != os.geteuid():
            raise SnapshotError(f"{path}: not used: it belongs to user {info.st_uid}, and this is {os.geteuid()}")
        if stat.S_IMODE(info.st_mode) & ~MODE:
            mode = f"{stat.S_IMODE(info.st_mode):04o}"
            raise SnapshotError(f"{path}: not used: its mode is {mode}, and others than its owner may have written it")
        return file.read()


def checked(data: bytes) -> Iterator[bytes]:
    """Check a file's head and digest; return the lines of the rest."""
    end = data.find(b"\n", 0, 256)
    words = data[: max(end, 0)].split(b" ")
    if len(words) != 4 or words[0] != MAGIC.encode() or not words[3].isdigit():
        raise SnapshotError("not a snapshot of rules")
    if words[1] != str(FORMAT).encode():
        raise SnapshotError(f"format {words[1].decode(errors='replace')}, this program reads format {FORMAT}")
    body = memoryview(data)[end + 1 :]
    if len(body) != int(words[3]):
        raise SnapshotError(f"incomplete: {len(body)} of {int(words[3])} bytes")
    if hashlib.sha256(body).hexdigest().encode() != words[2]:
        raise SnapshotError("damaged: the checksum differs")
    lines = io.BytesIO(data)
    lines.seek(end + 1)
    return lines
