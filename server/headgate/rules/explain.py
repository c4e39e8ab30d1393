"""Explanation of why a request hits a rule: the walk of `RuleSet.match`, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from headgate.limiter.limit import Algorithm, Limit
from headgate.rules.model import Match
from headgate.rules.ruleset import Domain, RuleSet
from headgate.rules.tree import KeySlot, Level, RuleNode
from headgate.spelling import did_you_mean

SHOWN: Final = 10
"""Names that are listed of those that there are."""

MOST_REORDERED: Final = 5
"""Entries that are tried in every order: 120 of them."""


@dataclass(frozen=True, slots=True)
class MatchExplanation:
    """The rule that a request would hit, and each step of the search for it, as text."""

    match: Match | None
    lines: tuple[str, ...]
    """One per entry of the request, then the outcome, then the origin of each field that is not the rule's own."""
    reason: str = ""
    """Why no rule applies; empty where one does."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


_Step = tuple[RuleNode | None, str]
"""The node that an entry leads to, if there is one, and why."""


def explain(rules: RuleSet, domain: str, entries: Sequence[tuple[str, str]]) -> MatchExplanation:
    """Find the rule that a request would hit, and the reason for each step."""
    if not rules.has_domain(domain):
        known = ", ".join(sorted(rules.domains)[:SHOWN]) or "none"
        reason = f"there is no domain `{domain}` (there is: {known}){did_you_mean(domain, rules.domains)}"
        return MatchExplanation(None, (f"no rule: {reason}",), reason)
    lines: list[str] = [f"domain `{domain}`"]
    level: Level | None = rules.domains[domain].level
    node: RuleNode | None = None
    for number, (key, value) in enumerate(entries, 1):
        node, why = _step(rules.domains[domain], level, key, value)
        lines.append(f"{number}. {key}={value}: {why}")
        if node is None:
            break
        level = node.children
    match = rules.match(domain, entries)
    lines.append(_outcome(match, node))
    if match is not None and node is not None:
        lines += [f"   {name} from {origin}" for name, origin in node.origins.items()]
        return MatchExplanation(match, tuple(lines))
    order = _order_of_rules(rules, domain, entries)
    hint = [f"in another order a rule applies to it: {order}"] if order else []
    return MatchExplanation(None, (*lines, *hint), "; ".join([lines[-2 if node is None else -1], *hint]))


def _order_of_rules(rules: RuleSet, domain: str, entries: Sequence[tuple[str, str]]) -> str:
    """The entries in an order in which a rule applies to them; empty where there is none, or they are too many."""
    if len(entries) > MOST_REORDERED:
        return ""
    matched = (order for order in permutations(entries) if rules.match(domain, order) is not None)
    return ",".join([f"{key}={value}" for key, value in next(matched, ())])


def _step(domain: Domain, level: Level | None, key: str, value: str) -> _Step:
    if level is None:
        return (None, "the rule before this entry has no children, and a limit applies only to the last entry")
    slot = level.get(key)
    if slot is None:
        there_is = f"(there is: {', '.join(sorted(level)[:SHOWN])})"
        return (None, f"no rule with key `{key}` on this level {there_is}{did_you_mean(key, level)}")
    return _step_in(domain, slot, value)


def _step_in(domain: Domain, slot: KeySlot, value: str) -> _Step:
    if (node := slot.values.get(value)) is not None:
        return (node, f"exact value{_at(domain.place(slot.values.note_of(value)))}")
    tried = [f"not among {len(slot.values)} exact values"] if len(slot.values) else []
    if slot.wildcards is not None:
        if (wildcard := slot.wildcards.find(value)) is not None:
            counter = "one counter for all values" if wildcard.shared else "each value has its own counter"
            why = f"first wildcard that matches, `{wildcard.pattern}`{_at(domain.place(wildcard.place))}; {counter}"
            return (wildcard.node, "; ".join([why, *tried]))
        tried.append(f"none of {len(slot.wildcards.ordered)} wildcards matches")
    if slot.any_node is not None:
        why = f"key without a value{_at(domain.place(slot.any_place))}; each value has its own counter"
        return (slot.any_node, "; ".join([why, *tried]))
    return (None, "; ".join([*tried, "no rule for the key without a value"]))


def _at(place: str) -> str:
    return f" at {place}" if place else ""


def replacements(matches: Sequence[Match]) -> list[str]:
    """Say which rules that a request hits replace others that it hits."""
    return [
        f"rule `{other.rule}` replaces rule `{match.rule}`, which neither counts nor denies this request"
        for match in matches
        for other in matches
        if match.limit.name in other.limit.replaces
    ]


def _outcome(match: Match | None, node: RuleNode | None) -> str:
    if match is not None:
        return f"rule `{match.rule}`: {describe(match.limit)}, id {match.name.id}"
    if node is None:
        return "no rule, no limit"
    return "matched, but no limit here: the rule has none, or only its children have"


def describe(limit: Limit) -> str:
    """A limit in one line."""
    return ", ".join(words_of(limit))


def words_of(limit: Limit) -> list[str]:
    """Words that describe a limit, its amount first."""
    if limit.unlimited:
        words = ["unlimited"]
    else:
        times = "" if limit.unit_multiplier == 1 else f"{limit.unit_multiplier} "
        unit = limit.unit.name.lower() + ("" if limit.unit_multiplier == 1 else "s")
        words = [f"{limit.requests_per_unit} per {times}{unit}", limit.algorithm.value]
        if limit.algorithm is Algorithm.GCRA:
            words.append(f"burst {limit.burst}")
        words += [
            f"precision {limit.precision_millionths / 10_000:g}%",
            f"on_error {limit.on_error.value}",
            f"scope {limit.scope_in_force.value}",
        ]
    if limit.traffic_class is not None:
        words.append(f"class {limit.traffic_class.value}")
    if limit.name:
        words.append(f"name {limit.name}")
    if limit.replaces:
        words.append(f"replaces {', '.join(limit.replaces)}")
    modes = (
        ("overdraft", limit.overdraft),
        ("refund", limit.refund),
        ("shadow mode", limit.shadow),
        ("quota mode", limit.quota),
    )
    return [*words, *(name for name, on in modes if on)]
