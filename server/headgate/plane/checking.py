"""Changes, checked before they are published: nothing is accepted that `headgate rules check` would refuse."""

from collections.abc import Sequence

from headgate.plane.entry import RecordKind, RuleChange
from headgate.plane.rule_log import RuleLog
from headgate.plane.rule_text import RuleProblem, checked


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
    return ([], problems) if problems else (accepted, [])


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
