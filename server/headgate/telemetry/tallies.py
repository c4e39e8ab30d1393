"""Counts per rule: results of each rule's decisions, as plain numbers, for a bounded number of rules.

A tally is chosen when a request is planned, and the plan keeps it; so counting a decision is an increment on an object
at hand. Tallies stay when the rules change, because totals only grow; those of rules that went make room for others
when that is needed. Rules beyond the bound are counted together, and nothing is counted twice or not at all. Values of
requests become labels only for rules that ask for it, and their number is bounded too.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
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

LOOKED_AT: Final = 16
"""Tallies that are looked at, when one wants room, for whether their rules have gone: some 20 µs."""

MAX_PARTS: Final = 10_000
"""Parts of tallies for one rollout: two for each rule that it concerns."""

MAX_PATHS: Final = 8
"""Rules of one name whose paths are remembered; a name that more have stays as long as its domain."""

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


Path = tuple[tuple[str, str], ...]
"""The way to a rule in its domain: keys and values, level by level."""

HasRule = Callable[[str, Path | None], bool]
"""Says of a domain and a path if there is a rule; without a path, if there is the domain."""


def _any_rule(_domain: str, _path: Path | None) -> bool:
    return True


def _counts() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass(slots=True, eq=False)
class Tally:
    """Results of the decisions on one rule. Each is counted by the path that made the request's decision.

    Requests that a rollout concerns are counted in parts of their own, and these are among the rule's.
    """

    name: TallyName
    text: str
    """The rule level by level, or the descriptor where the rule asks for values: `plan=free > user=alice`."""
    domain: str = ""
    paths: set[Path] | None = field(default_factory=set)
    """The paths of its rules in their domain; None: it is there as long as the domain is."""
    dropped: bool = False
    """Nobody reads it any more: its rule had gone, and another one wanted room."""
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
    parts: list["Tally"] = field(default_factory=list)
    """Counts of the rollouts that concern the rule."""

    def whole(self) -> "Tally":
        """Sum it up with its parts."""
        if not self.parts:
            return self
        whole = Tally(self.name, self.text)
        for tally in (self, *self.parts):
            whole.add(tally)
        return whole

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
            for path, count in tuple(theirs.items()):
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
        self._rollouts: dict[tuple[str, str], dict[tuple[bool, TallyName], Tally]] = {}
        """Parts of tallies by domain and name of a rollout, and then by side and rule."""
        self.dropped = 0
        """Tallies that made room for others: plans that have one are made again."""

    def rules_changed(self, has_rule: HasRule) -> None:
        """Note that other rules are in force: tallies of rules that `has_rule` does not find may be dropped."""
        self._rules.rules_changed(has_rule)
        self._values.rules_changed(has_rule)

    def of_rule(self, domain: str, rule: str, text: str, path: Path | None = None) -> Tally:
        """The tally of the rule with this id, text and path, or of all beyond the bound."""
        return self._of(self._rules, TallyName(_cut(domain), rule), text, domain, path)

    def of_value(self, domain: str, rule: str, text: str, value: str, path: Path | None = None) -> Tally:
        """The tally of one value under a rule that asks for it, or of all values beyond the bound."""
        return self._of(self._values, TallyName(_cut(domain), rule, _cut(value) or "(empty)"), text, domain, path)

    def _of(self, table: "_Table", name: TallyName, text: str, domain: str, path: Path | None) -> Tally:
        tally = table.find(name, text)
        self.dropped += table.take_dropped()
        if tally.name != name:
            self.overflowed += 1
        else:
            _note_path(tally, domain, path)
        return tally

    def of_rollout(self, domain: str, rollout: str, staged: bool, tally: Tally) -> Tally:
        """The part of a tally for the requests that a rollout concerns, of one side; the tally itself where there are
        too many parts."""
        parts = self._rollouts.setdefault((domain, rollout), {})
        name = (staged, tally.name)
        part = parts.get(name)
        if part is None and len(parts) < MAX_PARTS:
            part = parts[name] = Tally(tally.name, tally.text, paths=None)
            tally.parts.append(part)
        return tally if part is None else part

    def decided(self, domain: str, rollout: str, staged: bool) -> tuple[int, int]:
        """Decisions on requests that a rollout concerns, of one side, and those of them that denied."""
        parts = [part for (of, _), part in self._rollouts.get((domain, rollout), {}).items() if of is staged]
        denied = sum(sum(part.over.values()) for part in parts)
        return denied + sum(sum(counts.values()) for part in parts for counts in (part.within, part.shadow)), denied

    def rollouts_are(self, rollouts: Collection[tuple[str, str]]) -> None:
        """Note the rollouts that there are, by domain and name; the parts of others are added to the tallies."""
        for name in [name for name in self._rollouts if name not in rollouts]:
            gone = self._rollouts.pop(name)
            self.dropped += len(gone)
            for part in gone.values():
                part.dropped = True
                self._fold(part)

    def _fold(self, part: Tally) -> None:
        for tally in (*self._rules.tallies.values(), *self._values.tallies.values()):
            if part in tally.parts:
                tally.parts.remove(part)
                tally.add(part)

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
        return [tally.whole() for tally in (*self._rules.tallies.values(), *self._values.tallies.values())]

    def unknown_domains(self) -> list[Tally]:
        """Tallies of requests for domains that no file names."""
        return list(self._unknown.values())


def _note_path(tally: Tally, domain: str, path: Path | None) -> None:
    tally.domain = domain
    paths = tally.paths
    if path is None or (paths is not None and len(paths) >= MAX_PATHS and path not in paths):
        tally.paths = None
    elif paths is not None:
        paths.add(path)


class _Table:
    """A bounded number of tallies, and one more for all others."""

    def __init__(self, most: int, others: TallyName) -> None:
        self.tallies: dict[TallyName, Tally] = {}
        self._most = most
        self._others = others
        self._has_rule: HasRule = _any_rule
        self._changed = False
        self._to_look_at: list[Tally] = []
        self._dropped = 0

    def rules_changed(self, has_rule: HasRule) -> None:
        """Look at all tallies again, when room is wanted: some of their rules may have gone."""
        self._has_rule = has_rule
        self._changed = True

    def take_dropped(self) -> int:
        """Return how many were dropped since this was last called."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def find(self, name: TallyName, text: str) -> Tally:
        """The tally of that name, made if there is room, or the one for all others."""
        tally = self.tallies.get(name)
        if tally is None:
            if len(self.tallies) >= self._most:
                self._make_room()
            if len(self.tallies) >= self._most:
                name, text = self._others, OVERFLOW
            tally = self.tallies.setdefault(name, Tally(name, _cut(text)))
        return tally

    def _make_room(self) -> None:
        """Add tallies of rules that went to the common one, and drop them: the sum stays as it was.

        A few are looked at each time, and all of them once after each change of the rules.
        """
        for _ in range(LOOKED_AT):
            if not self._to_look_at and self._changed:
                self._changed = False
                self._to_look_at = [tally for tally in self.tallies.values() if tally.name != self._others]
            if not self._to_look_at:
                return
            self._drop_if_gone(self._to_look_at.pop())

    def _drop_if_gone(self, tally: Tally) -> None:
        if not self._is_there(tally):
            self.tallies.setdefault(self._others, Tally(self._others, OVERFLOW)).add(tally)
            del self.tallies[tally.name]
            tally.dropped = True
            self._dropped += 1

    def _is_there(self, tally: Tally) -> bool:
        """Say if one of its rules is in force."""
        paths: list[Path | None] = [None]
        if tally.paths is not None:
            paths = list(tally.paths)
        return any(self._has_rule(tally.domain, path) for path in paths)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LABEL_CHARS else text[: MAX_LABEL_CHARS - 1] + "…"
