"""File descriptors: enough for callers, and some that callers never get.

A process that has none left can't even say so: its health checks fail with the rest. So
connections are bounded well below what the process may open, and some descriptors are kept
aside, for health and to turn away whoever comes when there are none.
"""

import contextlib
import errno
import fcntl
import os
import resource

PER_CONNECTION = 3
"""Descriptors of one connection of the guard: the caller's socket, and both ends of the one to the front."""
RESERVED = 256
"""Descriptors for HTTP (half of them), the origin, rules, logs, and connections that are just being refused."""

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors that keep a connection from being accepted though somebody is in line."""


def room_for(connections: int) -> int:
    """Return how many connections the process may open, once its limit is raised as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    wanted = connections * PER_CONNECTION + RESERVED
    if soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, min(connections, (soft - min(RESERVED, soft // 2)) // PER_CONNECTION))


def make_table(connections: int) -> None:
    """Have the kernel make its table of this process's descriptors now, for as many connections.

    It doubles the table where a descriptor does not fit in, and because threads share it, whoever asked stands still
    for some 10 ms each time: the loop, while callers connect.
    """
    with contextlib.suppress(OSError), open(os.devnull, "rb") as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, connections * PER_CONNECTION + RESERVED - 1))


class Spares:
    """Some descriptors, kept for when there are none."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._fds: list[int] = []
        self.refill()

    def release(self) -> bool:
        """Give one back to the process, to be used at once. False when none is left."""
        if not self._fds:
            return False
        os.close(self._fds.pop())
        return True

    def refill(self) -> bool:
        """Take those that were released again. False when there are not so many."""
        with contextlib.suppress(OSError):
            while len(self._fds) < self._count:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return len(self._fds) == self._count

    def close(self) -> None:
        while self.release():
            pass
