"""Giving back: a settlement returns only what still counts, or quota of past windows could be saved up."""

from collections.abc import Iterable

from headgate.limiter.decision import Charge
from headgate.limiter.limit import Algorithm, Limit


def still_charged(
    charges: Iterable[Charge], *, estimate: int, unused: int, charged_ms: int, now_ms: int
) -> tuple[Charge, ...]:
    """Return the charges that give `unused` of an `estimate` back, each as far as it counts at `now_ms`."""
    found: list[Charge] = []
    for charge in charges:
        left = min(unused, _left(charge.limit, estimate, charged_ms, now_ms))
        if left > 0:
            found.append(Charge(charge.key, charge.limit, left, shard_key=charge.shard_key, late=False))
    return tuple(found)


def _left(limit: Limit, estimate: int, charged_ms: int, now_ms: int) -> int:
    """Return the part of an estimate that still counts in full.

    Of a window that is over nothing: what is given back is room in the present one, where it was not used. Of a bucket
    what has not drained since, as if nothing else had been in it.
    """
    if limit.algorithm is Algorithm.GCRA:
        drained = -(-max(0, now_ms - charged_ms) * limit.requests_per_unit // limit.window_ms)
        return estimate - drained
    return estimate if now_ms // limit.window_ms == charged_ms // limit.window_ms else 0
