"""Differences between two rule sets: every caller that gets another limit, or whose limit counts anew.

Callers are told apart by the rules of both sets (`callers.py`), so what changes below a rule that came, went or moved
is found too: a new `user=ann` takes over from `user`, and ann meets nothing any more of what stands below `user`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import steps_text
from headgate.rules.callers import callers_of
from headgate.rules.explain import describe, words_of
from headgate.rules.model import Match
from headgate.rules.ruleset import RuleSet


class Effect(StrEnum):
    """Effect of a difference on the callers that it concerns."""

    TIGHTER = "tighter"
    LOOSER = "looser"
    NEW_LIMIT = "new limit"
    NO_LIMIT = "no limit any more"
    COUNTS_ANEW = "counts anew"
    OTHERWISE = "otherwise"


@dataclass(frozen=True, slots=True)
class Difference:
    """Callers that meet another limit, or another rule, in the new set than in the old one."""

    domain: str
    rule: str
    """The callers as a rule would name them, for people."""
    effect: Effect
    before: Match | None
    after: Match | None

    def __str__(self) -> str:
        before, after = _side(self.before, self.after), _side(self.after, self.before)
        return f"{self.domain}: {self.rule}: {before} -> {after} ({self.effect.value})"

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON, for programs."""
        return {
            "domain": self.domain,
            "rule": self.rule,
            "effect": self.effect.value,
            "before": _side_json(self.before),
            "after": _side_json(self.after),
        }


def differences(old: RuleSet, new: RuleSet) -> Iterator[Difference]:
    """Every caller whom the new set decides otherwise than the old one."""
    for domain in sorted({*old.domains, *new.domains}):
        for caller in callers_of(old, new, domain):
            before, after = (rules.match(domain, caller.entries) for rules in (old, new))
            effect = _effect(before, after)
            if effect is not None:
                yield Difference(domain, steps_text(caller.steps), effect, before, after)


def _effect(before: Match | None, after: Match | None) -> Effect | None:
    if before is None or after is None:
        if before is after:
            return None
        return Effect.NEW_LIMIT if before is None else Effect.NO_LIMIT
    if before.limit == after.limit and before.key == after.key:
        return None
    return _compared(before.limit, after.limit) or (Effect.COUNTS_ANEW if before.key != after.key else Effect.OTHERWISE)


def _compared(before: Limit, after: Limit) -> Effect | None:
    """Effect of another limit: callers get less or more; None if neither."""
    left, right = _rate(before), _rate(after)
    if left == right:
        return None
    return Effect.TIGHTER if right < left else Effect.LOOSER


def _rate(limit: Limit) -> tuple[bool, float, int]:
    """Order limits by how much they admit: not enforced first, then by rate, then by burst."""
    if limit.unlimited or limit.shadow:
        return True, 0.0, 0
    return False, limit.requests_per_unit / limit.window_ms, limit.burst


def _side(match: Match | None, other: Match | None) -> str:
    """Describe one side: its limit, and the details in which the other side differs."""
    if match is None:
        return "no limit"
    amount, *rest = words_of(match.limit)
    said = [] if other is None else words_of(other.limit)
    if other is None or other.limit.requests_per_unit != match.limit.requests_per_unit:
        # Follows from the amount, mostly.
        rest = [word for word in rest if not word.startswith("precision ")]
    name = "" if other is not None and other.name.id == match.name.id else f" [{match.name.id}]"
    return ", ".join([amount, *(word for word in rest if word not in said)]) + name


def _side_json(match: Match | None) -> dict[str, Any] | None:
    return None if match is None else {"rule": match.name.id, "limit": describe(match.limit)}
