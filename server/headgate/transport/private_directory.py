"""A directory that only we may enter, for sockets between parts of ours.

It holds a lock for as long as any process of ours has it open, and the kernel drops that with the last
of them. So what a kill -9 left behind is known for what it is, and whoever makes the next
directory beside it removes it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "headgate-"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a directory of its own, 0700
"""Writable in every container, also where nothing else is."""
_LOCK = "owner.lock"
_UNLOCKED = "owner.new"


class PrivateDirectory:
    """A directory that exists from construction to `remove`. Raises OSError where there is no place for it."""

    def __init__(self) -> None:
        # mkdtemp makes it 0700.
        self.path = _make()
        try:
            self.lock_fd = _lock_new(self.path)
            """Inherited by a process, it keeps the directory for that one too."""
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        for left in _left_behind(self.path.parent):
            shutil.rmtree(left, ignore_errors=True)

    def remove(self) -> None:
        """Once is enough, more is harmless."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1


def _make() -> Path:
    """Make it among the temporary files, or in shared memory where the root file system is read-only and has none."""
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHARED_MEMORY))


def remove_if_empty(path: Path) -> None:
    """Another process's directory, by one who was in it and may be the last."""
    with contextlib.suppress(OSError):
        if os.listdir(path) == [_LOCK]:
            shutil.rmtree(path, ignore_errors=True)


def _lock_new(directory: Path) -> int:
    """Locked before it has the name that others look for: nobody finds it free while we live."""
    fd = os.open(directory / _UNLOCKED, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.rename(directory / _UNLOCKED, directory / _LOCK)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _left_behind(parent: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(PREFIX) and _is_left(entry):
                yield Path(entry.path)


def _is_left(entry: "os.DirEntry[str]") -> bool:
    """Say whether it is a directory of this user's with a lock that nobody holds."""
    try:
        if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            return False
        fd = os.open(Path(entry.path) / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
