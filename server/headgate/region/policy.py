"""Failure policies: what a rule admits while its shard can't be asked.

`closed` denies. `local` decides from what is known, counting this node's own new hits
once for every 1.5 live nodes, so that all nodes together admit at most 1.5 times the
mean of what they knew to be left. `open` admits what `local` does, and whatever others
have used up to this node's part of 1.5 times the limit: N nodes that know nothing of
each other admit 1.5 times the limit, not N times. (docs/convergence.md, section 8.)
"""

from typing import Final

from headgate.limiter.decision import DecisionPath
from headgate.limiter.limit import Algorithm, Limit, OnError
from headgate.region.counters import SharedCounter

DEGRADED_RETRY_MS: Final = 1_000
"""The wait that a degraded denial tells the caller: nobody knows when the shard is back; soon is likely."""

PATHS: Final = {
    OnError.LOCAL: DecisionPath.DEGRADED_LOCAL,
    OnError.OPEN: DecisionPath.DEGRADED_OPEN,
    OnError.CLOSED: DecisionPath.DEGRADED_CLOSED,
}


def admits(counter: SharedCounter, limit: Limit, cost: int, now_ms: int, live_nodes: int) -> bool:
    """Return whether the rule's policy admits the cost; nothing is charged. The counter has come under the limit."""
    if limit.on_error is OnError.CLOSED or not limit.requests_per_unit:
        return False
    for_all = weighted(counter.own_unacked + counter.missing(cost), live_nodes)
    if counter.fits_instead(for_all, now_ms):
        return True
    return limit.on_error is OnError.OPEN and counter.own_admitted + cost <= ceiling(limit, live_nodes)


def weighted(own: int, live_nodes: int) -> int:
    """Return own cost × max(1, live nodes ÷ 1.5), rounded up."""
    return max(own, -(-own * 2 * live_nodes // 3))


def ceiling(limit: Limit, live_nodes: int) -> int:
    """Return a node's part of 1.5 times the limit: at most the limit, and 1 at least, or `open` might deny all."""
    capacity = limit.burst if limit.algorithm is Algorithm.GCRA else limit.requests_per_unit
    return min(capacity, max(1, capacity * 3 // (2 * live_nodes)))
