"""Callers that two rule sets tell apart: one descriptor for all those that both of them decide alike.

At each level a value is told apart by the rule that it meets in either set: an exact value by itself, any other by the
first wildcard that matches in the old set and the first in the new one. Of two wildcards, the values that both match
are those of their overlaps; an overlap stands for all its values, because a wildcard that matches its text, with a
character that no rule has for each star, matches whatever stands there.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from headgate.limiter.rule_name import Steps
from headgate.rules.overlaps import overlaps
from headgate.rules.ruleset import RuleSet, node_below
from headgate.rules.tree import KeySlot, Level, RuleNode, Wildcard
from headgate.rules.wildcards import STAR

MAX_OVERLAPS: Final = 4096
"""Overlaps of two wildcards that are looked at. Two wildcards of six stars each can have as many; beyond that, and only
where wildcards before them match all of these, a caller can be missed."""

NO_RULES_CHARACTER: Final = "\U0010ffff"
"""Stands for what a star takes in: Unicode keeps this character out of texts, so no rule has it."""


class Caller(NamedTuple):
    """Descriptors that each of two rule sets decides by one rule, or by none."""

    steps: Steps
    """The descriptors as a rule would name them."""
    entries: tuple[tuple[str, str], ...]
    """One of them."""


class _Side(NamedTuple):
    """One of the two sets, and the level of it at which a descriptor has arrived; None if no rule led there."""

    level: Level | None

    def slot(self, key: str) -> KeySlot | None:
        return None if self.level is None else self.level.get(key)

    def below(self, node: RuleNode | None) -> "_Side":
        return _Side(None if node is None else node.children)


def callers_of(old: RuleSet, new: RuleSet, domain: str) -> Iterator[Caller]:
    """All callers of a domain that meet a limit in either set, in the order in which rules are tried."""
    sides = [_Side(found.level if (found := rules.domain(domain)) else None) for rules in (old, new)]
    yield from _below(sides, Caller((), ()))


def _below(sides: Sequence[_Side], parent: Caller) -> Iterator[Caller]:
    for key in dict.fromkeys(key for side in sides for key in side.level or ()):
        for name, value in _values_apart(*(side.slot(key) for side in sides)):
            caller = Caller((*parent.steps, (key, name)), (*parent.entries, (key, value)))
            nodes = [node_below(side.level, key, value) for side in sides]
            if any(node is not None and node.limit is not None for node in nodes):
                yield caller
            yield from _below([side.below(node) for side, node in zip(sides, nodes, strict=True)], caller)


def _values_apart(old: KeySlot | None, new: KeySlot | None) -> Iterator[tuple[str, str]]:
    """Values of a key that two sets tell apart: each as a rule would name it, and one that it stands for."""
    slots = [slot for slot in (old, new) if slot is not None]
    for value in dict.fromkeys(value for slot in slots for value in _in_file_order(slot)):
        yield value, value
    seen: set[tuple[Wildcard | None, ...]] = set()
    for pattern in _patterns_apart(old, new):
        value = pattern.replace(STAR, NO_RULES_CHARACTER)
        choice = tuple(_first_wildcard(slot, value) for slot in (old, new))
        if choice not in seen and all(slot.values.get(value) is None for slot in slots):
            seen.add(choice)
            yield ("" if choice == (None, None) else pattern), value


def _in_file_order(slot: KeySlot) -> list[str]:
    return [value for value, _, _ in sorted(slot.values.noted(), key=lambda item: item[2])]


def _patterns_apart(old: KeySlot | None, new: KeySlot | None) -> Iterator[str]:
    """Overlaps of each rule for several values in the old set with each in the new one."""
    before, after = _patterns(old), _patterns(new)
    if before == after:
        yield from before
        return
    ends = [(right, *_ends(right)) for right in after]
    for left in before:
        head, tail = _ends(left)
        for right, its_head, its_tail in ends:
            # Most have nothing in common, and of thousands of wildcards each meets each.
            if (head.startswith(its_head) or its_head.startswith(head)) and (
                tail.endswith(its_tail) or its_tail.endswith(tail)
            ):
                yield from islice(overlaps(left, right), MAX_OVERLAPS)


def _ends(pattern: str) -> tuple[str, str]:
    """Text before the first star of a pattern, and text behind its last."""
    return pattern.partition(STAR)[0], pattern.rpartition(STAR)[2]


def _patterns(slot: KeySlot | None) -> list[str]:
    """The wildcards of a key in the order in which they are tried; last, any value."""
    wildcards = () if slot is None or slot.wildcards is None else slot.wildcards.ordered
    return [*(wildcard.pattern for wildcard in wildcards), STAR]


def _first_wildcard(slot: KeySlot | None, value: str) -> Wildcard | None:
    return None if slot is None or slot.wildcards is None else slot.wildcards.find(value)
