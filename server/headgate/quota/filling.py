"""Filling: whether a region knows all that it has ever given, and who was told everything since they lost something.

A store has a number, higher after each loss. A region without its mark in the store is not filled: it keeps to its
floors and gives nothing until each other region has told it everything, or is lost. (A giver that forgot a gift would
grow back, and the gift would be used twice.)

Messages from before a loss must not come later than the answers, or they would tell of gifts that the giver no longer
knows. So a message of an older store is dropped, and an answer counts when its sender knows of every loss that is
known here.

After a change of the set of regions nothing that was given counts any more, and what was admitted by the old slices
is still in use. So a region that finds the mark of another set begins as one without a mark; and from when the last
one is filled every key stays at its floor, in all regions, until what was used before has left its window.
"""

from typing import Final

import msgpack

from headgate.quota.message import QuotaMessage

NEVER_MS: Final = -(1 << 62)
NOT_CHANGED: Final = -1
"""In a message's place for how long ago the set was changed: not as far as its sender knows."""


class Filling:
    """One region's store and the others', by their numbers."""

    def __init__(self, me: int, regions: int, tag: bytes, mark: bytes, run: int) -> None:
        self._me = me
        self._regions = regions
        self._tag = tag
        stores, self.memory, changed_ms = _read(mark, tag)
        self.filled = bool(stores) or regions == 1
        self._is_new_set = bool(mark) and not stores
        self._changed_ms = {me: changed_ms}
        """Region to when it was filled after a change of the set, by this region's clock."""
        self.stores = stores or [0] * regions
        if not stores:
            self.stores[me] = run
        self.filled_ms = NEVER_MS
        """Time at which it was filled. (With a mark: before anything that matters now.)"""
        self._answers: dict[int, tuple[int, ...]] = {}
        self._told: dict[int, tuple[int, int]] = {}
        """Peer to the store and the run of it that everything was put into the outbox for."""

    def mark(self, memory: bytes) -> bytes:
        if not self.filled:
            return OTHER_SET if self._is_new_set else b""
        packed: bytes = msgpack.packb([self._tag, self.stores, memory, self._changed_ms[self._me]])
        return packed

    def lose(self, now_ms: int) -> None:
        self._is_new_set = False
        self.filled = self._regions == 1
        self.stores[self._me] = max(self.stores[self._me] + 1, now_ms)

    def look(self, present: list[int], now_ms: int) -> None:
        """Filled when all peers that are not lost have answered, each knowing of every loss that is known here."""
        if self.filled:
            return
        known = {region: self.stores[region] for region in (self._me, *present)}
        self.filled = all(
            peer in self._answers and all(self._answers[peer][region] >= store for region, store in known.items())
            for peer in present
        )
        if self.filled:
            self.filled_ms = now_ms
        if self.filled and self._is_new_set:
            self._is_new_set = False
            self._changed_ms[self._me] = now_ms

    def changed_ago_ms(self, now_ms: int) -> int:
        """Return the time since this region was filled after a change of the set; 0 while it is not."""
        if self._is_new_set:
            return 0
        changed_ms = self._changed_ms[self._me]
        return NOT_CHANGED if changed_ms == NEVER_MS else max(0, now_ms - changed_ms)

    def latest_change_ms(self) -> int:
        """Return the time at which the last region that is known of was filled after a change of the set."""
        return max(self._changed_ms.values())

    def is_outdated(self, peer: int, message: QuotaMessage) -> bool:
        """Sent before the peer lost its store."""
        return message.stores[peer] < self.stores[peer]

    def must_tell_all(self, peer: int, message: QuotaMessage) -> bool:
        """Return True if the peer's store, or its run, is another one than that which was told everything."""
        self.stores[peer] = message.stores[peer]
        heard = (message.stores[peer], message.mark.run)
        if self._told.get(peer, (0, 0)) >= heard:
            return False
        self._told[peer] = heard
        return True

    def told_store(self, peer: int) -> int:
        """The peer's store that everything is told to."""
        return self._told.get(peer, (0, 0))[0]

    def take_answer(self, peer: int, message: QuotaMessage, now_ms: int) -> None:
        if message.changed_ago_ms != NOT_CHANGED:
            self._changed_ms[peer] = max(self._changed_ms.get(peer, NEVER_MS), now_ms - message.changed_ago_ms)
        if message.whole and message.answers == self.stores[self._me]:
            self._answers[peer] = message.stores


OTHER_SET: Final[bytes] = msgpack.packb([b"", [], b"", NEVER_MS])
"""The mark of a store while it waits for the others after a change of the set."""


def _read(mark: bytes, tag: bytes) -> tuple[list[int], bytes, int]:
    """The stores, what membership remembers, and when the set was changed; nothing if the mark is of another set."""
    try:
        marked_tag, stores, memory, changed_ms = msgpack.unpackb(mark)
    except (ValueError, TypeError, msgpack.UnpackException):  # none, or as good as none: the others are asked
        return [], b"", NEVER_MS
    return (stores, memory, changed_ms) if marked_tag == tag else ([], b"", NEVER_MS)
