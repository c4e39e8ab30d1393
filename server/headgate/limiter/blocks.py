"""Blocks: callers that an operator has shut out, for a time.

A block names an entry of a domain, such as `user=eve`, and denies whatever limit key has it. The table is asked while a
request is planned, never while it is decided: a blocked part of a request is planned with a limit of 0, which denies
without asking anybody, so a block holds while the origin is away too.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from headgate.limiter.limit import Limit, Unit

MOST_KEPT: Final = 1_024
"""Limits that blocked callers met lately. More than any incident has rules; when there are more, all are made anew."""

Entries = tuple[tuple[str, str], ...]


class BlockedEntry(NamedTuple):
    """One entry of one domain: the caller that is shut out."""

    domain: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Block:
    """A blocked entry, until a time."""

    entry: BlockedEntry
    expires_ms: int
    """Time by the clock of the shard that keeps the region's map."""
    who: str = ""
    why: str = ""
    made_ms: int = 0

    def encode(self) -> bytes:
        """Return the value that stands in the map under the entry."""
        fields = {"entry": self.entry, "who": self.who, "why": self.why, "made_ms": self.made_ms}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes, expires_ms: int) -> "Block":
        """Raises ValueError for what is no block, or one of a version that says it differently."""
        try:
            fields = json.loads(value)
            domain, key, text = map(str, fields["entry"])
            return cls(
                BlockedEntry(domain, key, text),
                expires_ms,
                str(fields["who"]),
                str(fields["why"]),
                int(fields["made_ms"]),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"no block: {error}") from error


class Blocks:
    """Those in force, by entry."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when callers were blocked, or are no longer."""
        self._by_entry: dict[BlockedEntry, Block] = {}
        self._denying: dict[int, tuple[Limit, Limit]] = {}
        """Limits of 0 by the identity of those that they stand for, which the first of each keeps from being reused."""

    def __len__(self) -> int:
        return len(self._by_entry)

    def all(self) -> list[Block]:
        """In the order in which they were made known."""
        return list(self._by_entry.values())

    def get(self, entry: BlockedEntry) -> Block | None:
        """The block of an entry."""
        return self._by_entry.get(entry)

    def find(self, domain: str, entries: Entries) -> Block | None:
        """The block that a descriptor is under: of the first of its entries that is blocked."""
        for key, value in entries:
            found = self._by_entry.get(BlockedEntry(domain, key, value))
            if found is not None:
                return found
        return None

    def instead_of(self, limit: Limit) -> Limit:
        """The limit that denies in place of `limit`: always the same object for the same one."""
        known = self._denying.get(id(limit))
        if known is not None:
            return known[1]
        if len(self._denying) >= MOST_KEPT:
            self._denying.clear()
        denying = _denying(limit)
        self._denying[id(limit)] = (limit, denying)
        return denying

    def change(self, made: Iterable[Block], removed: Iterable[BlockedEntry] = ()) -> None:
        """Put blocks into force, and others out of it."""
        changed = False
        for entry in removed:
            changed |= self._by_entry.pop(entry, None) is not None
        for block in made:
            if self._by_entry.get(block.entry) != block:
                self._by_entry[block.entry] = block
                changed = True
        if changed:
            self.on_change()


def _denying(limit: Limit) -> Limit:
    """A limit of 0 that nothing softens: no shadow mode, no quota mode, nothing charged later or given back."""
    if limit.unlimited:
        return Limit(0, Unit.MINUTE, name=limit.name)
    return replace(
        limit, requests_per_unit=0, burst=0, shadow=False, quota=False, overdraft=False, refund=False, replaces=()
    )
