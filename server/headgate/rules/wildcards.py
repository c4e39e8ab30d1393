"""Values with `*`: matching, and the order of several patterns that match.

Each `*` stands for zero or more characters, any number of times. Matching is greedy from the left and never goes back,
so its cost is bounded by pattern length times value length. The first pattern in file order wins; plain prefixes
(`/api/*`) are found by a dict per prefix length, so thousands of them cost no more than a few.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

STAR = "*"


def is_pattern(key: str, value: str) -> bool:
    """Return true if a value has stars that stand for something.

    A value that equals its key is a name that somebody generated, as Envoy Gateway does from a route without a host
    name, which ends in `/*`: it is exact.
    """
    return STAR in value and value != key


def matches(parts: Sequence[str], value: str) -> bool:
    """Return true if `value` matches the pattern that was split at its stars into `parts` (two or more)."""
    first, last = parts[0], parts[-1]
    # A value shorter than both ends together would let them overlap.
    if len(value) < len(first) + len(last) or not (value.startswith(first) and value.endswith(last)):
        return False
    position, end = len(first), len(value) - len(last)
    for part in parts[1:-1]:
        found = value.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


class HasPattern(Protocol):
    """Anything with a pattern: what an index of wildcards can hold."""

    @property
    def pattern(self) -> str:
        """The value as it stands in the rules, with its stars."""


W = TypeVar("W", bound=HasPattern)


class WildcardIndex(Generic[W]):
    """The wildcards of one key on one level, in file order. Immutable."""

    __slots__ = ("_general", "_lengths", "_prefixes", "ordered")

    def __init__(self, ordered: Sequence[W]) -> None:
        self.ordered: tuple[W, ...] = tuple(ordered)
        self._prefixes: dict[str, int] = {}
        general: list[tuple[int, tuple[str, ...], W]] = []
        for order, wildcard in enumerate(self.ordered):
            parts = tuple(wildcard.pattern.split(STAR))
            if len(parts) == 2 and not parts[1]:
                self._prefixes.setdefault(parts[0], order)
            else:
                general.append((order, parts, wildcard))
        self._general = tuple(general)
        self._lengths = tuple(sorted({len(prefix) for prefix in self._prefixes}))

    def find(self, value: str) -> W | None:
        """The first wildcard, in file order, that matches."""
        best = len(self.ordered)
        for length in self._lengths:
            if length > len(value):
                break
            best = min(best, self._prefixes.get(value[:length], best))
        for order, parts, wildcard in self._general:
            if order > best:
                break
            if matches(parts, value):
                return wildcard
        return self.ordered[best] if best < len(self.ordered) else None
