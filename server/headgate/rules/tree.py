"""The compiled form of rules: levels of slots, slots of nodes. Never changed: another version is another tree, which
shares with this one whatever is the same in both (`tree_edit.py`).

A level maps a key to its slot. A slot holds what the key's rules say about values:
a map of exact ones, wildcards if there are any, and the rule without a value. So a
lookup is two reads per level, however many rules there are.

Millions of rules must fit: a rule without children is a leaf that is shared by all rules with an equal limit, and costs
its entry in a dict, its text, and eight bytes for its place in the files.
"""

from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from headgate.limiter.limit import Limit
from headgate.rules.keys import EXACT, KEY_ONLY, SHARED, WILDCARD, encode_key, encode_part, encode_tail
from headgate.rules.limits import Draft
from headgate.rules.text_map import TextMap, text_map
from headgate.rules.wildcards import WildcardIndex, is_pattern

Level: TypeAlias = dict[str, "KeySlot"]

_LINE_BITS = 32
NOWHERE = 0
"""The place of a rule that is in no file at hand: it came from a snapshot, or by itself."""


def pack_place(file_number: int, line: int) -> int:
    """File and line in one number, so that a million places are eight bytes each."""
    return (file_number << _LINE_BITS) | line


def unpack_place(place: int) -> tuple[int, int]:
    """The file's number and the line that `pack_place` packed."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


_tail = lru_cache(maxsize=1024)(encode_tail)
"""Few windows are in use, and each rule refers to one of these."""


NO_ORIGINS: Mapping[str, str] = {}


class RuleNode:
    """Node of a matched rule: a limit, or children, or both, or (to exempt) neither."""

    __slots__ = ("children", "form", "is_rule", "limit", "origins", "tail")

    def __init__(
        self,
        limit: Limit | None,
        children: Level | None,
        *,
        is_rule: bool,
        origins: Mapping[str, str] = NO_ORIGINS,
    ) -> None:
        self.limit = limit
        self.children = children
        self.is_rule = is_rule
        """False: it is there for its children alone, and goes with the last of them."""
        self.origins = origins
        """Fields of the limit that are not the rule's own, and where they come from."""
        self.form = b""
        """Canonical form of the rule, where it was asked for before; of a wildcard that shares it is never kept."""
        self.tail = b"" if limit is None else _tail(limit.algorithm, limit.window_ms)


class Leaves:
    """Nodes without children, each shared by all rules that say the same."""

    __slots__ = ("_by_name", "drafts")

    def __init__(self) -> None:
        self._by_name: dict[Any, RuleNode] = {}
        self.drafts: dict[RuleNode, Draft] = {}
        """Fields that the limits of nodes were built from."""

    def find(self, name: Any) -> RuleNode | None:
        """The leaf of that name, if there is one."""
        return self._by_name.get(name)

    def make(
        self, name: Any, limit: Limit | None, origins: Mapping[str, str] = NO_ORIGINS, draft: Draft | None = None
    ) -> RuleNode:
        """The leaf of that name, made when it is first asked for."""
        node = self._by_name.get(name)
        if node is None:
            node = self._by_name[name] = RuleNode(limit, None, is_rule=True, origins=origins)
            if draft is not None:
                self.drafts[node] = draft
        return node

    def with_children(self, leaf: RuleNode, children: Level) -> RuleNode:
        """A node with the limit of a leaf, and children."""
        node = RuleNode(leaf.limit, children, is_rule=True, origins=leaf.origins)
        draft = self.drafts.get(leaf)
        if draft is not None:
            self.drafts[node] = draft
        return node

    def name(self, name: Any, leaf: RuleNode) -> None:
        """Let a leaf be found by another name too."""
        self._by_name[name] = leaf


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

    __slots__ = ("any_head", "any_node", "any_place", "exact_head", "key", "values", "wildcards")

    def __init__(
        self,
        key: str,
        values: TextMap[RuleNode],
        wildcards: WildcardIndex[Wildcard] | None = None,
        any_node: RuleNode | None = None,
        any_place: int = NOWHERE,
    ) -> None:
        self.key = key
        self.values = values
        """The exact values, each with its node, and its place as the entry's note."""
        self.wildcards = wildcards
        self.any_node = any_node
        """The rule that has the key alone and matches every value."""
        self.any_place = any_place
        self.exact_head = encode_part(EXACT) + encode_part(key)
        self.any_head = encode_part(KEY_ONLY) + encode_part(key)

    @property
    def ordered(self) -> tuple[Wildcard, ...]:
        """The wildcards, in the order in which they are tried."""
        return () if self.wildcards is None else self.wildcards.ordered

    def rules(self) -> Iterator[tuple[str, RuleNode, int, bool]]:
        """Value, node, place and sharing of every node of the key: exact values, wildcards in order, the key alone."""
        for value, node, place in self.values.noted():
            yield value, node, place, False
        for wildcard in self.ordered:
            yield wildcard.pattern, wildcard.node, wildcard.place, wildcard.shared
        if self.any_node is not None:
            yield "", self.any_node, self.any_place, False

    def distinct(self) -> Iterator[RuleNode]:
        """Every node of the key; leaves that rules share only once."""
        yield from {id(node): node for node in self.values.values()}.values()
        yield from (wildcard.node for wildcard in self.ordered)
        if self.any_node is not None:
            yield self.any_node


