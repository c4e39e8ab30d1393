"""Laying an overlay over the rules of a set, after they are read and before they are in force.

The tree is copied with other limits where entries name rules. Such a limit is built anew from the fields of its rule
and those laid over them, by the checks that all limits pass. Where they make no sense together the rule stays as it is,
and the clash is named with both places.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import Steps, steps_text
from headgate.rules.defaults import Defaults
from headgate.rules.fields import shown
from headgate.rules.limits import MODES, RateLimitBlock, build_limit
from headgate.rules.overlay import ANYTHING, EntryChoice, OverlayEntry, OverlayReport, over
from headgate.rules.problems import Problem
from headgate.rules.ruleset import rules_of_slot
from headgate.rules.tree import KeySlot, Level, NodeTable, RuleNode, Wildcard, rule_name
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
    """A set of rules with its overlay over it."""

    table: NodeTable
    levels: Levels
    report: OverlayReport


def lay(
    entries: Sequence[OverlayEntry],
    table: NodeTable,
    levels: Levels,
    *,
    defaults: Defaults,
    where: Callable[[int], str],
    tick: Callable[[], None],
) -> Laid:
    """Lay the entries over all rules; `where` says the place of a rule as `file:line`, `tick` hears of every rule."""
    if not entries:
        return Laid(table, levels, OverlayReport())
    laying = _Laying(table, defaults, where, tick)
    laid = {name: laying.domain(name, level, entries) for name, level in levels.items()}
    unmatched = [entry for entry in entries if entry not in laying.met]
    reasons = [_unmatched(entry, table, levels) for entry in unmatched[:MAX_EXPLAINED]]
    reasons += ["no rule that it names has a limit"] * (len(unmatched) - len(reasons))
    named_nothing = [Problem(entry.file, entry.line, why) for entry, why in zip(unmatched, reasons, strict=True)]
    return Laid(laying.table, laid, OverlayReport(len(entries), tuple(sorted(laying.clashes)), tuple(named_nothing)))


class _Laying:
    """Copies the trees of a set's domains into one new table."""

    def __init__(
        self, old: NodeTable, defaults: Defaults, where: Callable[[int], str], tick: Callable[[], None]
    ) -> None:
        self._old = old
        self._defaults = defaults
        self._where = where
        self._tick = tick
        self._domain = ""
        self.table = NodeTable()
        self.clashes: list[Problem] = []
        self.met: set[OverlayEntry] = set()
        """Entries that name a limit."""

    def domain(self, name: str, level: Level, entries: Sequence[OverlayEntry]) -> Level:
        self._domain = name
        return self._level(level, [entry for entry in entries if entry.domain.matches(name)], ())

    def _level(self, level: Level, live: Sequence[OverlayEntry], above: Steps) -> Level:
        """Copy a level; `live` are the entries whose paths lead here."""
        depth = len(above)
        by_key = EntryChoice(live, lambda entry: entry.key_at(depth))
        return {key: self._slot(slot, by_key.of(key), above) for key, slot in level.items()}

    def _slot(self, slot: KeySlot, live: Sequence[OverlayEntry], above: Steps) -> KeySlot:
        depth = len(above)
        by_value = EntryChoice(live, lambda entry: entry.value_at(depth))
        copy = KeySlot(slot.key)
        copy.places = slot.places
        nodes = self._old.nodes
        for (value, number), place in zip(slot.values.items(), slot.places, strict=True):
            copy.values[value] = self._node(nodes[number], by_value, (*above, (slot.key, value)), place).number
        if slot.wildcards is not None:
            ordered = [self._wildcard(slot.key, old, by_value, above) for old in slot.wildcards.ordered]
            copy.wildcards = WildcardIndex(ordered)
        if slot.any_node is not None:
            copy.any_node = self._node(slot.any_node, by_value, (*above, (slot.key, "")), slot.any_place)
            copy.any_place = slot.any_place
        return copy

    def _wildcard(self, key: str, old: Wildcard, by_value: EntryChoice, above: Steps) -> Wildcard:
        node = self._node(old.node, by_value, (*above, (key, old.pattern)), old.place)
        return Wildcard(key, old.pattern, shared=old.shared, node=node, place=old.place)

    def _node(self, old: RuleNode, by_value: EntryChoice, steps: Steps, place: int) -> RuleNode:
        self._tick()
        live = by_value.of(steps[-1][1])
        # Children first: a node's number is higher than those of its children.
        children = None if old.children is None else self._level(old.children, live, steps)
        leaf = self._leaf(old, over(live, len(steps)), steps, place)
        return leaf if children is None else self.table.with_children(leaf, children)

    def _leaf(self, old: RuleNode, named_by: tuple[OverlayEntry, ...], steps: Steps, place: int) -> RuleNode:
        """Return the leaf of a rule; rules that had one leaf and are named by the same entries have one again."""
        limit = old.limit
        if limit is None or limit.unlimited:
            named_by = ()  # there is no limit to keep
        name = (old.number, named_by)
        if (known := self.table.leaves.get(name)) is not None:
            return known
        origins = self._old.origins.get(old.number, {})
        if named_by:
            self.met.update(named_by)
            limit, origins = self._laid(old, named_by, steps, place) or (limit, origins)
        return self.table.leaf(name, limit, origins)

    def _laid(
        self, old: RuleNode, entries: tuple[OverlayEntry, ...], steps: Steps, place: int
    ) -> tuple[Limit, Mapping[str, str]] | None:
        """Build the limit of a rule with these entries over it, and where its fields come from; None: they clash."""
        draft = self._old.drafts[old.number]
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


def _unmatched(entry: OverlayEntry, table: NodeTable, levels: Levels) -> str:
    """Return the reason why an entry names no limit, with a name like the one that was meant."""
    named = [level for name, level in levels.items() if entry.domain.matches(name)]
    if not named:
        return f"no domain matches `{entry.domain.text}`{_suggest(entry.domain.text, levels)}"
    for step in entry.path:
        rules = [rule for level in named for rule in _rules_on(table, level)]
        below = [node for key, value, node in rules if step.key.matches(key) and step.value.matches(value)]
        if not below:
            names = (key if step.value is ANYTHING else rule_name(key, value) for key, value, _ in rules)
            return f"no rule matches the step `{step}` of its path{_suggest(str(step), names)}"
        named = [node.children for node in below if node.children is not None]
    return "no rule that it names has a limit"


def _rules_on(table: NodeTable, level: Level) -> Iterator[tuple[str, str, RuleNode]]:
    for slot in level.values():
        for value, node, _ in rules_of_slot(table.nodes, slot):
            yield slot.key, value, node


def _suggest(name: str, known: Iterator[str] | Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(dict.fromkeys(islice(known, MAX_SUGGESTED))), 1)
    return f"; did you mean `{close[0]}`?" if close else ""
