"""Rules of a domain as they are, or would be with some of them changed, walked as requests walk them.

A path is a way if a rule stands at it or below it: requests that come to it stay on it, and never go back to try
another. What only leads on to others is no rule. Rules are looked up one by one, each once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from headgate.limiter.rule_name import Steps
from headgate.plane.content import LEADS_ON, in_order, place_of, slot_of
from headgate.plane.entry import RuleChange
from headgate.plane.rule_text import load, rule_content
from headgate.rules.model import RuleContent
from headgate.rules.wildcards import STAR, is_pattern, matches

NO_RULE: Final = RuleContent()
"""A rule that has nothing of its own; where none is, callers meet as little."""


class RulesInForce(Protocol):
    """Rules of a plane, as they can be looked up."""

    def rule(self, domain: str, path: Steps) -> bytes | None:
        """Return one rule; None if there is none."""

    def below(self, domain: str, path: Steps, most: int) -> list[RuleChange]:
        """Return rules below a path, at most so many."""

    def patterns(self, domain: str, above: Steps, key: str) -> dict[str, bytes]:
        """Return the rules of a key whose values have a `*`, by value."""


class RulesView:
    """One domain's rules, with some of them changed."""

    def __init__(self, rules: RulesInForce, domain: str, changed: Mapping[Steps, bytes | None] | None = None) -> None:
        """`changed` are rules by path; None where one is deleted."""
        self._rules = rules
        self._domain = domain
        self._changed = changed or {}
        self._put: set[Steps] = set()
        """Ways to rules that are put."""
        self._above: set[Steps] = set()
        """Ways that rules are put below."""
        self._deleted: Counter[Steps] = Counter()
        """Rules that are deleted, by the ways to them: how many there are at each or below it."""
        self._patterns: dict[tuple[Steps, str], dict[str, bytes | None]] = {}
        for path, rule in self._changed.items():
            ways = [path[:end] for end in range(1, len(path) + 1)]
            if rule is None:
                self._deleted.update(ways)
            elif not leads_on(rule):
                self._put.update(ways)
                self._above.update(ways[:-1])
            if (slot := slot_of(path)) is not None:
                self._patterns.setdefault(slot, {})[path[-1][1]] = rule
        self._ways: dict[Steps, bool] = {}
        self._below: dict[Steps, list[RuleContent]] = {}
        self._ordered: dict[tuple[Steps, str], list[str]] = {}

    # Looking

    def rule(self, path: Steps) -> RuleContent:
        """Return the rule at a path; one without a limit where there is none."""
        text = self._text(path)
        return NO_RULE if text is None else rule_content(RuleChange(self._domain, path, text)) or NO_RULE

    def _text(self, path: Steps) -> bytes | None:
        return self._changed[path] if path in self._changed else self._rules.rule(self._domain, path)

    def below(self, path: Steps, most: int) -> list[RuleContent]:
        """Return rules that are in force below a path, at most so many."""
        known = self._below.get(path)
        if known is None:
            found = self._rules.below(self._domain, path, most)
            known = self._below[path] = [rule_content(change) or NO_RULE for change in found]
        return known

    def patterns(self, above: Steps, key: str) -> dict[str, bytes]:
        """Return the rules of a key whose values have a `*`, by value."""
        found: dict[str, bytes | None] = dict(self._rules.patterns(self._domain, above, key))
        found |= self._patterns.get((above, key), {})
        return {value: rule for value, rule in found.items() if rule is not None}

    def has_below(self, path: Steps) -> bool:
        """Return true if a rule stands below a path."""
        if path in self._above:
            return True
        found = self._rules.below(self._domain, path, self._deleted[path] + 1)
        return any(self._changed.get(change.path, b"") is not None and not leads_on(change.rule) for change in found)

    def is_way(self, path: Steps) -> bool:
        """Return true if a rule stands at a path, or below it."""
        known = self._ways.get(path)
        if known is None:
            known = self._ways[path] = path in self._put or self._is_rule(path) or self.has_below(path)
        return known

    def _is_rule(self, path: Steps) -> bool:
        text = self._text(path)
        return text is not None and not leads_on(text)

    # Walking

    def first_missing(self, path: Steps) -> Steps | None:
        """Return the shortest part of a path that is no way; None if all of it is one."""
        return next((path[:end] for end in range(1, len(path) + 1) if not self.is_way(path[:end])), None)

    def beside(self, way: Steps) -> Iterator[Steps]:
        """Ways that callers of one may come to where it is not there: that of the value; for a pattern, several."""
        *above, (key, value) = way
        if not value:
            return
        if is_pattern(key, value):
            ways = [(*above, (key, other)) for other in self._in_order(tuple(above), key) if other != value]
            yield from filter(self.is_way, ways)
        elif (found := self._matching(tuple(above), key, value)) is not None:
            yield found
            return
        if self.is_way(alone := (*above, (key, ""))):
            yield alone

    def _in_order(self, above: Steps, key: str) -> list[str]:
        known = self._ordered.get((above, key))
        if known is None:
            places = {value: place_of(rule) for value, rule in self.patterns(above, key).items()}
            known = self._ordered[above, key] = in_order(places)
        return known

    def _matching(self, above: Steps, key: str, value: str) -> Steps | None:
        for pattern in self._in_order(above, key):
            if matches(pattern.split(STAR), value) and self.is_way(way := (*above, (key, pattern))):
                return way
        return None

    def met(self, above: Steps, steps: Steps) -> RuleContent:
        """Return the rule that exact values meet from a way on; one without a limit where they meet none."""
        way = above
        for step in steps:
            exact = (*way, step)
            found = exact if self.is_way(exact) else next(self.beside(exact), None)
            if found is None:
                return NO_RULE
            way = found
        return self.rule(way)


def leads_on(rule: bytes | None) -> bool:
    """Return true if a text has nothing but the place of a pattern that leads on to others."""
    return rule is not None and b'"leads_on"' in rule and bool(load(rule).get(LEADS_ON))
