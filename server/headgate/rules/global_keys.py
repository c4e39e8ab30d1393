"""Keys that all regions count together: which limit key has a rule here whose scope is `global`, and with which window.

What another region says of a key is none of its business unless that is so. A limit key holds the way to its rule
(keys.py), so the rule is found from the key alone, without the request that made it.
"""

from collections.abc import Callable
from typing import Final

from headgate.limiter.limit import GLOBAL_FROM_MS, UNIT_MS, Algorithm, Limit
from headgate.limiter.scopes import LimitsOfRegion
from headgate.rules.keys import (
    EXACT,
    KEY_ONLY,
    MAX_PART_BYTES,
    OVERRIDE,
    TAIL,
    WILDCARD,
    encode_part,
    encode_tail,
    split_key,
)
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import Domain, RuleSet
from headgate.rules.tree import KeySlot, Level, RuleNode

_EXACT: Final = encode_part(EXACT)
_KEY_ONLY: Final = encode_part(KEY_ONLY)
_WILDCARD: Final = encode_part(WILDCARD)
_OVERRIDE: Final = encode_part(OVERRIDE)
_TAIL: Final = encode_part(TAIL)
_DIGEST: Final = b"h:"
_REQUEST_TAILS: Final = {
    window_ms: encode_tail(Algorithm.SLIDING_WINDOW, window_ms)
    for window_ms in UNIT_MS.values()
    if window_ms >= GLOBAL_FROM_MS
}
"""Ends of the keys of limits that came with requests, by their windows, as far as regions share those."""


class GlobalKeys:
    """Judges keys by the rules in force, and by how this region binds their limits."""

    def __init__(self, current: Callable[[], RuleSet], limits: LimitsOfRegion, request_limits: RequestLimits) -> None:
        self._current = current
        self._limits = limits
        self._request_limits = request_limits
        """Default for domains that don't say it themselves."""
        self._finder = _RuleFinder(current())

    @property
    def version(self) -> object:
        """The rule set that decides: another one, and other keys may be shared."""
        return self._current()

    def is_global(self, key: bytes, place: bytes, window_ms: int) -> bool:
        """Say if all regions count the key together, in windows of this length, on the shard that `place` chooses."""
        rules = self._current()
        if rules is not self._finder.rules:
            self._finder = _RuleFinder(rules)
        try:
            parts = split_key(key)
            domain = self._finder.domains.get(parts[0])
            if domain is None or not _may_be_at(domain, key, place):
                return False
            if parts[1] == _OVERRIDE:
                return self._is_of_requests(domain, parts, window_ms)
            limits = [self._finder.find(level, parts) for level in domain.levels()]
        except (ValueError, IndexError):
            return False
        return any(
            limit is not None and limit.window_ms == window_ms and self._limits.bind(limit).publish_at > 0
            for limit in limits
        )

    def _is_of_requests(self, domain: Domain, parts: list[bytes], window_ms: int) -> bool:
        """Say if it is a key of limits that come with requests, where those are taken."""
        if (domain.request_limits or self._request_limits) is RequestLimits.REFUSE:
            return False
        *groups, tail, algorithm, window = parts[1:]
        return (
            set(groups[::3]) == {_OVERRIDE}
            and len(groups) % 3 == 0
            and (_REQUEST_TAILS.get(window_ms) == tail + algorithm + window)
        )


def _may_be_at(domain: Domain, key: bytes, place: bytes) -> bool:
    """Say if the domain's keys may lie where `place` says: at their own, or by the value of its `shard_by`."""
    return place == key or (bool(domain.shard_by) and place.startswith(domain.head))


class _RuleFinder:
    """Finds the rules of keys in one rule set."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.domains = {domain.head: domain for domain in rules.domains.values()}
        self._digests: dict[int, dict[bytes, RuleNode]] = {}
        self._wildcards: dict[int, dict[bytes, RuleNode]] = {}
        """Nodes of slots' long values by their digests, and of their wildcards by their heads; slots by identity."""

    def find(self, first: Level, parts: list[bytes]) -> Limit | None:
        """Return the limit whose keys look like this. Raises IndexError where the key ends too early."""
        level: Level | None = first
        node: RuleNode | None = None
        at = 1
        while parts[at] != _TAIL:
            slot = _slot(level, parts[at + 1]) if level is not None else None
            if slot is None:
                return None
            node, count = self._node(slot, parts, at)
            if node is None:
                return None
            level = node.children
            at += count
        return node.limit if node is not None and node.tail == b"".join(parts[at:]) else None

    def _node(self, slot: KeySlot, parts: list[bytes], at: int) -> tuple[RuleNode | None, int]:
        """The node that the group at `at` leads to, and how many parts the group has."""
        kind = parts[at]
        if kind == _EXACT:
            return self._exact(slot, parts[at + 2]), 3
        if kind == _KEY_ONLY:
            return slot.any_node, 3
        head = kind + parts[at + 1] + parts[at + 2]
        return self._wildcards_of(slot).get(head), 4 if kind == _WILDCARD else 3

    def _exact(self, slot: KeySlot, part: bytes) -> RuleNode | None:
        return self._digests_of(slot).get(part) if part.startswith(_DIGEST) else slot.values.get(_text(part))

    def _digests_of(self, slot: KeySlot) -> dict[bytes, RuleNode]:
        found = self._digests.get(id(slot))
        if found is None:
            # In characters: no value that is longer in bytes is as short as a quarter of that.
            long = [(value, node) for value, node in slot.values.items() if len(value) > MAX_PART_BYTES // 4]
            found = self._digests[id(slot)] = {encode_part(value): node for value, node in long}
        return found

    def _wildcards_of(self, slot: KeySlot) -> dict[bytes, RuleNode]:
        found = self._wildcards.get(id(slot))
        if found is None:
            found = self._wildcards[id(slot)] = {wildcard.head: wildcard.node for wildcard in slot.ordered}
        return found


def _slot(level: Level, part: bytes) -> KeySlot | None:
    if part.startswith(_DIGEST):
        return next((slot for key, slot in level.items() if encode_part(key) == part), None)
    return level.get(_text(part))


def _text(part: bytes) -> str:
    """The text of a part that stands as it is."""
    return part[part.index(b":") + 1 :].decode("utf-8", "surrogatepass")
