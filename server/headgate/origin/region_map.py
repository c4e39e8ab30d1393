"""The region's map: a few small entries that every node of the region knows, kept by one shard.

Overrides of limits stand in it, and the key that signs reservations. An entry is a name with a value; the latest write
of a name wins, whoever brings it and in whichever order: each carries a stamp that rises with every write. So nodes
teach a shard that lost its memory what they know, as often as they like. What is removed stays as an entry without a
value until nobody can teach it any more. Every change has a number: a reader asks for what came after the last one it
knows.

This is the reference for `write_map.lua` and `read_map.lua`; one suite runs over both.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.origin.shard_memory import MemoryPart

MOST_ENTRIES: Final = 10_000
"""Entries that expire (overrides) at once: more than operators write by hand; all nodes hold all of them."""
MOST_NAMES: Final = 3 * MOST_ENTRIES
"""With those that were removed and are remembered as such."""
TOLD: Final = b"a:"
"""Begins the names of resets that other regions told of (told_resets.py). They have places of their own: a region that
tells of many, for whatever reason, takes none from this region's operators."""
MOST_TOLD: Final = 2_000
"""Entries of these at once, which end after 30 s: more than operators of other regions reset by hand in that time. Of
what is refused nodes hear with their next call for the key."""
REMOVED_FOR_MS: Final = 86_400_000
"""Time for which a removal is remembered, at most: a node that was cut off for longer may bring the entry back."""
MAX_NAME_BYTES: Final = 8_192
MAX_VALUE_BYTES: Final = 1_024
"""Bounds of one entry: so all of them stay below 100 MB, whatever keys are called, and in practice below 4."""
MAP_KEY: Final = b"book"
"""Chooses the shard that keeps the map, as a limit key does: the same on every node."""
ENTRIES: Final = b"book"
CHANGED: Final = b"book:changed"
EXPIRY: Final = b"book:expiry"
ABOUT: Final = b"book:about"
"""Names of what that shard keeps: entries, names by change and by expiry, generation and version. (An earlier version
called it a book, and what it wrote is still there.)"""

NEW: Final = 0
"""Stands in place of a stamp: a write that is made now."""
FIRST: Final = -1
"""Stands in place of a stamp: a write that is made now, unless there is an entry of that name."""


class MapEntry(NamedTuple):
    """One entry, as it is written and as it is read."""

    name: bytes
    value: bytes
    """Empty: it was removed."""
    expires_ms: int
    """Expiry by the shard's time; 0: never."""
    stamp: int
    """The higher one of a name wins. `NEW` and `FIRST` let the shard choose it."""


class MapMark(NamedTuple):
    """Point that a map has reached."""

    generation: bytes = b""
    """Drawn when the map began: another one means that the shard lost its memory. Empty: there is no map."""
    version: int = 0
    """The number of its latest change."""


class MapState(NamedTuple):
    """Result of a write."""

    mark: MapMark
    time_ms: int
    entries: int
    """Those that count against `MOST_ENTRIES`: what other regions told of does not."""
    refused: int
    """Writes that were not made, because the map is full."""


class MapPage(NamedTuple):
    """Entries that changed after the one that was asked for, the oldest change first."""

    mark: MapMark
    time_ms: int
    until: int
    """The change of the last entry here: ask from there on, until it is `mark.version`."""
    entries: tuple[MapEntry, ...]


class RegionMap(MemoryPart):
    """Map of a shard in memory."""

    def __init__(self) -> None:
        self._generation = b""
        self._version = 0
        self._latest = 0
        """The highest stamp of all."""
        self._entries: dict[bytes, MapEntry] = {}
        self._changed: dict[bytes, int] = {}

    @property
    def mark(self) -> MapMark:
        return MapMark(self._generation, self._version)

    def write(self, entries: Sequence[MapEntry], generation: bytes, now_ms: int) -> MapState:
        """Merge entries; `generation` becomes that of a map that begins with them."""
        self._generation = self._generation or generation
        self._forget(now_ms)
        refused = sum(not self._write(entry, now_ms) for entry in entries)
        return MapState(self.mark, now_ms, self._counted(), refused)

    def read(self, since: int, most: int, now_ms: int) -> MapPage:
        """Read what changed after `since`."""
        names = sorted((number, name) for name, number in self._changed.items() if number > since)[:most]
        until = names[-1][0] if names else self._version
        return MapPage(self.mark, now_ms, until, tuple(self._entries[name] for _, name in names))

    def _write(self, entry: MapEntry, now_ms: int) -> bool:
        """False: there is no room for it."""
        known = self._entries.get(entry.name)
        merged = self._merged(entry, known, now_ms)
        if merged is None:
            return True
        if known is None and not self._has_room_for_name(entry.name):
            return False
        if _counts(merged) and not (known and _counts(known)) and self._counted() >= MOST_ENTRIES:
            return False
        self._latest = max(self._latest, merged.stamp)
        self._version += 1
        self._entries[entry.name] = merged
        self._changed[entry.name] = self._version
        return True

    def _merged(self, entry: MapEntry, known: MapEntry | None, now_ms: int) -> MapEntry | None:
        """The entry as it will stand; None if it changes nothing."""
        if entry.stamp > 0:
            newer = known is None or entry.stamp > known.stamp
            return entry if newer and not _is_over(entry, now_ms) else None
        if entry.stamp == FIRST and known is not None:
            return None
        return made_now(entry, known, self._latest, now_ms)

    def _has_room_for_name(self, name: bytes) -> bool:
        told = sum(map(_is_told, self._entries))
        return told < MOST_TOLD if _is_told(name) else len(self._entries) - told < MOST_NAMES

    def _counted(self) -> int:
        return sum(map(_counts, self._entries.values()))

    def _forget(self, now_ms: int) -> None:
        for name in [name for name, entry in self._entries.items() if _is_over(entry, now_ms)]:
            del self._entries[name], self._changed[name]


def made_now(entry: MapEntry, known: MapEntry | None, latest: int, now_ms: int) -> MapEntry | None:
    """Return an entry that is written now as it will stand, above the latest stamp; None if it changes nothing."""
    stamp = max(now_ms, latest + 1)
    if entry.value:
        return entry._replace(stamp=stamp)
    if known is None or not known.value:
        return None
    kept_ms = now_ms + REMOVED_FOR_MS
    return MapEntry(entry.name, b"", min(known.expires_ms or kept_ms, kept_ms), stamp)


def _counts(entry: MapEntry) -> bool:
    return bool(entry.value and entry.expires_ms) and not _is_told(entry.name)


def _is_told(name: bytes) -> bool:
    return name.startswith(TOLD)


def _is_over(entry: MapEntry, now_ms: int) -> bool:
    return 0 < entry.expires_ms <= now_ms