class _SlotBuilder:
    """A slot while it is being read."""

    __slots__ = ("any_node", "any_place", "places", "values", "wildcards")

    def __init__(self) -> None:
        self.values: dict[str, RuleNode] = {}
        self.places = array("Q")
        self.wildcards: dict[str, Wildcard] = {}
        self.any_node: RuleNode | None = None
        self.any_place = NOWHERE

    def add_exact(self, value: str, node: RuleNode, place: int) -> int | None:
        self.values.setdefault(value, node)
        if len(self.values) == len(self.places):
            return self.places[list(self.values).index(value)]
        self.places.append(place)
        return None

    def add_any(self, node: RuleNode, place: int) -> int | None:
        if self.any_node is not None:
            return self.any_place
        self.any_node, self.any_place = node, place
        return None

    def add_wildcard(self, wildcard: Wildcard) -> int | None:
        first = self.wildcards.setdefault(wildcard.pattern, wildcard)
        return None if first is wildcard else first.place

    def finish(self, key: str) -> KeySlot:
        values = text_map(self.values, self.places)
        wildcards = WildcardIndex(tuple(self.wildcards.values())) if self.wildcards else None
        return KeySlot(key, values, wildcards, self.any_node, self.any_place)


class LevelBuilder:
    """A level while it is being read. Adding returns the place of the rule that is there already, if one is."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[str, _SlotBuilder] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, key: str, value: str, node: RuleNode, place: int, *, shared: bool = False) -> int | None:
        """Add a rule, unless one like it is there; then return that one's place."""
        slot = self._slot(key)
        if not value:
            return slot.add_any(node, place)
        if is_pattern(key, value):
            return slot.add_wildcard(Wildcard(key, value, shared=shared, node=node, place=place))
        return slot.add_exact(value, node, place)

    def merge(self, other: "LevelBuilder") -> list[tuple[str, int, int]]:
        """Add another file's rules; return those that exist already as (rule, place, first place)."""
        collisions = []
        for key, theirs in other._slots.items():
            slot = self._slot(key)
            for (value, node), place in zip(theirs.values.items(), theirs.places, strict=True):
                if (first := slot.add_exact(value, node, place)) is not None:
                    collisions.append((rule_name(key, value), place, first))
            if theirs.any_node is not None and (first := slot.add_any(theirs.any_node, theirs.any_place)) is not None:
                collisions.append((key, theirs.any_place, first))
            collisions += [
                (rule_name(key, wildcard.pattern), wildcard.place, first)
                for wildcard in theirs.wildcards.values()
                if (first := slot.add_wildcard(wildcard)) is not None
            ]
        return collisions

    def finish(self) -> Level:
        """The level, complete."""
        return {key: slot.finish(key) for key, slot in self._slots.items()}

    def _slot(self, key: str) -> _SlotBuilder:
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = _SlotBuilder()
        return slot


def rule_name(key: str, value: str) -> str:
    """One level of a rule, for people."""
    return f"{key}={value}" if value else key
