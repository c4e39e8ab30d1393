"""The supervisor's own metrics; all others are the workers', each with its `worker` label."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.supervisor.http import WorkersHttp
from headgate.supervisor.process import WorkerState
from headgate.supervisor.slot import WorkerSlot
from headgate.telemetry.logs import LogSink
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.process import LoopLag, register_process
from headgate.transport.http_listener import total_cut, total_requests


def register(
    metrics: Metrics, slots: Sequence[WorkerSlot], https: Sequence[WorkersHttp], lag: LoopLag, logs: LogSink
) -> None:
    """Make every metric of a supervisor. Call it once."""
    _register_workers(metrics, slots, https)
    _register_http(metrics, https)
    register_process(metrics)
    metrics.gauge(
        "headgate_supervisor_loop_lag_peak_seconds",
        "The latest that the supervisor's event loop ran in the last 15 to 30 s.",
        lambda: lag.peak_s,
    )
    metrics.counter(
        "headgate_supervisor_log_lines_dropped",
        "Log lines dropped by the supervisor: stderr was not read.",
        lambda: logs.dropped,
    )


def _register_workers(metrics: Metrics, slots: Sequence[WorkerSlot], https: Sequence[WorkersHttp]) -> None:
    def per_worker(value: Callable[[WorkerSlot], int]) -> Callable[[], Iterable[tuple[int, Mapping[str, str]]]]:
        return lambda: [(value(slot), {"worker": str(slot.index)}) for slot in slots]

    metrics.gauge("headgate_workers", "Worker processes that there should be.", lambda: len(slots))
    metrics.labelled_gauge(
        "headgate_worker_up",
        "1 while a worker serves, 0 while it starts, drains or is down.",
        ("worker",),
        per_worker(lambda slot: int(slot.state is WorkerState.SERVING)),
    )
    metrics.labelled_counter(
        "headgate_worker_restarts",
        "Times that a worker ended and was begun again.",
        ("worker",),
        per_worker(lambda slot: slot.restarts),
    )
    metrics.labelled_counter(
        "headgate_worker_hangs",
        "Times that a worker hung and was killed for it.",
        ("worker",),
        per_worker(lambda slot: slot.hangs),
    )
    metrics.labelled_counter(
        "headgate_worker_scrapes_missed",
        "Scrapes that a running worker is missing from, because it did not answer in time.",
        ("worker",),
        per_worker(lambda slot: sum(http.unscraped[str(slot.index)] for http in https)),
    )


def _register_http(metrics: Metrics, https: Sequence[WorkersHttp]) -> None:
    def requests() -> Iterable[tuple[int, Mapping[str, str]]]:
        for (route, status), count in total_requests(https).items():
            yield count, {"route": route, "status": str(status)}

    metrics.labelled_counter(
        "headgate_supervisor_http_requests",
        "HTTP requests to the supervisor by route and status.",
        ("route", "status"),
        requests,
    )
    metrics.labelled_counter(
        "headgate_supervisor_http_connections_cut",
        "HTTP connections to the supervisor cut to make room for others, by the resource that ran out.",
        ("reason",),
        lambda: [(count, {"reason": reason}) for reason, count in total_cut(https).items()],
    )
