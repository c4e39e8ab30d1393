"""Saving: what a region's store has of each key, what it is to have, and whether somebody else has written there.

Several ledgers of one region may be alive at once, by mistake or while one takes over. Each writes a key only over
what it knows to be there, and gives only while the nodes enforce no more than it reckoned with. A ledger that is
refused was overtaken: it takes back what it was about to give, which nobody has heard of yet, and goes on with what is
there.
"""

from typing import NamedTuple

from headgate.limiter.shares import WHOLE
from headgate.quota.gifts import GiveRows
from headgate.quota.key_state import KeyState, TakenBack, pack


class Unsaved(NamedTuple):
    """One key to be written. The store compares and writes in one step."""

    key: bytes
    version: int
    before: bytes
    """Row that the store has now; empty when it has none. If it has another: `overtaken`."""
    packed: bytes
    """Row that it is to have; empty: none."""
    told: int
    """The most that the region's nodes may be enforcing of the key when this is written. If more: `overtaken`."""


class Saving:
    """All keys of one ledger, against its region's store."""

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._stored: dict[bytes, bytes] = {}
        self._unsaved: dict[bytes, None] = {}

    def found(self, key: bytes, packed: bytes) -> None:
        """This is what the store has."""
        if packed:
            self._stored[key] = packed
        else:
            self._stored.pop(key, None)

    def stored(self, key: bytes) -> bytes:
        return self._stored.get(key, b"")

    def lost(self) -> None:
        """The store has nothing any more."""
        self._unsaved.update(dict.fromkeys(self._stored))
        self._stored.clear()

    def must_write(self, key: bytes) -> None:
        self._unsaved[key] = None

    def unsaved(self, states: dict[bytes, KeyState]) -> list[Unsaved]:
        return [self._item(key, states.get(key)) for key in self._unsaved]

    def _item(self, key: bytes, state: KeyState | None) -> Unsaved:
        if state is None:
            return Unsaved(key, 0, self.stored(key), b"", WHOLE)
        told = WHOLE if state.taken_back is None else state.told  # matters to who gives
        return Unsaved(key, state.version, self.stored(key), pack(state.rows, self._tag), told)

    def saved(self, item: Unsaved, state: KeyState | None) -> None:
        self.found(item.key, item.packed)
        if state is not None:
            state.saved_version = item.version
            state.taken_back = None
        if state is None or state.is_saved:
            self._unsaved.pop(item.key, None)


def own_rows(rows: GiveRows, me: int) -> dict[tuple[int, int], int]:
    """(epoch, receiver) to what was given."""
    return {(epoch, receiver): total for epoch, giver, receiver, total in rows.flat() if giver == me}


def take_back(rows: GiveRows, me: int, gifts: TakenBack) -> None:
    """Undo gifts that nobody has heard of. A row that was raised since is somebody else's gift, and stays."""
    now = own_rows(rows, me)
    for (epoch, receiver), total in gifts.after.items():
        if now.get((epoch, receiver)) == total:
            rows.restore(epoch, me, receiver, gifts.before.get((epoch, receiver), 0))
