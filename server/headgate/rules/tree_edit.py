"""Trees of rules that differ in one rule from another: only the nodes on the way to it are made anew.

A rule stands at its path. The nodes above it are there as long as it is, or as they are rules themselves; so a rule
that is put and deleted again leaves the tree as it was. A wildcard that is new goes behind those that are there.
"""

from collections.abc import Sequence

from headgate.limiter.rule_name import Steps
from headgate.rules.content import added, order_number
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
    return RuleContent(found[0].limit, found[1]) if found is not None and found[0].is_rule else None


def with_rule(level: Level, path: Steps, rule: RuleContent | None, leaf: RuleNode | None = None) -> tuple[Level, int]:
    """Make the tree that has this rule at this path, or, with None, none; and what that adds to the sum of orders.

    `leaf` is a node of the same limit that is to be shared, where the rule has no children.
    """
    edit = _Edit(rule, leaf)
    return edit.level(level, (), path), edit.orders


def reordered(level: Level, above: Steps, key: str, patterns: Sequence[str]) -> Level:
    """Make the tree in which the wildcards of a key stand in this order; others of the key stand behind them."""
    if above:
        (first, value), *_ = above
        slot = level.get(first)
        own = None if slot is None else _own_node(slot, value)
        if slot is None or own is None or own[0].children is None:
            return level
        children = reordered(own[0].children, above[1:], key, patterns)
        changed = _with_node(slot, value, _with_children(own[0], children), shared=own[1])
        return level if changed is None else level | {first: changed}
    if key not in level:
        return level
    slot = level[key]
    places = {pattern: place for place, pattern in enumerate(patterns)}
    ordered = sorted(slot.ordered, key=lambda wildcard: places.get(wildcard.pattern, len(places)))
    index = WildcardIndex(ordered) if ordered else None
    return level | {key: KeySlot(key, slot.values, index, slot.any_node, slot.any_place)}


class _Edit:
    """One change, on its way down the tree."""

    def __init__(self, rule: RuleContent | None, leaf: RuleNode | None) -> None:
        self._rule = rule
        self._leaf = leaf
        self.orders = 0

    def level(self, level: Level, above: Steps, path: Steps) -> Level:
        key, value = path[0]
        slot = level.get(key) or KeySlot(key, _NO_VALUES)
        own = _own_node(slot, value)
        node, shared = (None, False) if own is None else own
        if len(path) == 1:
            node, shared = self._node(node), self._rule is not None and self._rule.shared
        else:
            children = None if node is None else node.children
            node = _with_children(node, self.level(children or {}, above + path[:1], path[1:]))
        changed = _with_node(slot, value, node, shared=shared)
        self._note_order(above, slot, changed)
        others = {name: other for name, other in level.items() if name != key or changed is not None}
        return others if changed is None else others | {key: changed}

    def _node(self, node: RuleNode | None) -> RuleNode | None:
        """Make the node at the end of the path; None: nothing is left of it."""
        children = None if node is None else node.children
        rule = self._rule
        if rule is None:
            return None if children is None else RuleNode(None, children, is_rule=False)
        if children is None and self._leaf is not None:
            return self._leaf
        return RuleNode(rule.limit, children, is_rule=True)

    def _note_order(self, above: Steps, before: KeySlot, after: KeySlot | None) -> None:
        old = [wildcard.pattern for wildcard in before.ordered]
        new = [] if after is None else [wildcard.pattern for wildcard in after.ordered]
        if old != new:
            left, right = order_number(above, before.key, old), order_number(above, before.key, new)
            self.orders = added(self.orders, right, -left)


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


def _with_node(slot: KeySlot, value: str, node: RuleNode | None, *, shared: bool) -> KeySlot | None:
    """Make the slot in which this value has this node, or none; None: nothing is left of the slot."""
    values, wildcards, any_node, any_place = slot.values, slot.wildcards, slot.any_node, slot.any_place
    if not value:
        any_node, any_place = node, NOWHERE
    elif is_pattern(slot.key, value):
        wildcards = _with_wildcard(slot, value, node, shared=shared)
    elif node is not None:
        values = values.put(value, node)
    elif values.get(value) is not None:
        values = values.without(value)
    if not len(values) and wildcards is None and any_node is None:
        return None
    return KeySlot(slot.key, values, wildcards, any_node, any_place)


def _with_wildcard(
    slot: KeySlot, pattern: str, node: RuleNode | None, *, shared: bool
) -> WildcardIndex[Wildcard] | None:
    made = None if node is None else Wildcard(slot.key, pattern, shared=shared, node=node, place=NOWHERE)
    kept: list[Wildcard] = []
    for item in slot.ordered:
        if item.pattern != pattern:
            kept.append(item)
        elif made is not None:
            kept.append(made)
    if made is not None and made not in kept:
        kept.append(made)
    return WildcardIndex(kept) if kept else None
