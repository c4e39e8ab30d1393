"""Counts per rule: results of each rule's decisions, as plain numbers, for a bounded number of rules.

A tally is chosen when a request is planned, and the plan keeps it; so counting a decision is an increment on an object
at hand. Tallies stay when the rules change, because totals only grow. Rules beyond the bound are counted together, and
nothing is counted twice or not at all. Values of requests become labels only for rules that ask for it, and their
number is bounded too.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MAX_RULES: Final = 10_000
"""Rules with series of their own. Each has about four: more than a Prometheus server likes to read from one target."""

MAX_VALUES: Final = 1_000
"""Series for single values, of all rules with `detailed_metric` or `value_to_metric` together."""

MAX_DOMAINS: Final = 20
"""Unknown domains that are counted by name: callers name them, so the rest share one."""

MAX_LABEL_CHARS: Final = 200
"""A longer value, domain or text of a rule is cut. Rules' ids are shorter."""

OVERFLOW: Final = "(overflow)"
"""The rule, or the value, of everything beyond a bound. No rule's id has parentheses."""

NO_RULE: Final = "(none)"
"""The rule of descriptors that no rule of their domain applies to."""

WITHIN: Final = "within_limit"
OVER: Final = "over_limit"
SHADOW: Final = "shadow_over_limit"
"""Requests that a rule in shadow mode would have denied."""


class TallyName(NamedTuple):
    """Identity of a tally: domain, rule and value."""

    domain: str
    rule: str
    value: str = ""
    """Only for rules that ask for it."""


def _counts() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass(slots=True, eq=False)
class Tally:
    """Results of the decisions on one rule. Each is counted by the path that made the request's decision."""

    name: TallyName
    text: str
    """The rule level by level, or the descriptor where the rule asks for values: `plan=free > user=alice`."""
    rules: int = 0
    """The number of rule sets that there had been when a request was last planned on it."""
    within: defaultdict[str, int] = field(default_factory=_counts)
    over: defaultdict[str, int] = field(default_factory=_counts)
    shadow: defaultdict[str, int] = field(default_factory=_counts)
    near: int = 0
    """Admissions after which more than `near_limit_ratio` of the limit was used."""
    within_extra: int = 0
    over_extra: int = 0
    shadow_extra: int = 0
    """Cost of requests beyond 1 each; the counts above and this together are the cost."""
    refunded: int = 0
    """Cost that requests asked to refund. Their counts are among those within the limit, at no cost."""

    def results(self) -> Iterator[tuple[str, str, int]]:
        """Result, path and count of what there was."""
        for result, counts in ((WITHIN, self.within), (OVER, self.over), (SHADOW, self.shadow)):
            for path, count in tuple(counts.items()):
                yield result, path, count

    def costs(self) -> Iterator[tuple[str, int]]:
        """Result and cost."""
        yield WITHIN, sum(self.within.values()) + self.within_extra
        yield OVER, sum(self.over.values()) + self.over_extra
        yield SHADOW, sum(self.shadow.values()) + self.shadow_extra

    def add(self, other: "Tally") -> None:
        """Take in all that another one has counted."""
        for mine, theirs in ((self.within, other.within), (self.over, other.over), (self.shadow, other.shadow)):
            for path, count in theirs.items():
                mine[path] += count
        self.near += other.near
        self.within_extra += other.within_extra
        self.over_extra += other.over_extra
        self.shadow_extra += other.shadow_extra
        self.refunded += other.refunded

    def labels(self) -> dict[str, str]:
        """Labels of each of its series."""
        labels = {"domain": self.name.domain, "rule": self.name.rule}
        if self.name.value:
            labels["value"] = self.name.value
        return labels


class Tallies:
    """All tallies of a process."""

    def __init__(self, *, max_rules: int = MAX_RULES, max_values: int = MAX_VALUES) -> None:
        self.overflowed = 0
        """Plans that had to share a tally with others, because a bound was reached."""
        self._rules = _Table(max_rules, TallyName(OVERFLOW, OVERFLOW))
        self._values = _Table(max_values, TallyName(OVERFLOW, OVERFLOW, OVERFLOW))
        self._unknown: dict[str, Tally] = {}
        self._rule_sets = 0

    def rules_changed(self) -> None:
        """Note that all plans are made again: a tally that no request is planned on from now on may be dropped for
        another.
        """
        self._rule_sets += 1

    def of_rule(self, domain: str, rule: str, text: str) -> Tally:
        """The tally of the rule with this id and this text, or of all beyond the bound."""
        return self._of(self._rules, TallyName(_cut(domain), rule), text)

    def of_value(self, domain: str, rule: str, text: str, value: str) -> Tally:
        """The tally of one value under a rule that asks for it, or of all values beyond the bound."""
        return self._of(self._values, TallyName(_cut(domain), rule, _cut(value) or "(empty)"), text)

    def _of(self, table: "_Table", name: TallyName, text: str) -> Tally:
        tally = table.find(name, text, self._rule_sets)
        self.overflowed += tally.name != name
        tally.rules = self._rule_sets
        return tally

    def of_unknown_domain(self, domain: str) -> tuple[Tally, bool]:
        """The tally of requests for a domain that no file names, and whether it is seen for the first time."""
        name = _cut(domain)
        tally = self._unknown.get(name)
        if tally is not None:
            return tally, False
        if len(self._unknown) >= MAX_DOMAINS:
            name = OVERFLOW
        first = name not in self._unknown
        return self._unknown.setdefault(name, Tally(TallyName(name, NO_RULE), NO_RULE)), first

    def all(self) -> list[Tally]:
        """Tallies of rules, and of values where rules ask for them: together every descriptor once."""
        return [*self._rules.tallies.values(), *self._values.tallies.values()]

    def unknown_domains(self) -> list[Tally]:
        """Tallies of requests for domains that no file names."""
        return list(self._unknown.values())


class _Table:
    """A bounded number of tallies, and one more for all others."""

    def __init__(self, most: int, others: TallyName) -> None:
        self.tallies: dict[TallyName, Tally] = {}
        self._most = most
        self._others = others
        self._cleared_for = 0

    def find(self, name: TallyName, text: str, rule_sets: int) -> Tally:
        """The tally of that name, made if there is room, or the one for all others."""
        tally = self.tallies.get(name)
        if tally is None:
            if len(self.tallies) >= self._most and rule_sets > self._cleared_for:
                self._cleared_for = rule_sets
                self._make_room(rule_sets)
            if len(self.tallies) >= self._most:
                name, text = self._others, OVERFLOW
            tally = self.tallies.setdefault(name, Tally(name, _cut(text)))
        return tally

    def _make_room(self, rule_sets: int) -> None:
        """Add tallies of former rules to the common one and drop them: the sum stays as it was."""
        former = [tally for tally in self.tallies.values() if tally.rules < rule_sets and tally.name != self._others]
        if former:
            others = self.tallies.setdefault(self._others, Tally(self._others, OVERFLOW))
            for tally in former:
                others.add(tally)
                del self.tallies[tally.name]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LABEL_CHARS else text[: MAX_LABEL_CHARS - 1] + "…"
