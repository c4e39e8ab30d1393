"""Metrics of the process itself: memory, CPU, and how late its event loop runs."""

import asyncio
import math
import os
import resource
import sys
import time
from pathlib import Path

from headgate.telemetry.metrics import Metrics

LAG_INTERVAL_S = 0.1
"""Seconds between measurements of lateness where nothing else wakes the loop regularly: pauses that callers feel are
caught.
"""

STALL_S = 0.05
"""A tick later than this is counted as a stall: ten times the default origin deadline."""

LAG_WINDOW_S = 15.0
"""The maximum covers the last one to two windows of 15 s, so that a scrape every 15 s misses no peak."""

_STATM = Path("/proc/self/statm")
_STAT = Path("/proc/self/stat")
_SYSTEM = Path("/proc/stat")
_DESCRIPTORS = "/proc/self/fd"
_LOADED_S = time.time()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def resident_bytes() -> int:
    """Bytes of memory that the process holds now; its peak if the system shows no more."""
    return _memory_bytes(1) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES


def virtual_bytes() -> int:
    """Address space that the process has; 0 where the system does not tell."""
    return _memory_bytes(0)


def _memory_bytes(field: int) -> int:
    try:
        return int(_STATM.read_text().split()[field]) * _PAGE_BYTES
    except OSError:
        return 0


def start_time_s() -> float:
    """Start of the process in unix seconds; the time when this module was loaded if the system does not show it."""
    try:
        ticks = int(_STAT.read_text().rpartition(")")[2].split()[19])
        boot_s = next(float(line.split()[1]) for line in _SYSTEM.read_text().splitlines() if line.startswith("btime"))
    except (OSError, StopIteration):
        return _LOADED_S
    return boot_s + ticks / os.sysconf("SC_CLK_TCK")


def open_descriptors() -> int:
    """Files and sockets that are open; 0 where the system does not tell."""
    try:
        return len(os.listdir(_DESCRIPTORS))
    except OSError:
        return 0


def max_descriptors() -> int:
    """Number of descriptors that may be open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def register_process(metrics: Metrics) -> None:
    """Make the metrics that Prometheus' libraries have of every process, under the names that dashboards know."""
    start_s = start_time_s()
    metrics.counter("process_cpu_seconds", "CPU time that the process has used.", cpu_seconds)
    metrics.gauge("process_resident_memory_bytes", "Memory that the process holds.", resident_bytes)
    metrics.gauge("process_virtual_memory_bytes", "Address space that the process has.", virtual_bytes)
    metrics.gauge("process_start_time_seconds", "When the process began, in unix time.", lambda: start_s)
    metrics.gauge("process_open_fds", "Files and sockets that are open.", open_descriptors)
    metrics.gauge("process_max_fds", "Files and sockets that may be open.", max_descriptors)


def cpu_seconds() -> float:
    """CPU time that the process has used, in user and kernel mode."""
    return time.process_time()


class LoopLag:
    """Measures by how many seconds the event loop runs late, with a timer on it; keeps the last value and a peak."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self.stalls = 0
        self._peaks = [0.0, 0.0]
        self._window_ends_s = -math.inf

    @property
    def peak_s(self) -> float:
        return max(self._peaks)

    def note(self, lag_s: float, now_s: float) -> None:
        """Take one measurement into account."""
        self.last_s = lag_s
        self.stalls += lag_s > STALL_S
        if now_s >= self._window_ends_s:
            # Where nothing was measured for a whole window, there is nothing to keep of it.
            lately = now_s < self._window_ends_s + LAG_WINDOW_S
            self._peaks = [self._peaks[1] if lately else 0.0, 0.0]
            self._window_ends_s = now_s + LAG_WINDOW_S
        self._peaks[1] = max(self._peaks[1], lag_s)

    async def sleep(self, delay_s: float, held_s: float = 0.0) -> None:
        """Sleep, and note how much longer it took.

        For who wakes regularly anyway: a timer of our own would be another one. `held_s` is for how long they have
        just kept the loop from running anything else, which their own timer can't see.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + delay_s
        await asyncio.sleep(delay_s)
        now_s = loop.time()
        self.note(max(0.0, held_s, now_s - due_s), now_s)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await self.sleep(LAG_INTERVAL_S)
