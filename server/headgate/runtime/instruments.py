"""Every metric of the process, by name: the one place that says what is exported.

Each line reads plain numbers that somebody keeps anyway. Labels come from enums and
literals in the code, so the number of series is fixed however many users there are.
"""

import gc
import itertools
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headgate.handler import RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.region.breaker import BreakerState
from headgate.region.engine import WAIT_BOUNDS_S, RegionalEngine
from headgate.region.node import RegionNode
from headgate.region.shard_link import ShardLink
from headgate.rules.store import RuleStore
from headgate.runtime.garbage import MemoryKeeper
from headgate.runtime.tasks import BackgroundTasks
from headgate.telemetry.logs import LogSink
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.otlp import MetricsPush, register_push
from headgate.telemetry.process import LoopLag, cpu_seconds, resident_bytes
from headgate.transport.http import HttpServer
from headgate.transport.interface import GuardStats, Transport

FINGERPRINT_DIGITS = 12
"""Hex digits of a rule set's digest that fit a float exactly (48 of 53 bits)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Who keeps the numbers."""

    version: str
    is_ready: Callable[[], bool]
    handler: RateLimitHandler
    engine: Engine | RegionalEngine
    node: RegionNode | None
    """None for a node on its own."""
    transport: Transport
    http: HttpServer
    rules: RuleStore
    lag: LoopLag
    memory: MemoryKeeper
    logs: LogSink
    tasks: BackgroundTasks
    push: MetricsPush | None
    """None where nothing is pushed."""


def register(metrics: Metrics, parts: Parts) -> None:
    """Call it once, when all parts are there."""
    _process(metrics, parts)
    _decisions(metrics, parts)
    _cells(metrics, parts)
    if parts.node is not None:
        _region(metrics, parts.node)
    _transport(metrics, parts)
    _rules(metrics, parts)
    _background(metrics, parts)


def _process(metrics: Metrics, parts: Parts) -> None:
    build = {"version": parts.version, "python": platform.python_version(), "transport": parts.transport.name}
    metrics.labelled_gauge("headgate_build_info", "What runs here; always 1.", lambda: [(1, build)])
    metrics.gauge("headgate_ready", "1 while serving, 0 while starting or draining.", lambda: int(parts.is_ready()))
    metrics.gauge("headgate_process_resident_memory_bytes", "Memory that the process holds.", resident_bytes)
    metrics.counter("headgate_process_cpu_seconds", "CPU time that the process has used.", cpu_seconds)
    metrics.gauge("headgate_loop_lag_seconds", "How late the event loop ran, just now.", lambda: parts.lag.last_s)
    metrics.gauge(
        "headgate_loop_lag_peak_seconds", "The latest that it ran in the last 15 to 30 s.", lambda: parts.lag.peak_s
    )
    metrics.counter("headgate_loop_stalls", "Times that it ran more than 50 ms late.", lambda: parts.lag.stalls)


def _decisions(metrics: Metrics, parts: Parts) -> None:
    stats = parts.handler.stats

    def decisions() -> Iterable[tuple[int, Mapping[str, str]]]:
        for outcome, counts in (("admitted", stats.admitted), ("denied", stats.denied)):
            for path, count in counts.items():
                yield count, {"outcome": outcome, "path": path}

    metrics.labelled_counter("headgate_decisions", "Decisions, by outcome and by what made them.", decisions)
    metrics.counter("headgate_requests_refused", "Requests answered INVALID_ARGUMENT.", lambda: stats.refused)
    metrics.counter(
        "headgate_match_cache_misses",
        "Requests that had to be parsed and matched; all other decisions were hits.",
        lambda: stats.planned,
    )
    metrics.counter("headgate_match_cache_evicted", "Entries that made room for others.", lambda: stats.plans_evicted)


def _cells(metrics: Metrics, parts: Parts) -> None:
    cells = parts.engine.cells
    metrics.gauge("headgate_cells_live", "Counters in memory.", lambda: len(cells))
    metrics.gauge("headgate_cells_max", "How many there may be.", lambda: cells.max_cells)
    metrics.counter("headgate_cells_created", "Counters begun.", lambda: cells.stats.created)
    metrics.counter(
        "headgate_cells_expired", "Counters dropped because their time was over.", lambda: cells.stats.expired
    )
    metrics.counter(
        "headgate_cells_evicted",
        "Live counters dropped, least recently used first, to make room.",
        lambda: cells.stats.evicted,
    )


def _region(metrics: Metrics, node: RegionNode) -> None:
    stats = node.engine.stats

    def per_shard(value: Callable[[ShardLink], int]) -> Callable[[], Iterable[tuple[int, Mapping[str, str]]]]:
        return lambda: [(value(link), {"shard": str(link.index)}) for link in node.links]

    def waits() -> Iterable[tuple[int, Mapping[str, str]]]:
        for bound_s, count in zip((*WAIT_BOUNDS_S, "+Inf"), itertools.accumulate(stats.waits), strict=True):
            yield count, {"le": str(bound_s)}

    metrics.gauge("headgate_live_nodes", "Nodes of the region, as last heard.", lambda: node.live_nodes)
    metrics.counter("headgate_origin_waits", "Requests that waited for a shard.", lambda: stats.asked)
    metrics.labelled_counter(
        "headgate_origin_waits_within", "Waits that were over within `le` seconds, as in a histogram.", waits
    )
    metrics.counter(
        "headgate_origin_deadline_missed", "Of these, decided by their rules' policies.", lambda: stats.deadline_missed
    )
    metrics.counter(
        "headgate_cells_unplaced", "Requests on new keys when no cell could make room.", lambda: stats.unplaced
    )
    for name, text, value in (
        ("calls", "Calls to a shard.", lambda link: link.stats.calls),
        ("call_failures", "Of these, failed.", lambda link: link.stats.failures),
        ("reports", "Keys reported in them.", lambda link: link.stats.reports),
        ("wants", "Questions that requests waited for.", lambda link: link.stats.wants),
        ("refills", "Times that a shard had lost its memory.", lambda link: link.stats.refills),
        ("breaker_trips", "Times that its breaker opened.", lambda link: link.breaker.trips),
        ("degraded", "Costs on its keys that failure policies decided.", lambda link: stats.degraded[link.index]),
    ):
        metrics.labelled_counter(f"headgate_shard_{name}", text, per_shard(value))
    metrics.labelled_gauge(
        "headgate_shard_open",
        "1 while nobody waits for a shard, because it fails.",
        per_shard(lambda link: int(link.breaker.state is not BreakerState.CLOSED)),
    )


