"""Laying an overlay over the rules of a domain, after they are read and before they are in force.

The tree is copied with other limits where entries name rules. Such a limit is built anew from the fields of its rule
and those laid over them, by the checks that all limits pass. Where they make no sense together the rule stays as it is,
and the clash is named with both places.
"""

import difflib
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import Steps, steps_text
from headgate.rules.defaults import Defaults
from headgate.rules.fields import shown
from headgate.rules.limits import MODES, RateLimitBlock, build_limit
from headgate.rules.overlay import ANYTHING, EntryChoice, OverlayEntry, OverlayReport, over
from headgate.rules.problems import Problem
from headgate.rules.ruleset import Domain
from headgate.rules.text_map import text_map
from headgate.rules.tree import KeySlot, Leaves, Level, RuleNode, Wildcard, rule_name
from headgate.rules.wildcards import WildcardIndex

MAX_CLASHES: Final = 1_000
"""Clashes that are named; one entry may meet a million rules."""

MAX_RULE_SHOWN: Final = 300
"""Characters of a rule's path in a message: those of Envoy Gateway are long, and end in what tells them apart."""

MAX_EXPLAINED: Final = 20
"""Entries that name no limit and are told why: each takes another look at all rules."""

MAX_SUGGESTED: Final = 1_000
"""Names among which one is looked for that resembles a misspelled one."""

_WORD: Final = re.compile(r"\w+")

Levels = Mapping[str, Level]
"""First level of each domain, by its name."""


class Laid(NamedTuple):
    """The rules of a domain with the overlay over them."""

    level: Level
    clashes: tuple[Problem, ...]
    met: frozenset[tuple[str, int]]
    """Entries that name a limit, by file and line."""


def lay(
    entries: Sequence[OverlayEntry],
    leaves: Leaves,
    domain: str,
    level: Level,
    *,
    defaults: Defaults,
    where: Callable[[int], str],
    tick: Callable[[], None],
) -> Laid:
    """Lay the entries over all rules of a domain; `leaves` has their fields, `where` says the place of a rule as
    `file:line`, `tick` hears of every rule."""
    laying = _Laying(leaves, defaults, where, tick, domain)
    laid = laying.level(level, [entry for entry in entries if entry.domain.matches(domain)], ())
    return Laid(laid, tuple(sorted(laying.clashes)), frozenset((entry.file, entry.line) for entry in laying.met))


def report(entries: Sequence[OverlayEntry], domains: Iterable[Domain]) -> OverlayReport:
    """Sum up what came of an overlay in all domains of a set."""
    if not entries:
        return OverlayReport()
    held = list(domains)
    met = frozenset().union(*(domain.under.met for domain in held))
    unmatched = [entry for entry in entries if (entry.file, entry.line) not in met]
    levels = {domain.name: domain.level for domain in held}
    reasons = [_unmatched(entry, levels) for entry in unmatched[:MAX_EXPLAINED]]
    reasons += ["no rule that it names has a limit"] * (len(unmatched) - len(reasons))
    named_nothing = [Problem(entry.file, entry.line, why) for entry, why in zip(unmatched, reasons, strict=True)]
    clashes = sorted(problem for domain in held for problem in domain.under.clashes)
    return OverlayReport(len(entries), tuple(clashes[:MAX_CLASHES]), tuple(named_nothing))


