"""Metrics of a node in its region: waits for shards, calls to each shard, and how many regions share limits."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headgate.region.active import ActiveRegions
from headgate.region.breaker import BreakerState
from headgate.region.node import RegionNode
from headgate.region.shard_link import ShardLink
from headgate.region.stats import CALL_BOUNDS_S, WAIT_BOUNDS_S
from headgate.telemetry.histogram import Buckets
from headgate.telemetry.metrics import Metrics

CELL_ALARMS: Final = (1.5, 3.0)
"""Multiples of a limit of scope `cell` that all regions together may admit, at which to warn, and to shout."""


def register(metrics: Metrics, node: RegionNode) -> None:
    """Export the node's waits, and each shard's calls and state."""
    _register_waits(metrics, node)
    _register_calls(metrics, node)
    _register_states(metrics, node)


def register_active(metrics: Metrics, active: ActiveRegions) -> None:
    """Export how many regions share limits, as a node of any of them knows."""
    metrics.gauge("headgate_regions_active", "Regions that were heard lately, this one included.", lambda: active.count)
    metrics.gauge(
        "headgate_regions_configured", "Regions that there are, this one included.", lambda: active.configured
    )
    metrics.labelled_gauge(
        "headgate_cell_scope_exceeded",
        "1 while limits of scope cell may be exceeded this many times, because regions do not hear each other.",
        ("times",),
        lambda: [(int(active.factor >= times), {"times": f"{times:g}"}) for times in CELL_ALARMS],
    )


def _register_waits(metrics: Metrics, node: RegionNode) -> None:
    stats = node.engine.stats
    metrics.gauge("headgate_live_nodes", "Nodes of the region, as last heard.", lambda: node.live_nodes)
    metrics.gauge(
        "headgate_origin_nodes_listed_otherwise",
        "Nodes of the region that want another list of shards, as last heard.",
        lambda: node.listed_otherwise,
    )
    metrics.gauge(
        "headgate_origin_list_changing",
        "1 while the list of shards in the settings is not in force yet, or keys move to it.",
        lambda: int(node.lists.changing),
    )
    metrics.counter("headgate_origin_keys_moved", "Keys that this node has moved.", lambda: node.lists.mover.moved)
    metrics.counter("headgate_origin_waits", "Requests that waited for a shard.", lambda: stats.asked)
    metrics.histogram(
        "headgate_origin_wait_seconds",
        "Time that requests waited for shards, from the question to the decision.",
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


def _register_calls(metrics: Metrics, node: RegionNode) -> None:
    degraded = node.engine.stats.degraded
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
        ("degraded", "Costs on a shard's keys that failure policies decided.", lambda link: degraded[link.index]),
    ):
        metrics.labelled_counter(f"headgate_shard_{name}", text, ("shard",), _per_shard(node, value))
    metrics.labelled_histogram(
        "headgate_shard_call_duration_seconds",
        "Duration of calls that a shard answered.",
        ("shard",),
        CALL_BOUNDS_S,
        lambda: [
            (Buckets(link.stats.durations, link.stats.durations_sum_s), {"shard": str(link.index)})
            for link in node.links_in_use
        ],
    )


def _register_states(metrics: Metrics, node: RegionNode) -> None:
    for name, text, value in (
        (
            "replay_backlog",
            "Counters whose totals wait to be reported to a shard.",
            lambda link: link.session.queued_flushes,
        ),
        (
            "replay_age_seconds",
            "Seconds since a shard last acknowledged a report; 0 while it does.",
            lambda link: link.behind_s,
        ),
        (
            "open",
            "1 while the shard's circuit breaker is open.",
            lambda link: int(link.breaker.state is not BreakerState.CLOSED),
        ),
    ):
        metrics.labelled_gauge(f"headgate_shard_{name}", text, ("shard",), _per_shard(node, value))


def _per_shard(
    node: RegionNode, value: Callable[[ShardLink], float]
) -> Callable[[], Iterable[tuple[float, Mapping[str, str]]]]:
    return lambda: [(value(link), {"shard": str(link.index)}) for link in node.links_in_use]
