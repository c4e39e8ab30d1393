"""Resets that came from another region, in the own region's map: how its nodes hear of them within a second.

The import puts a reset into the key's record, and a node would learn of it with its next call for the key. But one that
denies from memory makes none, so it is told. Only nodes that have a counter of the key have anything to forget: the
limit key and the number are enough for them.
"""

from typing import Final

from headgate.origin.region_map import MAX_NAME_BYTES, NEW, TOLD, MapEntry

TOLD_FOR_MS: Final = 30_000
"""Time for which one stands there: every node that lives reads the map once a second."""
RECENT_MS: Final = 60_000
"""One that was made longer ago has been told, or is of no use to anybody. A reset's number is the time at which it
was made, by its shard's clock."""


def entry_of(key: bytes, number: int, now_ms: int) -> MapEntry | None:
    """Make the entry; None for a key that is too long, or a reset that is too old, to be told of."""
    name = TOLD + key
    if len(name) > MAX_NAME_BYTES or abs(now_ms - number) > RECENT_MS:
        return None
    return MapEntry(name, b"%d" % number, now_ms + TOLD_FOR_MS, NEW)


def read(entry: MapEntry) -> tuple[bytes, int] | None:
    """The limit key and the reset's number; None for another kind of entry, or one that is gone."""
    if not entry.name.startswith(TOLD) or not entry.value.isdigit():
        return None
    return entry.name[len(TOLD) :], int(entry.value)
