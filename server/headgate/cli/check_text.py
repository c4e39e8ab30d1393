"""A decision in sentences, for people: `headgate check` in a terminal."""

from collections.abc import Sequence

from headgate_client import Decision, DescriptorStatus
from headgate_client.unmet import Unmet

from headgate.console.times import seconds

NO_UNIT = "UNKNOWN"
"""The unit of a window of several: what travels has no place for five minutes."""

_UNMET = {
    Unmet.NO_DOMAIN: "not limited: this server has no rules for domain {domain!r}",
    Unmet.NO_RULE: "not limited: no rule of domain {domain!r} applies to it"
    "; `headgate rules explain DIR --domain {domain} '{text}'` says why",
    Unmet.REPLACED: "not counted: another rule of this request replaces its rule",
    Unmet.EXEMPT: "exempt: its rule has no limit",
}


def lines_of(decision: Decision, domain: str, descriptors: Sequence[str]) -> list[str]:
    """Say whether the request is admitted, and what that means for each of its descriptors."""
    outcome = "OK" if decision.allowed else "OVER LIMIT"
    said = [
        f"{text} is {_state(status, text, domain, admitted=decision.allowed)}"
        for text, status in zip(descriptors, decision.statuses, strict=False)
    ]
    return [f"{outcome}: {said[0]}."] if len(said) == 1 else [f"{outcome}:", *(f"  {one}." for one in said)]


def _state(status: DescriptorStatus, text: str, domain: str, *, admitted: bool) -> str:
    if status.limit is None:
        return (
            _UNMET[status.unmet].format(domain=domain, text=text)
            if status.unmet is not None
            else _without_reason(status)
        )
    per = "" if status.limit.unit == NO_UNIT else f" per {status.limit.unit.lower()}"
    limit = f"its limit of {status.limit.requests_per_unit}{per}"
    if not status.allowed and not status.limit.requests_per_unit:
        return "always denied: its limit is 0"
    if not status.allowed:
        when = f": try again in {seconds(status.reset_ms)}" if status.reset_ms else ""
        return f"over {limit}{when}"
    charged = "" if admitted else ", and was not charged"
    return f"within {limit}, with {status.remaining} left{charged}"


def _without_reason(status: DescriptorStatus) -> str:
    """A status without a limit, of a server that does not say why; under a rule that is unlimited much is left."""
    return "unlimited" if status.remaining else "not limited: no rule applies to it"
