"""All keys that one region's ledger knows: their gifts and needs, what the store has of them, who is to be told.

Several ledgers of one region may be alive at once, by mistake or while one takes over. Each writes a key only over
what it knows to be there, and gives only while the nodes enforce no more than it reckoned with. A ledger that is
refused was overtaken: it takes back what it was about to give, which nobody has heard of yet, and goes on with what is
there.

Promises: nothing is told to a peer before the store has it; at most `MAX_KEYS` are known, and those of which nothing
counts any more go.
"""

from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from headgate.limiter.shares import WHOLE
from headgate.quota.counts import LedgerCounts
from headgate.quota.gifts import GiveRows, epoch_ms, overlap_ms
from headgate.quota.key_state import KeyState, UnreadableKey, pack, unpack
from headgate.quota.pending import PendingKeys

MAX_KEYS: Final = 100_000
"""Keys of which gifts or needs are known, at about 2 KB each with five regions. Further ones stay at their floors."""

HOUR_MS: Final = 3_600_000

KEYS_PER_SWEEP: Final = 2_000
"""Quiet keys that are looked at per tick, to see whether they can go."""


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


class KeyTable:
    """The keys of one ledger."""

    def __init__(self, me: int, regions: int, tag: bytes, peers: Iterable[int], counts: LedgerCounts) -> None:
        self.states: Final[dict[bytes, KeyState]] = {}
        self.pending: Final = PendingKeys(peers)
        self.unknown_at_floor_until_ms = 0
        """Until then keys that are not in the table keep to their floor: some were refused."""
        self._counts = counts
        self._me = me
        self._regions = regions
        self._tag = tag
        self._stored: dict[bytes, bytes] = {}
        """Row of each key that was last read from or written to the store."""
        self._unsaved: dict[bytes, None] = {}
        self._sweep: Iterator[bytes] = iter(())

    def lost(self) -> None:
        """Have everything written again: the store has nothing any more."""
        self._unsaved.update(dict.fromkeys(self._stored))
        self._stored.clear()

    def load(self, key: bytes, packed: bytes, now_ms: int) -> None:
        """Take in what the store has of a key. All keys are loaded before the first tick."""
        try:
            rows = unpack(packed, self._tag, self._regions)
        except UnreadableKey:
            self._load_blind(key, now_ms)
            return
        self._found(key, packed)
        if rows is None:
            self._unsaved[key] = None
            return
        state = self.add(key, rows.window_ms, now_ms)
        if state is not None:
            state.rows.merge_all(rows.flat(), now_ms)

    def overtaken(self, key: bytes, stored: bytes, now_ms: int) -> None:
        """Take back what was about to be given, and go on with what the store has: it refused the key, because another
        ledger of this region has written there, or has the nodes enforce more."""
        self._counts.overtaken += 1
        state = self.states.get(key)
        if state is not None and state.taken_back is not None:
            state.rows.take_back(self._me, *state.taken_back)
            state.taken_back = None
        self._found(key, stored)
        if stored:
            self.load(key, stored, now_ms)
        state = self.states.get(key)
        if state is not None:
            state.observed = None
            self.changed(key, state)

    def _load_blind(self, key: bytes, now_ms: int) -> None:
        """Keep an unreadable key to its floor, for as long as if its window, which is not known, were an hour."""
        self._counts.keys_unreadable += 1
        state = self.add(key, HOUR_MS, now_ms)
        if state is not None:
            state.blind_until_ms = now_ms + epoch_ms(HOUR_MS) + overlap_ms(HOUR_MS)

    def unsaved(self) -> list[Unsaved]:
        """Return what the store does not have yet."""
        return [self._to_write(key, self.states.get(key)) for key in self._unsaved]

    def _to_write(self, key: bytes, state: KeyState | None) -> Unsaved:
        if state is None:
            return Unsaved(key, 0, self.stored(key), b"", WHOLE)
        told = WHOLE if state.taken_back is None else state.told  # matters to who gives
        return Unsaved(key, state.version, self.stored(key), pack(state.rows, self._tag), told)

    def saved(self, item: Unsaved) -> None:
        """Note that the store has it."""
        self._found(item.key, item.packed)
        state = self.states.get(item.key)
        if state is not None:
            state.saved_version = item.version
            state.taken_back = None
        if state is None or state.is_saved:
            self._unsaved.pop(item.key, None)

    def stored(self, key: bytes) -> bytes:
        """Return the row last read from or written to the store; call `overtaken` if the store disagrees."""
        return self._stored.get(key, b"")

    def _found(self, key: bytes, packed: bytes) -> None:
        if packed:
            self._stored[key] = packed
        else:
            self._stored.pop(key, None)

    def dump(self, key: bytes) -> bytes:
        """Return what the store is to have of a key."""
        state = self.states.get(key)
        return pack(state.rows, self._tag) if state else b""

    def add(self, key: bytes, window_ms: int, now_ms: int) -> KeyState | None:
        """Return the key's state, made if need be; None when there are too many."""
        state = self.states.get(key)
        if state is None:
            if len(self.states) >= MAX_KEYS:
                self._counts.keys_refused += 1
                # What was given of it may have been refused: no unknown key is trusted until those rows are gone.
                until_ms = now_ms + epoch_ms(window_ms) + overlap_ms(window_ms)
                self.unknown_at_floor_until_ms = max(self.unknown_at_floor_until_ms, until_ms)
                return None
            state = self.states[key] = KeyState(GiveRows(window_ms, self._regions))
        return state

    def changed(self, key: bytes, state: KeyState, *, but: int | None = None, told: bool = True) -> None:
        """Have the key saved, and told to all peers but one: its gifts are others than the store has."""
        state.version += 1
        self._unsaved[key] = None
        if told:
            self.pending.add(key, but)

    def announce(self, key: bytes, state: KeyState) -> None:
        """Have all peers told of the key: its need is another one. The store does not keep needs."""
        if state.is_saved:
            state.saved_version += 1
        state.version += 1
        self.pending.add(key)

    def forget(self, busy: Container[bytes], now_ms: int) -> None:
        """Drop keys of which nothing counts any more; some are looked at per tick."""
        keys = list(islice(self._sweep, KEYS_PER_SWEEP))
        if not keys:
            self._sweep = iter(list(self.states))
        for key in keys:
            state = self.states.get(key)
            if state is None:
                continue
            if state.rows.forget_old(now_ms):
                self.changed(key, state, told=False)
            if key not in busy and not state.rows.epochs and state.is_saved and now_ms >= state.blind_until_ms:
                del self.states[key]
                self.pending.drop(key)
