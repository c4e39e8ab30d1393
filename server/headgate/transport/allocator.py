"""Give memory back after messages that were too large.

glibc keeps what was freed, in two ways. It learns from large blocks: once one of 30 MB
was freed, further ones are cut from the heap and stay resident, up to 64 MB per arena,
some of it even after `malloc_trim`. And it makes up to eight arenas per core, each with
leftovers of its own. Both are bounded here, once for the process, and what remains is
trimmed when there is a reason to.
"""

import ctypes
import math
from collections.abc import Callable

# Names in malloc.h.
_M_TRIM_THRESHOLD = -1
_M_ARENA_MAX = -8
# Setting it stops the learning: from then on blocks over 128 KiB, larger than any honest
# message, go straight back to the kernel. Its default, also 128 KiB, would return and
# fetch memory with every batch of calls.
_TRIM_BYTES = 4 * 1024 * 1024
# One for the loop, one for the threads below it: more showed no gain.
_ARENAS = 2
# Trimming walks the heap, some milliseconds for a big one: at most twice a second. Late
# enough that buffers below us, of the message that was noted, are free by then too.
TRIM_DELAY_MS = 500


def _glibc(name: str) -> Callable[..., int]:
    # Elsewhere there is nothing to do: other allocators return what is freed by themselves.
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function or (lambda *_arguments: 0)


def bound_allocator() -> None:
    """Have the allocator keep little of what is freed. Call it before threads are started."""
    mallopt = _glibc("mallopt")
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    mallopt(_M_ARENA_MAX, _ARENAS)


class Trimmer:
    """Trims the heap once, soon after any number of `note`s, and with a pause in between."""

    def __init__(self, trim: Callable[[int], int] | None = None, pause_s: float = 0.0) -> None:
        """`pause_s`: shortest time from a trim to the next one that is asked for."""
        self._trim = trim or _glibc("malloc_trim")
        self._pause_s = pause_s
        self._not_before = -math.inf
        self.due_at = math.inf
        """Time at which to call `run`: never, while nothing was noted."""

    @property
    def noted(self) -> bool:
        """A trim is due, or will be."""
        return self.due_at < math.inf

    def note(self, now: float) -> None:
        """Ask for a trim soon, because something large is about to be freed."""
        self.due_at = min(self.due_at, max(now + TRIM_DELAY_MS / 1000, self._not_before))

    def run(self) -> None:
        """Trim, now that it is due."""
        self._not_before, self.due_at = self.due_at + self._pause_s, math.inf
        self._trim(0)
