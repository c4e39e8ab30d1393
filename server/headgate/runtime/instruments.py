"""Every metric of the process, by name: the one place that says what is exported.

Each line reads plain numbers that somebody keeps anyway. Labels come from enums and
literals in the code, so the number of series is fixed however many users there are.
"""

import contextlib
import gc
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.clock import Clock
from headgate.decision_log.assembly import DecisionLogging
from headgate.decision_log.instruments import register as register_decision_log
from headgate.endpoint.expiry import expires_at
from headgate.endpoint.tokens import TokenFile
from headgate.handler import RateLimitHandler
from headgate.keys.service import KeysService
from headgate.limiter.engine import Engine
from headgate.region.active import ActiveRegions
from headgate.region.breaker import BreakerState
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.region.shard_link import CALL_BOUNDS_S, ShardLink
from headgate.region.stats import WAIT_BOUNDS_S
from headgate.reservations.service import Limits
from headgate.rules.store import RuleStore
from headgate.runtime.garbage import MemoryKeeper
from headgate.runtime.keys_instruments import register_keys
from headgate.runtime.region_instruments import register_active, register_exchange
from headgate.runtime.regions import RegionExchange
from headgate.runtime.reservation_instruments import register_reservations
from headgate.runtime.rule_instruments import register_ratelimit_names, register_rules
from headgate.runtime.tasks import BackgroundTasks
from headgate.runtime.tracing import register as register_tracing
from headgate.telemetry.histogram import Buckets
from headgate.telemetry.logs import LogSink
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.process import LoopLag, register_process
from headgate.telemetry.traces import Tracing
from headgate.transport.http import HttpServer
from headgate.transport.http_listener import total_cut, total_requests
from headgate.transport.interface import DURATION_BOUNDS_S, GuardStats, Transport

FINGERPRINT_DIGITS = 12
"""Hex digits of a rule set's digest that fit a float exactly (48 of 53 bits)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a running process whose counters are exported."""

    version: str
    is_ready: Callable[[], bool]
    handler: RateLimitHandler
    engine: Engine | RegionalEngine
    node: RegionNode | None
    """None for a node on its own."""
    exchange: RegionExchange | None
    """None where this process speaks to no other region."""
    regions: ActiveRegions | None
    """None where there are no others."""
    ratelimit_metrics: bool
    """Whether counts per rule are there under envoyproxy/ratelimit's names too."""
    clock: Clock
    transport: Transport
    http: Sequence[HttpServer]
    """One, or one for callers and one for operators."""
    tokens: TokenFile | None
    """None where callers need none."""
    tracing: Tracing | None
    """None where traces are off."""
    certificates: Mapping[str, str]
    """Files of certificates, by what they are for."""
    rules: RuleStore
    lag: LoopLag
    memory: MemoryKeeper
    logs: LogSink
    tasks: BackgroundTasks
    keys: KeysService
    reservations: Limits
    decisions: DecisionLogging


def register(metrics: Metrics, parts: Parts) -> None:
    """Make every metric of a serving process. Call it once, when all parts exist."""
    _process(metrics, parts)
    _decisions(metrics, parts)
    _cells(metrics, parts)
    if parts.node is not None:
        _region(metrics, parts.node)
    if parts.regions is not None:
        register_active(metrics, parts.regions)
    if parts.exchange is not None:
        register_exchange(metrics, parts.exchange, parts.clock)
    register_keys(metrics, parts.keys)
    register_reservations(metrics, parts.reservations)
    _transport(metrics, parts)
    _certificates(metrics, parts.certificates)
    _rules(metrics, parts)
    _background(metrics, parts)
    if parts.tracing is not None:
        register_tracing(metrics, parts.tracing)
    register_decision_log(metrics, parts.decisions)


def _process(metrics: Metrics, parts: Parts) -> None:
    build = {"version": parts.version, "python": platform.python_version(), "transport": parts.transport.name}
    metrics.labelled_gauge(
        "headgate_build_info", "What runs here; always 1.", ("version", "python", "transport"), lambda: [(1, build)]
    )
    metrics.gauge("headgate_ready", "1 while serving, 0 while starting or draining.", lambda: int(parts.is_ready()))
    register_process(metrics)
    metrics.gauge("headgate_loop_lag_seconds", "How late the event loop ran, just now.", lambda: parts.lag.last_s)
    metrics.gauge(
        "headgate_loop_lag_peak_seconds",
        "The latest that the event loop ran in the last 15 to 30 s.",
        lambda: parts.lag.peak_s,
    )
    metrics.counter(
        "headgate_loop_stalls", "Times that the event loop ran more than 50 ms late.", lambda: parts.lag.stalls
    )


