"""Changes, checked before they are published: nothing is accepted that `headgate rules check` would refuse."""

from collections.abc import Sequence

from headgate.limiter.rule_name import Steps
from headgate.plane.content import LEADS_ON, PLACE
from headgate.plane.entry import RecordKind, RuleChange
from headgate.plane.rule_log import RuleLog
from headgate.plane.rule_text import RuleProblem, checked, dump
from headgate.rules.wildcards import is_pattern


def check_changes(log: RuleLog, changes: Sequence[RuleChange]) -> tuple[list[RuleChange], list[RuleProblem]]:
    """Return the changes in canonical form; or every problem of theirs, and then no change.

    A rule is checked by itself, in its domain: rules contradict nothing but their domain's own fields, and where these
    change, all rules of the domain are checked.
    """
    puts: dict[str, list[RuleChange]] = {}
    for change in changes:
        if change.rule is not None:
            puts.setdefault(change.domain, []).append(change)
    accepted = [change for change in changes if change.rule is None]
    problems: list[RuleProblem] = []
    for domain, rules in puts.items():
        good, bad = _check_domain(log, domain, rules, changes)
        accepted += good
        problems += bad
    return ([], problems) if problems else ([*accepted, *_leading_on(log, accepted)], [])


def _check_domain(
    log: RuleLog, domain: str, puts: Sequence[RuleChange], changes: Sequence[RuleChange]
) -> tuple[list[RuleChange], list[RuleProblem]]:
    if all(put.path for put in puts):
        return checked(domain, puts, log.rule(domain, ()))
    after = {rule.path: rule for part in log.parts([domain]) for rule in part.rules if rule.kind is RecordKind.RULE}
    after |= {change.path: change for change in changes if change.domain == domain}
    good, bad = checked(domain, [rule for rule in after.values() if rule.rule is not None], None)
    changed = {put.path for put in puts}
    return [rule for rule in good if rule.path in changed], bad


def _leading_on(log: RuleLog, changes: Sequence[RuleChange]) -> list[RuleChange]:
    """Patterns on the ways to rules that are put, where they have no rule of their own: they have a place too."""
    given = {(change.domain, change.path) for change in changes}
    missing: dict[tuple[str, Steps], None] = {}
    for change in changes:
        for end in range(1, len(change.path) if change.rule is not None else 0):
            way = (change.domain, change.path[:end])
            if is_pattern(*change.path[end - 1]) and way not in given and log.rule(*way) is None:
                missing[way] = None
    return [RuleChange(*way, dump({PLACE: 0, LEADS_ON: True})) for way in missing]
