"""State of one quota key in one region's ledger, and the packing of its gifts for the region's store."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgpack

from headgate.quota.gifts import HIGHEST_TOTAL, Given, GiveRows
from headgate.quota.message import QuotaEntry
from headgate.quota.need import HIGHEST_NEED

FORMAT: Final = 1
"""Format of a packed key. A newer one is not read."""


class UnreadableKey(ValueError):
    """The store has something under this key that is no packed key: what was given is not known. Says why."""


class Observation(NamedTuple):
    """Reading of a key by the region's origin at one time."""

    at_ms: int
    used: int
    """The share in use, by the algorithm's own measure."""
    need: int


class TakenBack(NamedTuple):
    """Own gifts that are not saved: what the own rows were before, and what they are with them."""

    before: Given
    after: Given


@dataclass(slots=True)
class KeyState:
    """One key, as one region knows it."""

    rows: GiveRows
    need: int = 0
    """The own need as it is published."""
    needs: dict[int, int] = field(default_factory=dict)
    """Those of the others, as they last published them."""
    over: int = 0
    """Share used above the own slice, as it is published: never less than it is."""
    overs: dict[int, int] = field(default_factory=dict)
    over_until_ms: int = 0
    """Until then more than the slice may be in use: it took from a lost region, or had forgotten a gift."""
    observed: Observation | None = None
    told: int = 0
    """The most that the region's nodes may be enforcing."""
    blind_until_ms: int = 0
    """Until then what was given is not known: its record could not be read."""
    version: int = 0
    """Rises with every change that others are to hear of."""
    saved_version: int = 0
    """Version that the store has. Nothing is sent before it is there: a giver that forgets a gift grows back."""
    taken_back: TakenBack | None = None
    """Gifts that are taken back if the store refuses them."""

    @property
    def is_saved(self) -> bool:
        return self.saved_version == self.version

    def is_quiet(self, heard: frozenset[int]) -> bool:
        """Nobody who is heard publishes anything of it."""
        return not (self.need or self.over or any(self.needs.get(peer, 0) for peer in heard))


def pack(rows: GiveRows, tag: bytes) -> bytes:
    """All gifts of one key; empty when there are none, and nothing needs to be kept."""
    flat = [number for row in sorted(rows.flat()) for number in row]
    if not flat:
        return b""
    packed: bytes = msgpack.packb([FORMAT, tag, rows.window_ms, flat])
    return packed


def unpack(packed: bytes, tag: bytes, regions: int) -> GiveRows | None:
    """The gifts; None if they are of another set of regions and mean nothing in this one. Raises UnreadableKey."""
    try:
        written, packed_tag, window_ms, flat = msgpack.unpackb(packed)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise UnreadableKey(f"not a packed quota key: {error}") from error
    if written != FORMAT:
        raise UnreadableKey(f"format {written!r}, expected {FORMAT}")
    if packed_tag != tag:
        return None
    if type(window_ms) is not int or window_ms <= 0 or not isinstance(flat, list) or len(flat) % 4:
        raise UnreadableKey("window or rows are no numbers, or not four per row")
    rows = GiveRows(window_ms, regions)
    for at in range(0, len(flat), 4):
        epoch, giver, receiver, total = flat[at : at + 4]
        if not is_row(epoch, giver, receiver, total, regions):
            raise UnreadableKey(f"row {at // 4} is {flat[at : at + 4]!r}")
        rows.merge(epoch, giver, receiver, total)
    return rows


def makes_sense(entry: QuotaEntry, regions: int) -> bool:
    """Return True if what a peer says of a key can be so."""
    figures = 0 <= entry.need <= HIGHEST_NEED and 0 <= entry.over <= HIGHEST_NEED and entry.window_ms > 0
    return figures and all(is_row(*row, regions) for row in entry.rows)


def is_row(epoch: object, giver: object, receiver: object, total: object, regions: int) -> bool:
    """Return True if four values can be one gift among so many regions."""
    if not all(type(value) is int for value in (epoch, giver, receiver, total)):  # True and False are none
        return False
    return giver != receiver and giver in range(regions) and receiver in range(regions) and total in TOTALS


TOTALS: Final = range(1, HIGHEST_TOTAL + 1)
