"""Trees of rules that differ in some rules from another: only the nodes on the way to these are made anew, once.

A rule stands at its path. The nodes above it are there as long as it is, or as they are rules themselves; so a rule
that is put and deleted again leaves the tree as it was. A wildcard that is new goes behind those that are there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.limiter.rule_name import Steps
from headgate.rules.content import added, form_of, order_number
from headgate.rules.model import RuleContent
from headgate.rules.text_map import TextMap, text_map
from headgate.rules.tree import NOWHERE, KeySlot, Level, RuleNode, Wildcard
from headgate.rules.wildcards import WildcardIndex, is_pattern

_NO_VALUES: TextMap[RuleNode] = text_map({})


def node_at(level: Level | None, path: Steps) -> tuple[RuleNode, bool] | None:
    """Find the node of exactly this path, and whether it is a wildcard that shares its counter."""
    found: tuple[RuleNode, bool] | None = None
    for key, value in path:
        slot = None if level is None else level.get(key)
        found = None if slot is None else _own_node(slot, value)
        if found is None:
            return None
        level = found[0].children
    return found


def rule_at(level: Level, path: Steps) -> RuleContent | None:
    """Find the rule of exactly this path; None where there is none, if only nodes below it have one."""
    found = node_at(level, path)
    if found is None or not found[0].is_rule:
        return None
    node, shared = found
    if shared:
        return RuleContent(node.limit, shared=True)
    node.form = node.form or form_of(RuleContent(node.limit))
    return RuleContent(node.limit, form=node.form)


def patterns_at(level: Level, above: Steps, key: str) -> list[str]:
    """Return the wildcards of a key on a level, in order; none where there is no such level."""
    found = node_at(level, above)
    below = level if not above else None if found is None else found[0].children
    slot = None if below is None else below.get(key)
    return [] if slot is None else [wildcard.pattern for wildcard in slot.ordered]


@dataclass(frozen=True, slots=True)
class RuleEdit:
    """A rule that is to stand at a path; None: none is."""

    rule: RuleContent | None
    leaf: RuleNode | None = None
    """A node of the same limit that is to be shared, where the rule has no children."""


def with_rules(level: Level, edits: Mapping[Steps, RuleEdit]) -> tuple[Level, int]:
    """Make the tree that has these rules at their paths, in one walk; and what that adds to the sum of orders.

    Where a wildcard is taken out of its order and put in again, each is a walk of its own.
    """
    walk = _Walk()
    return walk.level(level, (), list(edits.items())), walk.orders


def reordered(level: Level, above: Steps, key: str, patterns: Sequence[str]) -> Level:
    """Make the tree in which the wildcards of a key stand in this order; others of the key stand behind them."""
    if above:
        (first, value), *_ = above
        slot = level.get(first)
        own = None if slot is None else _own_node(slot, value)
        if slot is None or own is None or own[0].children is None:
            return level
        children = reordered(own[0].children, above[1:], key, patterns)
        changed = _with_nodes(slot, {value: (_with_children(own[0], children), own[1])})
        return level if changed is None else level | {first: changed}
    if key not in level:
        return level
    slot = level[key]
    places = {pattern: place for place, pattern in enumerate(patterns)}
    ordered = sorted(slot.ordered, key=lambda wildcard: places.get(wildcard.pattern, len(places)))
    index = WildcardIndex(ordered) if ordered else None
    return level | {key: KeySlot(key, slot.values, index, slot.any_node, slot.any_place)}


_Edits = list[tuple[Steps, RuleEdit]]


class _Walk:
    """Some changes, on their way down the tree."""

    def __init__(self) -> None:
        self.orders = 0

    def level(self, level: Level, above: Steps, edits: _Edits) -> Level:
        """Make the level below `above` in which these rules stand at their paths."""
        by_key: dict[str, dict[str, _Edits]] = {}
        for path, edit in edits:
            key, value = path[len(above)]
            by_key.setdefault(key, {}).setdefault(value, []).append((path, edit))
        changed = level.copy()
        for key, by_value in by_key.items():
            slot = level.get(key) or KeySlot(key, _NO_VALUES)
            nodes = {value: self._node(slot, (*above, (key, value)), some) for value, some in by_value.items()}
            after = _with_nodes(slot, nodes)
            self._note_order(above, slot, after)
            if after is not None:
                changed[key] = after
            else:
                changed.pop(key, None)
        return changed

    def _node(self, slot: KeySlot, way: Steps, edits: _Edits) -> tuple[RuleNode | None, bool]:
        """Make the node at the end of a way, and say if it is a wildcard that shares; None: nothing is left of it."""
        node, shared = _own_node(slot, way[-1][1]) or (None, False)
        below = [(path, edit) for path, edit in edits if len(path) > len(way)]
        if below:
            children = None if node is None else node.children
            node = _with_children(node, self.level(children or {}, way, below))
        for path, edit in edits:
            if len(path) == len(way):
                node, shared = _with_rule(node, edit), edit.rule is not None and edit.rule.shared
        return node, shared

    def _note_order(self, above: Steps, before: KeySlot, after: KeySlot | None) -> None:
        if before.wildcards is (None if after is None else after.wildcards):
            return
        old = [wildcard.pattern for wildcard in before.ordered]
        new = [] if after is None else [wildcard.pattern for wildcard in after.ordered]
        if old != new:
            left, right = order_number(above, before.key, old), order_number(above, before.key, new)
            self.orders = added(self.orders, right, -left)


def _with_rule(node: RuleNode | None, edit: RuleEdit) -> RuleNode | None:
    children, rule = None if node is None else node.children, edit.rule
    if rule is None:
        return None if children is None else RuleNode(None, children, is_rule=False)
    if children is None and edit.leaf is not None:
        return edit.leaf
    return RuleNode(rule.limit, children, is_rule=True)


def _own_node(slot: KeySlot, value: str) -> tuple[RuleNode, bool] | None:
    """Find the node that has this value itself, and whether it shares; patterns are not matched."""
    if not value:
        return None if slot.any_node is None else (slot.any_node, False)
    if is_pattern(slot.key, value):
        return next(((item.node, item.shared) for item in slot.ordered if item.pattern == value), None)
    node = slot.values.get(value)
    return None if node is None else (node, False)


def _with_children(node: RuleNode | None, children: Level) -> RuleNode | None:
    if node is None:
        return RuleNode(None, children, is_rule=False) if children else None
    if not children and not node.is_rule:
        return None
    return RuleNode(node.limit, children or None, is_rule=node.is_rule)


def _with_nodes(slot: KeySlot, nodes: Mapping[str, tuple[RuleNode | None, bool]]) -> KeySlot | None:
    """Make the slot in which these values have these nodes, or none; None: nothing is left of the slot."""
    any_node, any_place, wildcards = slot.any_node, slot.any_place, slot.wildcards
    exact: dict[str, RuleNode | None] = {}
    for value, (node, shared) in nodes.items():
        if not value:
            any_node, any_place = node, NOWHERE
        elif is_pattern(slot.key, value):
            wildcards = _with_wildcard(wildcards, slot.key, value, node, shared=shared)
        elif node is not None or slot.values.get(value) is not None:
            exact[value] = node
    values = slot.values.changed(exact) if exact else slot.values
    if not len(values) and wildcards is None and any_node is None:
        return None
    return KeySlot(slot.key, values, wildcards, any_node, any_place)


def _with_wildcard(
    wildcards: WildcardIndex[Wildcard] | None, key: str, pattern: str, node: RuleNode | None, *, shared: bool
) -> WildcardIndex[Wildcard] | None:
    made = None if node is None else Wildcard(key, pattern, shared=shared, node=node, place=NOWHERE)
    kept: list[Wildcard] = []
    for item in () if wildcards is None else wildcards.ordered:
        if item.pattern != pattern:
            kept.append(item)
        elif made is not None:
            kept.append(made)
    if made is not None and made not in kept:
        kept.append(made)
    return WildcardIndex(kept) if kept else None
