"""Failure policies: what a rule admits while its shard can't be asked.

`closed` denies. `open` admits up to a hard local ceiling. `local` decides from what is
known, counting this node's own new hits once for every 1.5 live nodes, so that all
nodes together admit at most 1.5 times the mean of what they knew to be left.
(docs/convergence.md, section 8.)
"""

from typing import Final

from headgate.limiter.decision import DecisionPath
from headgate.limiter.limit import Algorithm, Limit, OnError
from headgate.region.bucket_counter import SharedBucket
from headgate.region.counters import SharedCounter
from headgate.region.window_counter import SharedWindow

DEGRADED_RETRY_MS: Final = 1_000
"""What a degraded denial tells the caller: nobody knows when the shard is back; soon is likely."""

PATHS: Final = {
    OnError.LOCAL: DecisionPath.DEGRADED_LOCAL,
    OnError.OPEN: DecisionPath.DEGRADED_OPEN,
    OnError.CLOSED: DecisionPath.DEGRADED_CLOSED,
}


def admits(counter: SharedCounter, limit: Limit, cost: int, now_ms: int, live_nodes: int) -> bool:
    """Whether the rule's policy admits the cost; nothing is charged."""
    if limit.on_error is OnError.CLOSED or not limit.requests_per_unit:
        return False
    if limit.on_error is OnError.OPEN:
        return counter.own_admitted + cost <= _capacity(limit)
    if isinstance(counter, SharedBucket):
        return _bucket_admits(counter, limit, cost, now_ms, live_nodes)
    assert isinstance(counter, SharedWindow)  # noqa: S101 - there is no third kind
    return _window_admits(counter, limit, cost, now_ms, live_nodes)


def weighted(own: int, live_nodes: int) -> int:
    """Own cost × max(1, live nodes ÷ 1.5), rounded up."""
    return max(own, -(-own * 2 * live_nodes // 3))


def _window_admits(counter: SharedWindow, limit: Limit, cost: int, now_ms: int, live_nodes: int) -> bool:
    own = counter.current_cell.unacked
    known = counter.current - own
    if limit.algorithm is Algorithm.SLIDING_WINDOW:
        left_ms = counter.window_ms - now_ms % counter.window_ms
        known += counter.previous * left_ms // counter.window_ms
    return known + weighted(own + counter.missing(cost), live_nodes) <= limit.requests_per_unit


def _bucket_admits(counter: SharedBucket, limit: Limit, cost: int, now_ms: int, live_nodes: int) -> bool:
    window_ms = limit.window_ms
    own = counter.unacked
    used = max(0, counter.tat - now_ms * counter.rate)
    known = max(0, used - own * window_ms)
    return known + weighted(own + counter.missing(cost), live_nodes) * window_ms <= limit.burst * window_ms


def _capacity(limit: Limit) -> int:
    return limit.burst if limit.algorithm is Algorithm.GCRA else limit.requests_per_unit
