"""A worker whose supervisor is gone ends, even one that does not notice by itself.

A healthy one reads the end of the channel and drains. One that is stopped is woken by the
kernel, and then reads it. One whose loop spins is ended by a thread that has nothing else to do, once
draining would have had its time.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def end_with_supervisor(channel_fd: int, patience_s: float) -> None:
    """Call it once, early; `patience_s` is what ending in good order may take."""
    _continue_with_parent()
    arguments = (channel_fd, patience_s)
    threading.Thread(target=_end_with, args=arguments, name="headgate-orphan", daemon=True).start()


def _continue_with_parent() -> None:
    if sys.platform == "linux":
        # On other systems a stopped worker stays stopped until it is continued.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def _end_with(channel_fd: int, patience_s: float) -> None:
    poll = select.poll()
    # No events are asked for: poll always reports the end of the other side.
    poll.register(channel_fd, 0)
    poll.poll()
    time.sleep(patience_s)
    os.kill(os.getpid(), signal.SIGKILL)