class _Laying:
    """Copies the tree of a domain, as far as entries name its rules."""

    def __init__(
        self,
        leaves: Leaves,
        defaults: Defaults,
        where: Callable[[int], str],
        tick: Callable[[], None],
        domain: str,
    ) -> None:
        self._drafts = leaves.drafts
        self._defaults = defaults
        self._where = where
        self._tick = tick
        self._domain = domain
        self._leaves = Leaves()
        self.clashes: list[Problem] = []
        self.met: set[OverlayEntry] = set()
        """Entries that name a limit."""

    def level(self, level: Level, live: Sequence[OverlayEntry], above: Steps) -> Level:
        """Copy a level; `live` are the entries whose paths lead here."""
        if not live:
            return level
        depth = len(above)
        by_key = EntryChoice(live, lambda entry: entry.key_at(depth))
        return {key: self._slot(slot, by_key.of(key), above) for key, slot in level.items()}

    def _slot(self, slot: KeySlot, live: Sequence[OverlayEntry], above: Steps) -> KeySlot:
        if not live:
            return slot
        depth = len(above)
        by_value = EntryChoice(live, lambda entry: entry.value_at(depth))
        values, places = {}, array("Q")
        for value, node, place in slot.values.noted():
            values[value] = self._node(node, by_value, (*above, (slot.key, value)), place)
            places.append(place)
        wildcards = [self._wildcard(slot.key, old, by_value, above) for old in slot.ordered]
        index = WildcardIndex(wildcards) if wildcards else None
        any_node = slot.any_node
        if any_node is not None:
            any_node = self._node(any_node, by_value, (*above, (slot.key, "")), slot.any_place)
        return KeySlot(slot.key, text_map(values, places), index, any_node, slot.any_place)

    def _wildcard(self, key: str, old: Wildcard, by_value: EntryChoice, above: Steps) -> Wildcard:
        node = self._node(old.node, by_value, (*above, (key, old.pattern)), old.place)
        return Wildcard(key, old.pattern, shared=old.shared, node=node, place=old.place)

    def _node(self, old: RuleNode, by_value: EntryChoice, steps: Steps, place: int) -> RuleNode:
        self._tick()
        live = by_value.of(steps[-1][1])
        children = None if old.children is None else self.level(old.children, live, steps)
        leaf = self._leaf(old, over(live, len(steps)), steps, place)
        if children is None:
            return leaf
        return RuleNode(leaf.limit, children, is_rule=old.is_rule, origins=leaf.origins)

    def _leaf(self, old: RuleNode, named_by: tuple[OverlayEntry, ...], steps: Steps, place: int) -> RuleNode:
        """Return the leaf of a rule; rules that had one leaf and are named by the same entries have one again."""
        limit = old.limit
        if limit is None or limit.unlimited:
            named_by = ()  # there is no limit to keep
        if not named_by and old.children is None:
            return old
        name = (old, named_by)
        if (known := self._leaves.find(name)) is not None:
            return known
        origins = old.origins
        if named_by:
            self.met.update(named_by)
            limit, origins = self._laid(old, named_by, steps, place) or (limit, origins)
        return self._leaves.make(name, limit, origins)

    def _laid(
        self, old: RuleNode, entries: tuple[OverlayEntry, ...], steps: Steps, place: int
    ) -> tuple[Limit, Mapping[str, str]] | None:
        """Build the limit of a rule with these entries over it, and where its fields come from; None: they clash."""
        draft = self._drafts[old]
        fields = {name: event for entry in entries for name, event in entry.fields.items()}
        flags = {MODES[name]: value for entry in entries for name, value in entry.flags.items()}
        block = RateLimitBlock(draft.block.line, {**draft.block.scalars, **fields}, draft.block.replaces)
        reasons: list[str] = []
        beside = {**draft.beside, **flags}
        limit = build_limit(block, beside, lambda _, reason: reasons.append(reason), self._defaults)
        if limit is None:
            self._clash(reasons, entries, steps, place)
            return None
        places = {name: f"overlay {entry.file}:{line}" for entry in entries for name, line in entry.lines.items()}
        return limit, places | self._defaults.taken(frozenset(block.scalars), limit)

    def _clash(self, reasons: Sequence[str], entries: Sequence[OverlayEntry], steps: Steps, place: int) -> None:
        rule = f"{shown(f'{self._domain}: {steps_text(steps)}', MAX_RULE_SHOWN)} at {self._where(place)}"
        for reason in reasons[: MAX_CLASHES - len(self.clashes)]:
            # The fields that make no sense together stand in the reason; the last entry that says one is where to look.
            words = set(_WORD.findall(reason))
            said = [(entry, line) for entry in entries for name, line in entry.lines.items() if name in words]
            entry, line = said[-1] if said else (entries[-1], entries[-1].line)
            self.clashes.append(Problem(entry.file, line, f"{reason}; this lies over {rule}"))


# Entries that name nothing


def _unmatched(entry: OverlayEntry, levels: Levels) -> str:
    """Return the reason why an entry names no limit, with a name like the one that was meant."""
    named = [level for name, level in levels.items() if entry.domain.matches(name)]
    if not named:
        return f"no domain matches `{entry.domain.text}`{_suggest(entry.domain.text, levels)}"
    for step in entry.path:
        rules = [rule for level in named for rule in _rules_on(level)]
        below = [node for key, value, node in rules if step.key.matches(key) and step.value.matches(value)]
        if not below:
            names = (key if step.value is ANYTHING else rule_name(key, value) for key, value, _ in rules)
            return f"no rule matches the step `{step}` of its path{_suggest(str(step), names)}"
        named = [node.children for node in below if node.children is not None]
    return "no rule that it names has a limit"


def _rules_on(level: Level) -> Iterator[tuple[str, str, RuleNode]]:
    for slot in level.values():
        for value, node, _, _ in slot.rules():
            yield slot.key, value, node


def _suggest(name: str, known: Iterator[str] | Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(dict.fromkeys(islice(known, MAX_SUGGESTED))), 1)
    return f"; did you mean `{close[0]}`?" if close else ""
