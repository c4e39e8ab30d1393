"""Metrics of the process itself; those of a feature are registered by its room.

Each line reads plain numbers that somebody keeps anyway. Labels come from enums and
literals in the code, so the number of series is fixed however many users there are.
"""

import gc
import platform
from collections.abc import Callable, Iterable, Mapping

from headgate import __version__
from headgate.runtime.garbage import MemoryKeeper
from headgate.runtime.tasks import BackgroundTasks
from headgate.telemetry.logs import LogSink
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.process import LoopLag, register_process


def register_life(metrics: Metrics, transport: str, is_ready: Callable[[], bool], lag: LoopLag) -> None:
    """Export what runs here, and how it is doing."""
    build = {"version": __version__, "python": platform.python_version(), "transport": transport}
    metrics.labelled_gauge(
        "headgate_build_info", "Version and build; always 1.", ("version", "python", "transport"), lambda: [(1, build)]
    )
    metrics.gauge("headgate_ready", "1 while serving, 0 while starting or draining.", lambda: int(is_ready()))
    register_process(metrics)
    metrics.gauge("headgate_loop_lag_seconds", "How late the event loop ran, just now.", lambda: lag.last_s)
    metrics.gauge(
        "headgate_loop_lag_peak_seconds",
        "The latest that the event loop ran in the last 15 to 30 s.",
        lambda: lag.peak_s,
    )
    metrics.counter("headgate_loop_stalls", "Times that the event loop ran more than 50 ms late.", lambda: lag.stalls)


def register_background(metrics: Metrics, memory: MemoryKeeper, logs: LogSink, tasks: BackgroundTasks) -> None:
    """Export garbage collection, dropped log lines and restarts of background tasks."""

    def collections() -> Iterable[tuple[int, Mapping[str, str]]]:
        for generation, stats in enumerate(gc.get_stats()):
            yield stats["collections"], {"generation": str(generation)}

    def restarts() -> Iterable[tuple[int, Mapping[str, str]]]:
        for task, count in tuple(tasks.restarts.items()):
            yield count, {"task": task}

    metrics.labelled_counter("headgate_gc_collections", "Runs of the garbage collector.", ("generation",), collections)
    metrics.counter(
        "headgate_gc_freezes",
        "Times that long-lived objects were set aside from the garbage collector.",
        lambda: memory.freezes,
    )
    metrics.counter("headgate_log_lines_dropped", "Log lines dropped: stderr was not read.", lambda: logs.dropped)
    metrics.labelled_counter(
        "headgate_task_restarts", "Background tasks that ended and were begun again.", ("task",), restarts
    )