def _decisions(metrics: Metrics, parts: Parts) -> None:
    stats = parts.handler.stats

    def decisions() -> Iterable[tuple[int, Mapping[str, str]]]:
        for outcome, counts in (("admitted", stats.admitted), ("denied", stats.denied)):
            for path, count in counts.items():
                yield count, {"outcome": outcome, "path": path}

    metrics.labelled_counter(
        "headgate_decisions", "Decisions, by outcome and by what made them.", ("outcome", "path"), decisions
    )
    register_rules(metrics, parts.handler.tallies)
    if parts.ratelimit_metrics:
        register_ratelimit_names(metrics, parts.handler.tallies)
    metrics.counter("headgate_requests_refused", "Requests answered INVALID_ARGUMENT.", lambda: stats.refused)
    metrics.counter(
        "headgate_match_cache_misses",
        "Requests that had to be parsed and matched; all other decisions were hits.",
        lambda: stats.planned,
    )
    metrics.gauge("headgate_match_cache_bytes", "What cached requests take, by estimate.", lambda: stats.plan_bytes)
    metrics.counter(
        "headgate_match_cache_evicted", "Cached requests dropped to make room for others.", lambda: stats.plans_evicted
    )


def _cells(metrics: Metrics, parts: Parts) -> None:
    cells = parts.engine.counters
    metrics.gauge("headgate_cells_live", "Counters in memory.", lambda: len(cells))
    metrics.gauge("headgate_cells_max", "The most counters that may be in memory.", lambda: cells.max_cells)
    metrics.counter(
        "headgate_cells_restarted",
        "Counters begun anew because their shard's clock was set back.",
        lambda: cells.stats.restarted,
    )
    metrics.counter("headgate_cells_created", "Counters begun.", lambda: cells.stats.created)
    metrics.counter(
        "headgate_cells_expired", "Counters dropped because their time was over.", lambda: cells.stats.expired
    )
    metrics.counter(
        "headgate_cells_evicted",
        "Live counters dropped, least recently used first, to make room.",
        lambda: cells.stats.evicted,
    )
    metrics.counter(
        "headgate_cells_evicted_denying",
        "Of these, counters that were denying: nothing lighter was there to let go.",
        lambda: cells.stats.evicted_denying,
    )


def _region(metrics: Metrics, node: RegionNode) -> None:
    stats = node.engine.stats

    def per_shard(value: Callable[[ShardLink], int]) -> Callable[[], Iterable[tuple[int, Mapping[str, str]]]]:
        return lambda: [(value(link), {"shard": str(link.index)}) for link in node.links]

    metrics.gauge("headgate_live_nodes", "Nodes of the region, as last heard.", lambda: node.live_nodes)
    metrics.counter("headgate_origin_waits", "Requests that waited for a shard.", lambda: stats.asked)
    metrics.histogram(
        "headgate_origin_wait_seconds",
        "How long requests waited for shards, from the question to the decision.",
        WAIT_BOUNDS_S,
        lambda: Buckets(stats.waits, stats.waits_sum_s),
    )
    metrics.counter(
        "headgate_origin_deadline_missed",
        "Requests that waited until their deadline; failure policies decided them.",
        lambda: stats.deadline_missed,
    )
    metrics.counter(
        "headgate_cells_unplaced",
        "Requests on new keys while no counter could be dropped to make room.",
        lambda: stats.unplaced,
    )
    for name, text, value in (
        ("calls", "Calls to a shard.", lambda link: link.stats.calls),
        ("call_failures", "Calls to a shard that failed.", lambda link: link.stats.failures),
        ("reports", "Keys reported in calls to a shard.", lambda link: link.stats.reports),
        ("wants", "Questions to a shard that requests waited for.", lambda link: link.stats.wants),
        ("refills", "Times that a shard had lost its memory.", lambda link: link.stats.refills),
        ("clock_steps", "Times that a shard's clock was found to have been set.", lambda link: link.stats.clock_steps),
        ("unreadable", "Reports of keys whose records a shard could not read.", lambda link: link.stats.unreadable),
        (
            "over_limit",
            "Answers with more admitted than a limit and its precision.",
            lambda link: link.stats.over_limit,
        ),
        ("breaker_trips", "Times that a shard's breaker opened.", lambda link: link.breaker.trips),
        ("degraded", "Costs on a shard's keys that failure policies decided.", lambda link: stats.degraded[link.index]),
    ):
        metrics.labelled_counter(f"headgate_shard_{name}", text, ("shard",), per_shard(value))
    metrics.labelled_histogram(
        "headgate_shard_call_duration_seconds",
        "How long calls to a shard took that were answered.",
        ("shard",),
        CALL_BOUNDS_S,
        lambda: [
            (Buckets(link.stats.durations, link.stats.durations_sum_s), {"shard": str(link.index)})
            for link in node.links
        ],
    )
    metrics.labelled_gauge(
        "headgate_shard_replay_backlog",
        "Counters whose totals wait to be reported to a shard.",
        ("shard",),
        per_shard(lambda link: link.queued_flushes),
    )
    metrics.labelled_gauge(
        "headgate_shard_replay_age_seconds",
        "How long a shard has not acknowledged what it is told; 0 while it does.",
        ("shard",),
        lambda: [(link.behind_s, {"shard": str(link.index)}) for link in node.links],
    )
    metrics.labelled_gauge(
        "headgate_shard_open",
        "1 while nobody waits for a shard, because it fails.",
        ("shard",),
        per_shard(lambda link: int(link.breaker.state is not BreakerState.CLOSED)),
    )


