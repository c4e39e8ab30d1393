"""File descriptors: enough for callers, and some that callers never get.

A process that has none left can't even say so: its health checks fail with the rest. So
connections are bounded well below what the process may open, and one descriptor is kept
aside to accept and close whoever comes when there are none.
"""

import contextlib
import os
import resource
import socket

PER_CONNECTION = 3
"""The caller's socket, and both ends of the one to the front."""
RESERVED = 128
"""For HTTP, the origin, rules, logs, and connections that are just being refused."""


def room_for(connections: int) -> int:
    """How many of them the process may open, once its limit is raised as far as that is allowed."""
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


class Spare:
    """One descriptor, kept for when there is none."""

    def __init__(self) -> None:
        self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def turn_away(self, listener: socket.socket) -> None:
        """Accept the next one in line and close it, or it would wait, and wake us, for ever."""
        self.close()
        with contextlib.suppress(OSError):
            listener.accept()[0].close()
        with contextlib.suppress(OSError):
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
