"""Forks at a quiet moment: gRPC survives one only while no thread is inside it.

gRPC prepares itself for a fork, unless some thread is calling into it just then: it says so, and the
child's gRPC hangs or aborts. So a fork waits here until the calls of threads that are under way have ended, for
`WAIT_S` at most; calls that come meanwhile wait for the fork.
"""

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final

WAIT_S: Final = 1.0
"""Far above the deadline of a call. A fork that has waited so long takes its chance."""
QUIET_READS: Final = 3
READ_EVERY_S: Final = 0.002
_THREADS: Final = Path("/proc/self/task")


class ForkGate:
    """`with gate:` around a call of a thread."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """In a child too: the threads that held it, or waited at it, are the parent's."""
        self._changed = threading.Condition()
        self._under_way = 0
        self._used = False
        self._forking = False

    def __enter__(self) -> None:
        with self._changed:
            if self._forking:
                self._changed.wait_for(lambda: not self._forking, WAIT_S)
            self._under_way += 1
            self._used = True

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with self._changed:
            self._under_way -= 1
            if self._forking:
                self._changed.notify_all()

    def before(self) -> None:
        with self._changed:
            self._forking = True
            self._changed.wait_for(lambda: not self._under_way, WAIT_S)
        if self._used:
            settle()

    def after_in_parent(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()


def settle() -> None:
    """Until all other threads of the process sleep: gRPC's own finish what a call or a channel left them to do."""
    deadline_s = time.monotonic() + WAIT_S / 4
    quiet = 0
    while quiet < QUIET_READS and time.monotonic() < deadline_s:
        quiet = quiet + 1 if _others_sleep() else 0
        time.sleep(READ_EVERY_S)


def _others_sleep() -> bool:
    own = str(threading.get_native_id())
    for thread in _THREADS.glob("*/stat"):
        try:
            state = thread.read_text().rpartition(")")[2].split()[0]
        except OSError:
            # It has ended since.
            continue
        if thread.parent.name != own and state not in "St":
            return False
    # Where there is no /proc, a few reads are a few milliseconds.
    return True


GATE: Final = ForkGate()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GATE.before, after_in_parent=GATE.after_in_parent, after_in_child=GATE.begin)
