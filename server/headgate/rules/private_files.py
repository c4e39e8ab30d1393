"""Files that are served as they are, and so must be ours: written whole or not at all, and read only if no other user
may have written them.

    <magic> <format> <sha256 of the rest> <bytes of the rest>\\n
    the rest

A file is written beside its place, synced and renamed, so a kill at any moment leaves the old file or the new one. It
is used only if it is a plain file of the user that we are, that no other user may read or write, and whole by its
digest. Anything else is refused by name.
"""

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from headgate.rules.problems import NoSnapshot, SnapshotError

MAGIC = "headgate-rules-snapshot"
FORMAT = 8
"""Goes up whenever an older program would misread what a newer one writes, or the other way round."""

MODE = 0o600
"""Mode of the files: rules may name customers, and are served as they are, so only the owner reads or writes them."""

STALE_TEMP_S = 3600.0
"""A temporary file this old belongs to a process that was killed; a younger one may be in use."""


def write_private(path: Path, lines: Sequence[bytes]) -> int:
    """Write a file atomically; return its size. The caller syncs the directory (`sync_directory`)."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    checksum = hashlib.sha256()
    for line in lines:
        checksum.update(line)
    size = sum(map(len, lines))
    head = f"{MAGIC} {FORMAT} {checksum.hexdigest()} {size}\n".encode()
    try:
        with open(temporary, "wb", opener=open_private) as file:
            file.write(head)
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return len(head) + size


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


def remove_stale(directory: Path, newest: Path) -> None:
    """Remove temporary files of killed processes, by the time of a file just written: so no clock is read."""
    now = newest.stat().st_mtime
    for path in directory.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > STALE_TEMP_S:
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
