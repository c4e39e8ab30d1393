"""The compiled form of rules: levels of slots, slots of nodes. Built once, then never changed.

A level maps a key to its slot. A slot holds what the key's rules say about values:
a dict of exact ones, wildcards if there are any, and the rule without a value. So a
lookup is two dict reads per level, however many rules there are.

A million rules must fit, and must not be felt: a rule without children is the number of
a leaf that is shared by all rules with an equal limit, and costs its dict entry, its text
and eight bytes for its place in the files. Numbers rather than references, because the
garbage collector does not visit a dict of texts and numbers: with references each of its
full runs would stop the process for tens of milliseconds.
"""

from array import array
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from headgate.limiter.limit import Limit
from headgate.rules.keys import EXACT, KEY_ONLY, SHARED, WILDCARD, encode_key, encode_part, encode_tail
from headgate.rules.limits import Draft
from headgate.rules.wildcards import WildcardIndex, is_pattern

Level: TypeAlias = dict[str, "KeySlot"]

_LINE_BITS = 32
NOWHERE = 0
"""The place of a rule that came from a snapshot: files and lines are not kept there."""


def pack_place(file_index: int, line: int) -> int:
    """File and line in one number, so that a million places are eight bytes each."""
    return (file_index << _LINE_BITS) | line


def unpack_place(place: int) -> tuple[int, int]:
    """The file's index and the line that `pack_place` packed."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


_tail = lru_cache(maxsize=1024)(encode_tail)
"""Few windows are in use, and each rule refers to one of these."""


class RuleNode:
    """Node of a matched rule: a limit, or children, or both, or (to exempt) neither."""

    __slots__ = ("children", "limit", "number", "tail")

    def __init__(self, number: int, limit: Limit | None, children: Level | None) -> None:
        self.number = number
        """Index in the set's table of nodes."""
        self.limit = limit
        self.children = children
        self.tail = b"" if limit is None else _tail(limit.algorithm, limit.window_ms)


NOTHING: Mapping[str, str] = {}


class NodeTable:
    """Nodes of one set by number, with the leaves that rules share."""

    __slots__ = ("drafts", "leaves", "nodes", "origins")

    def __init__(self) -> None:
        self.nodes: list[RuleNode] = []
        self.leaves: dict[Any, RuleNode] = {}
        self.drafts: dict[int, Draft] = {}
        """Fields that the limits of nodes were built from, by the nodes' numbers."""
        self.origins: dict[int, Mapping[str, str]] = {}
        """Fields of limits that are not their rules' own, and where they come from, by the nodes' numbers."""

    def new(self, limit: Limit | None, children: Level | None) -> RuleNode:
        """A node with the next number."""
        node = RuleNode(len(self.nodes), limit, children)
        self.nodes.append(node)
        return node

    def leaf(
        self, name: Any, limit: Limit | None, origins: Mapping[str, str] = NOTHING, draft: Draft | None = None
    ) -> RuleNode:
        """The leaf of that name, made when it is first asked for."""
        node = self.leaves.get(name)
        if node is None:
            node = self.leaves[name] = self.new(limit, None)
            if draft is not None:
                self.drafts[node.number] = draft
            if origins:
                self.origins[node.number] = origins
        return node

    def with_children(self, leaf: RuleNode, children: Level) -> RuleNode:
        """A node with the limit of a leaf, and children."""
        node = self.new(leaf.limit, children)
        if leaf.number in self.drafts:
            self.drafts[node.number] = self.drafts[leaf.number]
        if leaf.number in self.origins:
            self.origins[node.number] = self.origins[leaf.number]
        return node


class Wildcard:
    """A rule whose value has `*` in it, such as `/api/*`."""

    __slots__ = ("head", "node", "pattern", "place", "shared")

    def __init__(self, key: str, pattern: str, *, shared: bool, node: RuleNode, place: int) -> None:
        self.pattern = pattern
        self.shared = shared
        self.node = node
        self.place = place
        self.head = encode_key((SHARED if shared else WILDCARD, key, pattern))