def _connections(metrics: Metrics, stats: GuardStats) -> None:
    """Only a guard knows of connections; without one all of these are 0."""

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
    metrics.gauge(
        "headgate_grpc_unfinished_bytes", "Held for calls that have not arrived whole.", lambda: stats.unfinished_bytes
    )


def _transport(metrics: Metrics, parts: Parts) -> None:
    stats = parts.transport.stats

    def refused() -> Iterable[tuple[int, Mapping[str, str]]]:
        yield stats.refused_too_large, {"reason": "too_large"}
        yield stats.refused_overload, {"reason": "overload"}
        yield stats.refused_unauthenticated, {"reason": "unauthenticated"}
        yield stats.refused_forbidden, {"reason": "forbidden"}
        yield stats.refused_unfinished, {"reason": "unfinished"}

    def http() -> Iterable[tuple[int, Mapping[str, str]]]:
        for (route, status), count in total_requests(parts.http).items():
            yield count, {"route": route, "status": str(status)}

    metrics.histogram(
        "headgate_decision_duration_seconds",
        "How long calls took from when they were received to their answers, in this process. Calls that came together "
        "and were answered at once count with the time of all of them.",
        DURATION_BOUNDS_S,
        stats.durations.read,
    )
    metrics.counter("headgate_grpc_calls", "ShouldRateLimit calls received.", lambda: stats.calls)
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
    _connections(metrics, stats.guard)
    metrics.labelled_counter("headgate_http_requests", "HTTP requests by route and status.", ("route", "status"), http)
    metrics.labelled_counter(
        "headgate_http_connections_cut",
        "HTTP connections cut to make room for others, by what was short.",
        ("reason",),
        lambda: [(count, {"reason": reason}) for reason, count in total_cut(parts.http).items()],
    )
    if (tokens := parts.tokens) is not None:
        metrics.gauge("headgate_tokens", "Bearer tokens that are accepted.", lambda: len(tokens))
        metrics.counter(
            "headgate_token_reload_failures",
            "Changes of the token file that could not be used.",
            lambda: tokens.failures,
        )


def _certificates(metrics: Metrics, files: Mapping[str, str]) -> None:
    def expiries() -> Iterable[tuple[float, Mapping[str, str]]]:
        for use, path in files.items():
            # One that can't be read has no series: that it is wrong is logged where it is loaded.
            with contextlib.suppress(OSError, ValueError):
                yield expires_at(path), {"use": use}

    metrics.labelled_gauge(
        "headgate_certificate_expiry_timestamp_seconds",
        "When a certificate of this process ends, in unix time, as its file says now.",
        ("use",),
        expiries,
    )


def _rules(metrics: Metrics, parts: Parts) -> None:
    store = parts.rules

    def fingerprint() -> int:
        return int(store.current.version.digest[:FINGERPRINT_DIGITS], 16)

    metrics.gauge(
        "headgate_rules_version",
        "The number of the rule set in force: it rises with each new one.",
        lambda: store.current.version.counter,
    )
    metrics.gauge(
        "headgate_rules_fingerprint", "A number made from the rules: equal on nodes that have equal rules.", fingerprint
    )
    metrics.gauge("headgate_rules_limits", "Rules with a limit.", lambda: store.status.rules)
    metrics.gauge("headgate_rules_domains", "Domains with rules.", lambda: store.status.domains)
    metrics.gauge(
        "headgate_rules_loaded_timestamp_seconds",
        "When the rules in force were loaded, in unix time.",
        lambda: store.status.loaded_at,
    )
    metrics.gauge(
        "headgate_rules_in_sync",
        "1 while what the directory holds is what is served.",
        lambda: int(store.status.in_sync),
    )
    metrics.gauge(
        "headgate_rules_last_look_timestamp_seconds",
        "When the source of the rules was last looked at, in unix time.",
        lambda: store.looked_at,
    )
    metrics.counter("headgate_rules_reloads", "Rule sets that came into force.", lambda: store.status.accepted)
    metrics.counter(
        "headgate_rules_reload_failures", "Changes of the rules that were refused.", lambda: store.status.rejected
    )


def _background(metrics: Metrics, parts: Parts) -> None:
    def collections() -> Iterable[tuple[int, Mapping[str, str]]]:
        for generation, stats in enumerate(gc.get_stats()):
            yield stats["collections"], {"generation": str(generation)}

    def restarts() -> Iterable[tuple[int, Mapping[str, str]]]:
        for task, count in tuple(parts.tasks.restarts.items()):
            yield count, {"task": task}

    metrics.labelled_counter("headgate_gc_collections", "Runs of the garbage collector.", ("generation",), collections)
    metrics.counter(
        "headgate_gc_freezes",
        "Times that long-lived objects were set aside from the garbage collector.",
        lambda: parts.memory.stats.freezes,
    )
    metrics.counter("headgate_log_lines_dropped", "Log lines dropped: stderr was not read.", lambda: parts.logs.dropped)
    metrics.labelled_counter(
        "headgate_task_restarts", "Background tasks that ended and were begun again.", ("task",), restarts
    )
