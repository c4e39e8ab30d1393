"""Entries of the region's map that one worker keeps while the origin is away, told to the others by their supervisor.

They are told at once, and again to a worker that begins to serve, so that what was said to one holds on all of them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from headgate.region.region_map import entry_of
from headgate.supervisor.process import WorkerProcess

MOST_KEPT: Final = 64
"""Entries for workers that begin later, the latest: operators write them by hand, in an outage."""


class KeptEntries:
    """Entries that the workers of one supervisor keep. `processes` are those that run."""

    def __init__(self, processes: Callable[[], Iterable[WorkerProcess]], now_ms: Callable[[], int]) -> None:
        self._processes = processes
        self._now_ms = now_ms
        self._rows: dict[bytes, Sequence[Any]] = {}

    def follow(self, process: WorkerProcess) -> None:
        """Listen to a worker that was started."""
        process.on_kept = lambda row: self._heard(process, row)
        process.on_serving = lambda: self._tell_all(process)

    def _heard(self, teller: WorkerProcess, row: Sequence[Any]) -> None:
        name = entry_of(row).name
        self._rows.pop(name, None)
        self._rows[name] = row
        while len(self._rows) > MOST_KEPT:
            del self._rows[next(iter(self._rows))]
        for process in self._processes():
            if process is not teller:
                process.tell_kept(row)

    def _tell_all(self, process: WorkerProcess) -> None:
        now_ms = self._now_ms()
        for row in self._rows.values():
            if not 0 < entry_of(row).expires_ms <= now_ms:
                process.tell_kept(row)
