"""Policies for limits that come with a request (`limit` in a descriptor).

`allow` takes them instead of the rule's: for callers who are trusted to say what they are limited to. `lower` lets them
only take away: the rule's own counter is charged in any case, and where the request asks for less than the rule gives,
that limit is charged too, on a counter of its own, and both must have room. So a caller gets no more than the rule
gives, with any limit and unit. `refuse` answers with an error.
"""

from dataclasses import replace
from enum import StrEnum

from headgate.limiter.limit import Limit


class RequestLimits(StrEnum):
    """Policy for a limit that a request brings: take it, take it if it is smaller, or answer with an error."""

    ALLOW = "allow"
    LOWER = "lower"
    REFUSE = "refuse"


def is_smaller(asked: Limit, rule: Limit) -> bool:
    """Return true if a limit gives less: fewer requests in the same time; of equal rates, the smaller count."""
    if rule.unlimited:
        return True
    asked_rate = asked.requests_per_unit * rule.window_ms
    rule_rate = rule.requests_per_unit * asked.window_ms
    return (asked_rate, asked.requests_per_unit) < (rule_rate, rule.requests_per_unit)


def lowered(asked: Limit, rule: Limit) -> Limit:
    """The request's number and unit; in all else it is treated as the rule that it is under."""
    return replace(
        asked,
        name=rule.name,
        precision_millionths=rule.precision_millionths,
        on_error=rule.on_error,
        traffic_class=rule.traffic_class,
        shadow=rule.shadow,
        overdraft=rule.overdraft,
        refund=rule.refund,
    )
