"""Advice about rules that are allowed and hardly intended: rules that nothing can match, names that no rule has,
regular expressions, limits of 0 for every value of a key, domains without a limit.

Never a reason to refuse a set: `headgate rules check` says it, and serving goes on.
"""

import re
from collections.abc import Iterator
from typing import Final

from headgate.limiter.limit import Limit
from headgate.rules.fields import shown
from headgate.rules.problems import Problem
from headgate.rules.ruleset import Domain, RuleInfo, RuleSet
from headgate.rules.tree import KeySlot, Level, RuleNode, Wildcard, rule_name

_EXPRESSION: Final = re.compile(r"^\^|\$$|\\[dws.]|\[[^]]+\][*+]")
r"""Marks of a regular expression: `^` in front, `$` at the end, `\d`, `[a-z]+`. (`.*` alone may be a wildcard.)"""


def advise(rules: RuleSet) -> list[Problem]:
    """Advice about a rule set, in the order of files and lines."""
    found: list[Problem] = []
    for domain in rules.domains.values():
        found += [_at(domain.place(place), reason) for place, reason in _unmatched(domain, domain.level)]
        found += [_at(domain.place(place), reason) for place, reason in _expressions(domain.level)]
        found += [_at(domain.place(place), reason) for place, reason in _zeros(domain.level)]
        if next(domain.limits(), None) is None:
            reason = f"warning: domain {shown(domain.name)} has no limit: nothing is denied by it"
            found.append(Problem(domain.file, 1, reason))
    found += _unknown_names(list(rules.rules()))
    return sorted(found)


def _at(place: str, reason: str) -> Problem:
    file, _, line = place.rpartition(":")
    return Problem(file, int(line), reason)


def _unmatched(domain: Domain, level: Level) -> Iterator[tuple[int, str]]:
    """Rules that nothing can match; what is below one is not named as well."""
    for slot in level.values():
        matched = list({id(node): node for node in slot.values.values()}.values())
        for name, place, node, first in _behind_others(slot):
            if first is None:
                matched.append(node)
            else:
                covering = shown(rule_name(slot.key, first.pattern))
                at = domain.place(first.place)
                yield (
                    place,
                    f"warning: {shown(name)} can never match: {covering} at {at} matches first whatever it would",
                )
        for node in matched:
            if node.children is not None:
                yield from _unmatched(domain, node.children)


def _behind_others(slot: KeySlot) -> Iterator[tuple[str, int, RuleNode, Wildcard | None]]:
    """A key's rules that a wildcard may come before: name, place, node, and that wildcard if there is one.

    A pattern covers another when it matches its text: a star there is matched by a star only,
    because no other part of a pattern has one.
    """
    if slot.wildcards is not None:
        for wildcard in slot.wildcards.ordered:
            first = slot.wildcards.find(wildcard.pattern)
            other = None if first is wildcard else first
            yield rule_name(slot.key, wildcard.pattern), wildcard.place, wildcard.node, other
    if slot.any_node is not None:
        # Any value at all, which only a pattern of nothing but stars covers.
        first = None if slot.wildcards is None else slot.wildcards.find("")
        yield slot.key, slot.any_place, slot.any_node, first


def _expressions(level: Level) -> Iterator[tuple[int, str]]:
    """Values that look like regular expressions, which are none here."""
    for slot in level.values():
        for value, _, place, _ in slot.rules():
            if _EXPRESSION.search(value):
                name = shown(rule_name(slot.key, value))
                yield (
                    place,
                    f"warning: {name} looks like a regular expression, and is none: only `*` stands for anything",
                )
        for node in slot.distinct():
            if node.children is not None:
                yield from _expressions(node.children)


def _zeros(level: Level) -> Iterator[tuple[int, str]]:
    """Limits of 0 that deny whatever a value is. For one value it is how a caller is shut out, and meant."""
    for slot in level.values():
        wide = [(wildcard.pattern, wildcard.node, wildcard.place) for wildcard in slot.ordered]
        if slot.any_node is not None:
            wide.append(("", slot.any_node, slot.any_place))
        for value, node, place in wide:
            if node.limit is not None and _denies_all(node.limit):
                name = shown(rule_name(slot.key, value))
                yield place, f"warning: {name} has a limit of 0: every request that meets it is denied"
        for node in slot.distinct():
            if node.children is not None:
                yield from _zeros(node.children)


def _denies_all(limit: Limit) -> bool:
    return limit.requests_per_unit == 0 and not limit.unlimited and not limit.shadow


def _unknown_names(infos: list[RuleInfo]) -> Iterator[Problem]:
    """`replaces` acts among the rules that one request meets, which are of one domain."""
    known = {(info.domain, info.limit.name) for info in infos}
    for info in infos:
        for name in info.limit.replaces:
            if (info.domain, name) not in known:
                reason = f"warning: replaces {shown(name)}, and no rule of domain {shown(info.domain)} has that name"
                yield _at(info.place, reason)
