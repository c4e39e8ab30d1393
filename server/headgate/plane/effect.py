"""Effect of changes on callers: may any of them be denied more than before?

Only rules that stand beside or above a change are looked up, so the cost follows from the change, whatever the size of
the domain. What can't be shown to be looser, or to make no difference, counts as tighter. A change does one of:

- It changes the limit of a rule that stays: the limits are compared.
- It brings a way that was not there, and callers come to it from what they met before: an exact value from the pattern,
  or the key alone, beside it. Their limits are compared; a limit for several values is tighter in any case.
- It takes a way off, and callers go to what stands beside it.
- It changes the order of patterns, which is tighter.

A limit that `replaces` others, or is one of several quotas, lets callers through that others would stop. Whoever
loses such a one may be denied more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headgate.limiter.limit import Limit, OnError
from headgate.limiter.rule_name import Steps, steps_text
from headgate.plane.content import in_order, place_of, slot_of
from headgate.plane.entry import RuleChange
from headgate.plane.rules_view import RulesInForce, RulesView
from headgate.rules.model import RuleContent
from headgate.rules.wildcards import STAR, is_pattern

MOST_LOOKED_AT: Final = 100
"""Rules below one that callers leave, that are looked at. Among more of them anything may be."""

_STRICTNESS: Final = {OnError.OPEN: 0, OnError.LOCAL: 1, OnError.CLOSED: 2}


def tighter(rules: RulesInForce, domain: str, changes: Sequence[RuleChange]) -> str | None:
    """Say what makes changes of a domain's rules tighter for somebody; None if nothing does."""
    changed = {change.path: change.rule for change in changes if change.path}
    before, after = RulesView(rules, domain), RulesView(rules, domain, changed)
    for path, reason in _reasons(before, after, changed):
        if reason is not None:
            return f"{steps_text(path)}: {reason}"
    return None


def _reasons(before: RulesView, after: RulesView, changed: Iterable[Steps]) -> Iterator[tuple[Steps, str | None]]:
    for path in changed:
        yield path, _of_one(before, after, path)
    for way in _missing(after, changed):
        yield way, _left(before, after, way)
    for way in _missing(before, changed):
        yield way, _displaced(before, way)
    for above, key in {slot for path in changed if (slot := slot_of(path)) is not None}:
        yield (*above, (key, STAR)), _reordered(before.patterns(above, key), after.patterns(above, key))


def _missing(view: RulesView, paths: Iterable[Steps]) -> Iterable[Steps]:
    """Ways to these paths that are not there, each once."""
    return dict.fromkeys(way for path in paths if (way := view.first_missing(path)) is not None)


# One change


def _of_one(before: RulesView, after: RulesView, path: Steps) -> str | None:
    will, came = after.rule(path), before.first_missing(path)
    if came is None:
        return _compared(before.rule(path), will, moved=False)
    new_steps = path[len(came) - 1 :]
    if any(not value or is_pattern(key, value) for key, value in new_steps):
        return "a new limit for several values" if _enforced(will) or _binds(will) or will.shared else None
    return _compared(before.met(came[:-1], new_steps), will, moved=True)


def _left(before: RulesView, after: RulesView, gone: Steps) -> str | None:
    """Compare a rule that is gone, with all below it, with those that its callers meet now."""
    was = before.rule(gone)
    for other in after.beside(gone):
        if after.has_below(other):
            return f"callers come to {steps_text(other)} and all below it"
        if (reason := _compared(was, after.rule(other), moved=True)) is not None:
            return f"callers come to {steps_text(other)}: {reason}"
    return None


def _displaced(before: RulesView, came: Steps) -> str | None:
    """Look for rules that callers no longer meet and that let others be."""
    for other in before.beside(came):
        below = before.below(other, MOST_LOOKED_AT + 1)
        if len(below) > MOST_LOOKED_AT or any(map(_binds, (before.rule(other), *below))):
            return f"callers leave {steps_text(other)}, below which others may be replaced"
    return None


def _reordered(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str | None:
    """Compare the order of patterns that stay."""
    both = before.keys() & after.keys()
    orders = [in_order({value: place_of(rule) for value, rule in side.items()}) for side in (before, after)]
    stay = [[value for value in order if value in both] for order in orders]
    return None if stay[0] == stay[1] else "another order"


# Limits


def _compared(before: RuleContent, after: RuleContent, *, moved: bool) -> str | None:
    """Say in what the second rule is tighter for callers of the first; `moved`: it is another rule's counter."""
    was, will = before.limit, after.limit
    if after.shared and (moved or not before.shared):
        return "its values share one counter"
    if _lets_be(was) != _lets_be(will):
        return "other limits are replaced, or other quotas count"
    if will is None or not _enforced(after):
        return None
    if was is None or not _enforced(before):
        return "a limit where there was none"
    return _less(was, will)


def _less(was: Limit, will: Limit) -> str | None:
    if will.requests_per_unit < was.requests_per_unit or will.burst < was.burst:
        return "a lower limit"
    if _STRICTNESS[will.on_error] > _STRICTNESS[was.on_error]:
        return "a stricter on_error"
    if was.name and will.name != was.name:
        return "another name, which others may replace"
    return None if _in_kind(was) == _in_kind(will) else "another kind of limit"


def _in_kind(limit: Limit) -> Limit:
    """The limit without all that is compared by amount, or means nothing to callers."""
    return replace(
        limit,
        requests_per_unit=1,
        burst=1,
        on_error=OnError.LOCAL,
        name="",
        metadata=None,
        detailed_metric=False,
        value_to_metric=False,
    )


def _enforced(rule: RuleContent) -> bool:
    return rule.limit is not None and not rule.limit.unlimited and not rule.limit.shadow


def _lets_be(limit: Limit | None) -> tuple[tuple[str, ...], bool]:
    return ((), False) if limit is None else (limit.replaces, limit.quota)


def _binds(rule: RuleContent) -> bool:
    return _lets_be(rule.limit) != ((), False)
