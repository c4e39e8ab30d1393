"""Metrics of the listeners: gRPC calls, connections through the guard, and HTTP."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.telemetry.metrics import Metrics
from headgate.transport.http import HttpServer
from headgate.transport.http_listener import total_cut, total_requests
from headgate.transport.interface import DURATION_BOUNDS_S, GuardStats, TransportStats


def register_grpc(metrics: Metrics, stats: TransportStats) -> None:
    """Export what became of calls, how long they took, and the guard's connections."""

    def refused() -> Iterable[tuple[int, Mapping[str, str]]]:
        yield stats.refused_too_large, {"reason": "too_large"}
        yield stats.refused_overload, {"reason": "overload"}
        yield stats.refused_unauthenticated, {"reason": "unauthenticated"}
        yield stats.refused_forbidden, {"reason": "forbidden"}
        yield stats.refused_unfinished, {"reason": "unfinished"}
        yield stats.guard.refused_calls, {"reason": "open_calls"}

    metrics.histogram(
        "headgate_decision_duration_seconds",
        "How long calls took from when they were received to their answers, in this process. Calls that came together "
        "and were answered at once count with the time of all of them.",
        DURATION_BOUNDS_S,
        stats.durations.read,
    )
    metrics.counter("headgate_grpc_calls", "Calls received: ShouldRateLimit, Reserve and Settle.", lambda: stats.calls)
    metrics.gauge("headgate_grpc_pending_calls", "Calls waiting for an answer.", lambda: stats.pending_calls)
    metrics.gauge(
        "headgate_grpc_pending_bytes", "Bytes of the calls that wait for an answer.", lambda: stats.pending_bytes
    )
    metrics.labelled_counter("headgate_grpc_refused", "Calls refused before they were decided.", ("reason",), refused)
    metrics.counter(
        "headgate_grpc_dropped_expired",
        "Calls dropped because their deadline had passed.",
        lambda: stats.dropped_expired,
    )
    metrics.counter("headgate_grpc_failed_internal", "Calls answered INTERNAL.", lambda: stats.failed_internal)
    _register_connections(metrics, stats.guard)


def register_ratelimit_calls(metrics: Metrics, stats: TransportStats) -> None:
    """Export calls under the names of envoyproxy/ratelimit, as Envoy Gateway's mapping has them."""
    method = {"grpc_method": "ShouldRateLimit"}

    def errors() -> Iterable[tuple[int, Mapping[str, str]]]:
        refused = stats.refused_too_large + stats.refused_overload + stats.refused_unauthenticated
        yield refused + stats.refused_forbidden + stats.failed_internal, {"err_type": "service_error"}
        # An origin that is away fails no call here: each rule's `on_error` decides.
        yield 0, {"err_type": "redis_error"}

    metrics.bare_counter(
        "ratelimit_service_total_requests",
        "ShouldRateLimit calls received.",
        ("grpc_method",),
        lambda: [(stats.calls, method)],
    )
    metrics.bare_counter("ratelimit_service_should_rate_limit_error", "Calls that failed.", ("err_type",), errors)
    metrics.labelled_histogram(
        "ratelimit_service_response_time_seconds",
        "How long calls took in this process.",
        ("grpc_method",),
        DURATION_BOUNDS_S,
        lambda: [(stats.durations.read(), method)],
    )


def _register_connections(metrics: Metrics, stats: GuardStats) -> None:
    """Export what only a guard knows; without one all of these are 0."""

    def by_reason(counts: Mapping[str, int]) -> Callable[[], Iterable[tuple[int, Mapping[str, str]]]]:
        return lambda: [(count, {"reason": reason}) for reason, count in counts.items()]

    metrics.gauge("headgate_grpc_connections", "Connections through the guard.", lambda: stats.live)
    metrics.counter("headgate_grpc_connections_accepted", "Connections begun.", lambda: stats.accepted)
    metrics.labelled_counter(
        "headgate_grpc_connections_refused",
        "Closed at once, by the bound that was reached.",
        ("reason",),
        by_reason(stats.refused),
    )
    metrics.labelled_counter(
        "headgate_grpc_connections_closed",
        "Ended, by the bound that was reached or who left.",
        ("reason",),
        by_reason(stats.closed),
    )
    metrics.counter(
        "headgate_grpc_connections_slowed",
        "Times that a connection was not read because it took more than its share of the event loop.",
        lambda: stats.slowed,
    )
    metrics.gauge(
        "headgate_grpc_unfinished_bytes", "Held for calls that have not arrived whole.", lambda: stats.unfinished_bytes
    )


def register_http(metrics: Metrics, listeners: Sequence[HttpServer]) -> None:
    """Export HTTP requests and cut connections, of all listeners together."""

    def requests() -> Iterable[tuple[int, Mapping[str, str]]]:
        for (route, status), count in total_requests(listeners).items():
            yield count, {"route": route, "status": str(status)}

    metrics.labelled_counter(
        "headgate_http_requests", "HTTP requests by route and status.", ("route", "status"), requests
    )
    metrics.labelled_counter(
        "headgate_http_connections_cut",
        "HTTP connections cut to make room for others, by the resource that ran out.",
        ("reason",),
        lambda: [(count, {"reason": reason}) for reason, count in total_cut(listeners).items()],
    )
