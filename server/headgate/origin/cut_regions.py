"""Regions that operators have cut off, in the region's map: how its nodes and exchangers hear of it within a second.

A cut holds until an operator undoes it. Each time that the region's counts have been taken out of all keys its `step`
rises: a node that hears of another step forgets what it was told of other regions, and asks the shards anew.
"""

import json
from dataclasses import dataclass
from typing import Final

from headgate.origin.region_map import NEW, MapEntry

PREFIX: Final = b"x:"
"""Begins their names in the map; the region's name follows."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One region that is cut off."""

    region: str
    who: str
    """The operator."""
    why: str
    made_ms: int
    """Time at which it was cut off, by the map's clock."""
    step: int = 0
    """Times that its counts have been taken out."""


def entry_of(cut: Cut) -> MapEntry:
    """Build the entry: one that never ends by itself."""
    fields = {"who": cut.who, "why": cut.why, "made_ms": cut.made_ms, "step": cut.step}
    return MapEntry(PREFIX + cut.region.encode(), json.dumps(fields).encode(), 0, NEW)


def removal_of(region: str) -> MapEntry:
    """Build the entry that undoes a cut."""
    return MapEntry(PREFIX + region.encode(), b"", 0, NEW)


def region_of(entry: MapEntry) -> str | None:
    """The region that an entry is about; None for another kind of entry."""
    return entry.name[len(PREFIX) :].decode("utf-8", "replace") if entry.name.startswith(PREFIX) else None


def read(entry: MapEntry) -> Cut | None:
    """The cut; None for another kind of entry, or one that was undone.

    One that this version can't read is a cut all the same: of two mistakes the safe one.
    """
    region = region_of(entry)
    if region is None or not entry.value:
        return None
    try:
        fields = json.loads(entry.value)
        return Cut(region, str(fields["who"]), str(fields["why"]), int(fields["made_ms"]), int(fields["step"]))
    except (ValueError, TypeError, KeyError):
        return Cut(region, "", "", 0)
