"""Overrides: limits that an operator changed for one limit key, for a time.

An override acts on the rule's limit before anything else sees it, so that everything that follows from a limit (what
is granted, published, divided among regions) follows from the overridden one. A rule set stays as it is. The table is
asked while a request is planned, never while it is decided: what an override changes is found among kept plans by
their keys.
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from headgate.limiter.limit import MAX_UINT32, MILLION, Limit

MAX_FACTOR: Final = 1_000
"""Beyond this it is not a factor but a limit: say that."""

Entries = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Override:
    """One limit key's limit, until a time: a number, or a factor."""

    key: bytes
    """The limit key, whole: a rule with another window or algorithm has another one."""
    domain: str
    entries: Entries
    """The descriptor by which the operator named it."""
    expires_ms: int
    """Time by the clock of the shard that keeps the region's map."""
    limit: int | None = None
    factor_millionths: int | None = None
    who: str = ""
    why: str = ""
    made_ms: int = 0

    def apply(self, limit: Limit) -> Limit:
        """The limit that is in force instead; a bucket's burst changes by as much."""
        before = limit.requests_per_unit
        if self.limit is not None:
            after = self.limit
            burst = limit.burst * after // before if before else after
            burst = max(1, burst) if limit.burst and after else 0
        else:
            factor = self.factor_millionths or 0
            after, burst = _times(before, factor), _times(limit.burst, factor)
        return replace(limit, requests_per_unit=after, burst=min(burst, MAX_UINT32))

    def encode(self) -> bytes:
        """Return the value that stands in the map under the key."""
        return json.dumps(
            {
                "domain": self.domain,
                "entries": self.entries,
                "limit": self.limit,
                "factor_millionths": self.factor_millionths,
                "who": self.who,
                "why": self.why,
                "made_ms": self.made_ms,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes, expires_ms: int) -> "Override":
        """Raises ValueError for what is no override, or one of a version that says it differently."""
        try:
            fields = json.loads(value)
            limit, factor = fields["limit"], fields["factor_millionths"]
            if not _is_count(limit, MAX_UINT32) or not _is_count(factor, MAX_FACTOR * MILLION):
                raise ValueError("a number is out of range")
            if (limit is None) == (factor is None):
                raise ValueError("neither a limit nor a factor")
            return cls(
                key,
                str(fields["domain"]),
                tuple([(str(name), str(value)) for name, value in fields["entries"]]),
                expires_ms,
                limit,
                factor,
                str(fields["who"]),
                str(fields["why"]),
                int(fields["made_ms"]),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"no override: {error}") from error


class Overrides:
    """Those in force, by limit key."""

    def __init__(self) -> None:
        self.on_change: Callable[[Collection[bytes]], None] = lambda keys: None
        """Called with the keys whose limits are no longer what they were."""
        self._by_key: dict[bytes, _InForce] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: bytes) -> Override | None:
        """The override of a limit key."""
        found = self._by_key.get(key)
        return None if found is None else found.override

    def all(self) -> list[Override]:
        """In the order in which they were made known."""
        return [found.override for found in self._by_key.values()]

    def limit_of(self, key: bytes, limit: Limit) -> Limit:
        """The limit that is in force for a key whose rule says `limit`: always the same object for the same one."""
        found = self._by_key.get(key)
        return limit if found is None else found.limit_for(limit)

    def change(self, made: Iterable[Override], removed: Iterable[bytes] = ()) -> None:
        """Put overrides into force, and others out of it."""
        changed: dict[bytes, None] = {}
        for key in removed:
            if self._by_key.pop(key, None) is not None:
                changed[key] = None
        for override in made:
            if self.find(override.key) != override:
                self._by_key[override.key] = _InForce(override)
                changed[override.key] = None
        if changed:
            self.on_change(changed.keys())


class _InForce:
    """An override, and what it made of the rule's limit: a denial is remembered for the very limit."""

    __slots__ = ("_after", "_before", "override")

    def __init__(self, override: Override) -> None:
        self.override = override
        self._before: Limit | None = None
        self._after: Limit | None = None

    def limit_for(self, limit: Limit) -> Limit:
        if self._after is None or limit is not self._before:
            self._before, self._after = limit, self.override.apply(limit)
        return self._after


def _times(amount: int, factor_millionths: int) -> int:
    """Rounded up: a factor above 0 leaves something of what was something."""
    return min(-(-amount * factor_millionths // MILLION), MAX_UINT32)


def _is_count(number: object, most: int) -> bool:
    return number is None or (type(number) is int and 0 <= number <= most)
