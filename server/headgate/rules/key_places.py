"""Places of limit keys: the bytes that choose a key's shard, found from the key alone.

A key's shard is chosen by the key, unless its domain has `shard_by`: then by the value of that entry, which stands in
the key (keys.py). So records can be moved to where they belong without the requests that made them.
"""

from collections.abc import Callable
from typing import Final

from headgate.rules.keys import TAIL, WILDCARD, encode_part, split_key
from headgate.rules.ruleset import RuleSet

_TAIL: Final = encode_part(TAIL)
_WILDCARD: Final = encode_part(WILDCARD)


class KeyPlaces:
    """Finds places by the rules in force."""

    def __init__(self, current: Callable[[], RuleSet]) -> None:
        self._current = current
        self._rules: RuleSet | None = None
        self._shard_by: dict[bytes, bytes] = {}
        """The entry that chooses the shard, by the bytes that begin a domain's keys."""

    def place_of(self, key: bytes) -> bytes:
        """Return the bytes that choose the key's shard; the key itself where no rule says otherwise."""
        rules = self._current()
        if rules is not self._rules:
            domains = [domain for domain in rules.domains.values() if domain.shard_by]
            self._shard_by = {domain.head: encode_part(domain.shard_by) for domain in domains}
            self._rules = rules
        if not self._shard_by:
            return key
        try:
            return self._place(key)
        except (ValueError, IndexError):
            return key

    def _place(self, key: bytes) -> bytes:
        head, *parts = split_key(key)
        shard_by, at = self._shard_by.get(head), 0
        while shard_by is not None and parts[at] != _TAIL:
            length = 4 if parts[at] == _WILDCARD else 3
            if parts[at + 1] == shard_by:
                return head + parts[at + length - 1]
            at += length
        return key
