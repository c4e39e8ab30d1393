"""Values by limit key: one table in many dicts, so that it grows in small steps.

A dict that is full to two thirds moves to another place, all at once, and everybody waits for that: tens of
milliseconds where there are a million keys, in the middle of a flood of new ones. Here a key's hash says in which of
many dicts it is; each grows by itself, and none holds more than its part.

Keys that are asked for again stand in one more dict, as many as requests are remembered (`match_cache_entries`). A warm
decision finds its counters there as fast as if there were one dict: parts alone made a request of five keys 2% dearer.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

PART_KEYS: Final = 16_384
"""Keys in one part of a full table, on average: a dict moves them in under a millisecond. Smaller parts spread few keys
over more memory."""

MOST_WARM: Final = 16_384
"""Keys in front of the parts; when there are more, all of them are looked for in their parts again."""

V = TypeVar("V")


class ByKey(Generic[V]):
    """Values by limit key, in parts; no more than `most`, which its heirs and users see to."""

    def __init__(self, most: int) -> None:
        # An odd number: a dict goes by the low bits of hashes, and those of its keys must not all be the same.
        self._number_of_parts = most // PART_KEYS | 1
        self._parts: list[dict[bytes, V]] = [{} for _ in range(self._number_of_parts)]
        self._warm: dict[bytes, V] = {}
        """Those that were asked for lately, which are in their parts too."""
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable([part.values() for part in self._parts])

    def find(self, key: bytes) -> V | None:
        """Return the key's value; None: there is none."""
        value = self._warm.get(key)
        return self._search(key) if value is None else value

    def keep(self, key: bytes, value: V) -> None:
        """Take in the value of a key that is not there."""
        self._parts[hash(key) % self._number_of_parts][key] = value
        self._len += 1

    def forget(self, key: bytes) -> None:
        """Let go of a key that is there."""
        del self._parts[hash(key) % self._number_of_parts][key]
        self._warm.pop(key, None)
        self._len -= 1

    def _search(self, key: bytes) -> V | None:
        value = self._parts[hash(key) % self._number_of_parts].get(key)
        if value is not None:
            if len(self._warm) >= MOST_WARM:
                self._warm.clear()
            self._warm[key] = value
        return value