class KeySlot:
    """All rules of one key on one level: those of exact values, of wildcards, and the one for any value."""

    __slots__ = ("any_head", "any_node", "any_place", "exact_head", "key", "places", "values", "wildcards")

    def __init__(self, key: str) -> None:
        self.key = key
        self.values: dict[str, int] = {}
        """The exact values, each with the number of its node."""
        self.places = array("Q")
        """One per value, in the dict's order; empty when they are not known."""
        self.wildcards: WildcardIndex[Wildcard] | None = None
        self.any_node: RuleNode | None = None
        """The rule that has the key alone and matches every value."""
        self.any_place = NOWHERE
        self.exact_head = encode_part(EXACT) + encode_part(key)
        self.any_head = encode_part(KEY_ONLY) + encode_part(key)

    def place_of(self, value: str) -> int:
        """Place of an exact rule in the files; slow, for messages."""
        if not self.places:
            return NOWHERE
        return self.places[next(index for index, other in enumerate(self.values) if other == value)]


class LevelBuilder:
    """A level while it is being read."""

    __slots__ = ("_wildcards", "level")

    def __init__(self) -> None:
        self.level: Level = {}
        self._wildcards: dict[str, dict[str, Wildcard]] = {}

    def add(self, key: str, value: str, node: RuleNode, place: int, *, shared: bool = False) -> int | None:
        """Add a rule, unless one like it is there; then return that one's place."""
        slot = self.level.get(key)
        if slot is None:
            slot = self.level[key] = KeySlot(key)
        if not value:
            return self._add_any(slot, node, place)
        if is_pattern(key, value):
            return self._add_wildcard(key, Wildcard(key, value, shared=shared, node=node, place=place))
        return self._add_exact(slot, value, node.number, place)

    def _add_exact(self, slot: KeySlot, value: str, number: int, place: int) -> int | None:
        slot.values.setdefault(value, number)
        if len(slot.values) == len(slot.places):
            return slot.place_of(value)
        slot.places.append(place)
        return None

    def _add_any(self, slot: KeySlot, node: RuleNode, place: int) -> int | None:
        if slot.any_node is not None:
            return slot.any_place
        slot.any_node, slot.any_place = node, place
        return None

    def _add_wildcard(self, key: str, wildcard: Wildcard) -> int | None:
        same_key = self._wildcards.setdefault(key, {})
        first = same_key.setdefault(wildcard.pattern, wildcard)
        return None if first is wildcard else first.place

    def merge(self, other: "LevelBuilder") -> list[tuple[str, int, int]]:
        """Add another file's rules; return those that exist already as (rule, place, first place)."""
        collisions = []
        for theirs in other.level.values():
            slot = self.level.setdefault(theirs.key, KeySlot(theirs.key))
            for (value, number), place in zip(theirs.values.items(), theirs.places, strict=True):
                if (first := self._add_exact(slot, value, number, place)) is not None:
                    collisions.append((rule_name(slot.key, value), place, first))
            if theirs.any_node is not None:
                first = self._add_any(slot, theirs.any_node, theirs.any_place)
                if first is not None:
                    collisions.append((slot.key, theirs.any_place, first))
        for key, wildcards in other._wildcards.items():
            self.level.setdefault(key, KeySlot(key))
            collisions += [
                (rule_name(key, wildcard.pattern), wildcard.place, first)
                for wildcard in wildcards.values()
                if (first := self._add_wildcard(key, wildcard)) is not None
            ]
        return collisions

    def finish(self) -> Level:
        """The level, complete."""
        for key, wildcards in self._wildcards.items():
            self.level[key].wildcards = WildcardIndex(tuple(wildcards.values()))
        return self.level


def rule_name(key: str, value: str) -> str:
    """One level of a rule, for people."""
    return f"{key}={value}" if value else key