def _connections(metrics: Metrics, stats: GuardStats) -> None:
    """Only a guard knows of connections; without one all of these are 0."""

    def by_reason(counts: Mapping[str, int]) -> Callable[[], Iterable[tuple[int, Mapping[str, str]]]]:
        return lambda: [(count, {"reason": reason}) for reason, count in counts.items()]

    metrics.gauge("headgate_grpc_connections", "Connections through the guard.", lambda: stats.live)
    metrics.counter("headgate_grpc_connections_accepted", "Connections begun.", lambda: stats.accepted)
    metrics.labelled_counter(
        "headgate_grpc_connections_refused", "Closed at once, by the bound that was reached.", by_reason(stats.refused)
    )
    metrics.labelled_counter(
        "headgate_grpc_connections_closed", "Ended, by the bound that was reached or who left.", by_reason(stats.closed)
    )
    metrics.gauge(
        "headgate_grpc_unfinished_bytes", "Held for calls that have not arrived whole.", lambda: stats.unfinished_bytes
    )


def _transport(metrics: Metrics, parts: Parts) -> None:
    stats = parts.transport.stats

    def refused() -> Iterable[tuple[int, Mapping[str, str]]]:
        yield stats.refused_too_large, {"reason": "too_large"}
        yield stats.refused_overload, {"reason": "overload"}
        yield stats.refused_unfinished, {"reason": "unfinished"}

    def http() -> Iterable[tuple[int, Mapping[str, str]]]:
        for (route, status), count in parts.http.requests.items():
            yield count, {"route": route, "status": str(status)}

    metrics.counter("headgate_grpc_calls", "ShouldRateLimit calls received.", lambda: stats.calls)
    metrics.gauge("headgate_grpc_pending_calls", "Calls waiting for an answer.", lambda: stats.pending_calls)
    metrics.gauge("headgate_grpc_pending_bytes", "Their size.", lambda: stats.pending_bytes)
    metrics.labelled_counter("headgate_grpc_refused", "Calls refused before they were decided.", refused)
    metrics.counter(
        "headgate_grpc_dropped_expired",
        "Calls dropped because their deadline had passed.",
        lambda: stats.dropped_expired,
    )
    metrics.counter("headgate_grpc_failed_internal", "Calls answered INTERNAL.", lambda: stats.failed_internal)
    _connections(metrics, stats.guard)
    metrics.labelled_counter("headgate_http_requests", "HTTP requests by route and status.", http)


def _rules(metrics: Metrics, parts: Parts) -> None:
    store = parts.rules

    def fingerprint() -> int:
        return int(store.current.version.digest[:FINGERPRINT_DIGITS], 16)

    metrics.gauge(
        "headgate_rules_version", "Counts the rule sets since the start.", lambda: store.current.version.counter
    )
    metrics.gauge("headgate_rules_fingerprint", "Equal on nodes that have equal rules.", fingerprint)
    metrics.gauge("headgate_rules_limits", "Rules with a limit.", lambda: store.status.rules)
    metrics.gauge("headgate_rules_domains", "Domains with rules.", lambda: store.status.domains)
    metrics.gauge(
        "headgate_rules_loaded_timestamp_seconds", "When they came into force.", lambda: store.status.loaded_at
    )
    metrics.gauge(
        "headgate_rules_in_sync",
        "1 while what the directory holds is what is served.",
        lambda: int(store.status.in_sync),
    )
    metrics.counter("headgate_rules_reloads", "Rule sets that came into force.", lambda: store.status.accepted)
    metrics.counter("headgate_rules_reload_failures", "Changes that were refused.", lambda: store.status.rejected)


def _background(metrics: Metrics, parts: Parts) -> None:
    def collections() -> Iterable[tuple[int, Mapping[str, str]]]:
        for generation, stats in enumerate(gc.get_stats()):
            yield stats["collections"], {"generation": str(generation)}

    def restarts() -> Iterable[tuple[int, Mapping[str, str]]]:
        for task, count in parts.tasks.restarts.items():
            yield count, {"task": task}

    metrics.labelled_counter("headgate_gc_collections", "Runs of the garbage collector.", collections)
    metrics.counter(
        "headgate_gc_freezes", "Times that survivors were set aside from it.", lambda: parts.memory.stats.freezes
    )
    metrics.counter("headgate_log_lines_dropped", "Log lines dropped: stderr was not read.", lambda: parts.logs.dropped)
    if parts.push is not None:
        register_push(metrics, parts.push)
    metrics.labelled_counter("headgate_task_restarts", "Background tasks that ended and were begun again.", restarts)
