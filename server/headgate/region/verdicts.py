"""From the legs of a request to the decision that its caller is told.

Nothing is charged here. What is worked out for a denial, how long until the same cost would
fit, is kept with the counter, so that the next such request is denied from memory.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.limiter.decision import (
    Charge,
    Decision,
    DecisionPath,
    Verdict,
    denied_before,
    only_shadow_over,
    remember_denial,
)
from headgate.region import policy

if TYPE_CHECKING:
    from headgate.region.counters import SharedCounter
    from headgate.region.waiting import Leg

NOT_BY_COUNTS_RETRY_MS = 1
"""What a denial tells its caller when the counts have room by now: the shard said no an instant ago."""


def decision_of(legs: "Sequence[Leg]", admitted: bool, path: DecisionPath, now_s: float) -> Decision:
    """The decision with a verdict per leg; only shadow rules being over is a path of its own."""
    verdicts = [verdict_of(leg, path, now_s) for leg in legs]
    outcomes = [leg.outcome for leg in legs]
    over = any(outcome < 0 for outcome in outcomes)
    if admitted and path is DecisionPath.LOCAL and over:
        path = DecisionPath.SHADOW if only_shadow_over(tuple([leg.charge for leg in legs]), outcomes) else path
    return Decision(admitted, path, verdicts)


def denied_from_memory(leg: "Leg", now_s: float) -> bool:
    """Whether the denial that is kept with the counter covers this charge, now; or it is not the node's turn to ask."""
    counter = leg.counter
    if counter.shard.now_ms() < counter.deny_until_ms and denied_before(counter, leg.charge):
        return True
    return _turn_ms(leg.charge, counter, now_s) > 0


def _turn_ms(charge: Charge, counter: "SharedCounter", now_s: float) -> int:
    """How long the node will not ask for so much; 0 if it may."""
    turns = counter.turns
    if turns is None or not turns.denies(counter, counter.missing(charge.cost), now_s):
        return 0
    return turns.left_ms(now_s)


def verdict_of(leg: "Leg", path: DecisionPath, now_s: float) -> Verdict:
    """What one leg is told, in a request that was decided so."""
    charge, counter = leg.charge, leg.counter
    limit, algorithm = charge.limit, charge.algorithm
    now_ms = counter.advance(counter.shard.now_ms())
    if leg.outcome >= 0:
        return False, *algorithm.standing(counter, limit, now_ms)
    turn_ms = _turn_ms(charge, counter, now_s)
    if path in policy.PATHS.values() and not _is_kept(charge, counter, now_ms):
        return True, 0, max(_retry_ms(charge, counter, now_ms), turn_ms, policy.DEGRADED_RETRY_MS)
    return denial(charge, counter, now_ms, turn_ms)


def denial(charge: Charge, counter: "SharedCounter", now_ms: int, turn_ms: int) -> Verdict:
    """What a charge is told that is over its limit, and not by a failure policy: when to come again. It is kept.

    `turn_ms`: how long the node will not ask for so much; 0 if it may. The counter has come to `now_ms`.
    """
    if _is_kept(charge, counter, now_ms):
        return True, 0, max(counter.deny_until_ms - now_ms, turn_ms)
    retry_ms = _retry_ms(charge, counter, now_ms)
    if not retry_ms:
        return True, 0, max(turn_ms, NOT_BY_COUNTS_RETRY_MS)
    # A reservation may be released again, and the denial with it; what was charged may be given back at any time.
    if not counter.reserved and not charge.limit.refund:
        remember_denial(counter, charge, now_ms + retry_ms)
    return True, 0, max(retry_ms, turn_ms)


def _is_kept(charge: Charge, counter: "SharedCounter", now_ms: int) -> bool:
    """Whether the denial that is kept with the counter is this charge's."""
    return now_ms < counter.deny_until_ms and counter.deny_cost == charge.cost and counter.deny_limit is charge.limit


def _retry_ms(charge: Charge, counter: "SharedCounter", now_ms: int) -> int:
    """How long until it fits by all that is known; 0 when it does, because credit has come back since."""
    missing = counter.missing(charge.cost)
    if charge.algorithm.take(counter, charge.limit, now_ms, missing) >= 0:
        charge.algorithm.release(counter, charge.limit, missing)
        return 0
    return charge.algorithm.retry_ms(counter, charge.limit, now_ms, missing)
