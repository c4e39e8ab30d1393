"""One owner for a Unix socket's path, and a say in who may connect to it.

Servers replace a socket file that is there already, stale or in use, and unlink the path when they close, even if
another process owns it by then. A lock file beside the socket decides instead: its holder may replace the socket and
removes it, every other process is refused. The kernel drops the lock with the process, so a crash leaves nothing that
blocks a start.

Servers give a socket the mode that the umask leaves, and a user who may write to it may connect. Here only the owner
may, until the configured mode has been set.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator

from headgate.address import Address, UnixAddress
from headgate.errors import ConfigError

LOCK_SUFFIX = ".lock"
OWNER_ONLY = 0o600
"""Default mode of a socket: a user who may connect may spend everyone's limits."""
# Connecting to a live Unix socket takes microseconds, unless its backlog is full.
_PROBE_TIMEOUT_S = 0.2


class SocketFile:
    """The right to listen on `path`, from construction to `release`."""

    def __init__(self, path: str, mode: int = OWNER_ONLY) -> None:
        self._path = path
        self._mode = mode
        self._lock_path = path + LOCK_SUFFIX
        self._lock_fd = self._lock()
        try:
            self._clear_path()
        except BaseException:
            self._unlock()
            raise

    @contextlib.contextmanager
    def binding(self) -> Iterator[None]:
        """Bind the socket inside, and await nothing: the umask is the whole process's."""
        before = os.umask(0o777 & ~OWNER_ONLY)
        try:
            yield
        finally:
            os.umask(before)
        os.chmod(self._path, self._mode)

    def release(self) -> None:
        """Remove the socket and its lock. Call it when nothing listens there any more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._unlock()

    def _lock(self) -> int:
        while True:
            try:
                fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ConfigError(f"unix:{self._path}: can't create {self._lock_path}: {error.strerror}") from error
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                raise ConfigError(f"unix:{self._path} is in use by another process") from error
            if self._is_current(fd):
                return fd
            # Its owner removed the file between our open and our lock: lock the new one.
            os.close(fd)

    def _is_current(self, fd: int) -> bool:
        try:
            there = os.stat(self._lock_path)
        except FileNotFoundError:
            return False
        ours = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _unlock(self) -> None:
        # While it is still locked: a process that opened it before sees that it is gone.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._lock_path)
        os.close(self._lock_fd)

    def _clear_path(self) -> None:
        try:
            mode = os.lstat(self._path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise ConfigError(f"unix:{self._path}: there is a file which is not a socket")
        if _answers(self._path):
            raise ConfigError(f"unix:{self._path} is in use by another process")
        os.unlink(self._path)


@contextlib.contextmanager
def binding_at(address: Address, mode: int, cleanup: contextlib.AsyncExitStack) -> Iterator[None]:
    """Around the binding of a listener. For a Unix socket: the right to its path, which `cleanup` gives back."""
    if not isinstance(address, UnixAddress):
        yield
        return
    file = SocketFile(address.path, mode)
    cleanup.callback(file.release)
    with file.binding():
        yield


def _answers(path: str) -> bool:
    """Return true if a process that takes no lock listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(path)
        except OSError as error:
            # Refused: no listener. Anything else (full backlog, no permission) means that one is there.
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
        return True
