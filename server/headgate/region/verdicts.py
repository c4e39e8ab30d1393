"""From the legs of a request to the decision that its caller is told.

Nothing is charged here. What is worked out for a denial, how long until the same cost would
fit, is kept with the counter, so that the next such request is denied from memory.
"""

from typing import Final

from headgate.limiter.decision import Charge, Decision, DecisionPath, Verdict, only_shadow_over
from headgate.region import policy
from headgate.region.counters import SharedCounter
from headgate.region.leg import Leg
from headgate.region.outcomes import admitted

LOCAL: Final = DecisionPath.LOCAL
NOT_BY_COUNTS_RETRY_MS: Final = 1
"""The wait that a denial tells its caller when the counts have room by now: the shard said no an instant ago."""


def decision_of(legs: list[Leg], admits: bool, path: DecisionPath, now_s: float) -> Decision:
    """Return the decision with a verdict per leg; only shadow rules being over is a path of its own."""
    verdicts = [verdict_of(leg, path, now_s) for leg in legs]
    if admits and path is LOCAL:
        outcomes = [leg.outcome for leg in legs]
        if min(outcomes) < 0 and only_shadow_over(tuple([leg.charge for leg in legs]), outcomes):
            path = DecisionPath.SHADOW
    return Decision(admits, path, verdicts)


def denied_from_memory(leg: Leg, now_s: float) -> bool:
    """Return whether a kept denial, or the pause of its key, denies this leg without looking at the counts."""
    charge, counter = leg.charge, leg.counter
    if counter.denies(charge.cost, charge.limit, counter.shard.time.at_ms(now_s)):
        return True
    return counter.pause_left_ms(charge.cost, now_s) > 0


def denied_again(counter: SharedCounter, charge: Charge, now_s: float) -> Verdict | None:
    """Deny a charge as the same one was before, or because its key pauses; None, and nothing noted: the plain rule must
    decide. (tests/unit/region/test_denials.py holds both equal.)"""
    limit = charge.limit
    known = counter.deny_until_ms and charge.cost == counter.deny_cost and limit is counter.deny_limit
    if (not known and counter.pause is None) or counter.limit is not limit:
        return None
    now_ms = counter.come_to(limit, now_s)
    pause_ms = counter.pause_left_ms(charge.cost, now_s)
    if known and now_ms < counter.deny_until_ms:
        counter.ask(charge.cost)
        return True, 0, max(counter.deny_until_ms - now_ms, pause_ms)
    if not pause_ms:
        return None
    counter.ask(charge.cost)
    return _denial(charge, counter, now_ms, pause_ms)


def admission_of(leg: Leg, remaining: int, now_ms: int) -> Verdict:
    """Return what the caller is told of a leg that was admitted and leaves `remaining`."""
    return False, remaining, leg.counter.reset_ms(now_ms)


def verdict_of(leg: Leg, path: DecisionPath, now_s: float) -> Verdict:
    """Return what the caller is told of one leg, in a request that was decided on this path."""
    charge, counter = leg.charge, leg.counter
    now_ms = counter.come_to(charge.limit, now_s)
    if admitted(leg.outcome):
        room = counter.room(now_ms)
        return admission_of(leg, room if room > 0 else 0, now_ms)
    pause_ms = counter.pause_left_ms(charge.cost, now_s)
    if path in policy.PATHS.values() and not _is_kept(charge, counter, now_ms):
        return True, 0, max(_retry_ms(charge, counter, now_ms), pause_ms, policy.DEGRADED_RETRY_MS)
    return _denial(charge, counter, now_ms, pause_ms)


def _denial(charge: Charge, counter: SharedCounter, now_ms: int, pause_ms: int) -> Verdict:
    """Return when to come again, and keep it: the charge is over its limit, and not by a failure policy."""
    if _is_kept(charge, counter, now_ms):
        return True, 0, max(counter.deny_until_ms - now_ms, pause_ms)
    retry_ms = _retry_ms(charge, counter, now_ms)
    if not retry_ms:
        return True, 0, max(pause_ms, NOT_BY_COUNTS_RETRY_MS)
    # A reservation may be released again, and the denial with it; what was charged may be given back at any time.
    if not counter.reserved and not charge.limit.refund:
        counter.keep_denial(charge.cost, charge.limit, now_ms + retry_ms)
    return True, 0, max(retry_ms, pause_ms)


def _is_kept(charge: Charge, counter: SharedCounter, now_ms: int) -> bool:
    """Return whether the denial that is kept with the counter is this charge's."""
    return now_ms < counter.deny_until_ms and counter.deny_cost == charge.cost and counter.deny_limit is charge.limit


def _retry_ms(charge: Charge, counter: SharedCounter, now_ms: int) -> int:
    """Return how long until it fits by all that is known; 0 when it does, because credit has come back since."""
    missing = counter.missing(charge.cost)
    if missing <= counter.room(now_ms):
        return 0
    return charge.algorithm.retry_ms(counter, charge.limit, now_ms, missing)
