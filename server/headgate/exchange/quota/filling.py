"""Filling: whether a region knows all that it has ever given, and who was told everything since they lost something.

A store has a number, higher after each loss. A region without its mark in the store is not filled: it keeps to its
floors and gives nothing until each other region has told it everything, or is lost. (A giver that forgot a gift would
grow back, and the gift would be used twice.)

Messages from before a loss must not come later than the answers, or they would tell of gifts that the giver no longer
knows. So a message of an older store is dropped, and an answer counts when its sender knows of every loss that is
known here.
"""

import msgpack

from headgate.exchange.quota.message import QuotaMessage


class Filling:
    """One region's store and the others', by their numbers."""

    def __init__(self, me: int, regions: int, tag: bytes, mark: bytes, run: int) -> None:
        self._me = me
        self._regions = regions
        self._tag = tag
        stores, self.memory = _read(mark, tag)
        self.filled = bool(stores) or regions == 1
        self.stores = stores or [0] * regions
        if not stores:
            self.stores[me] = run
        self._answers: dict[int, tuple[int, ...]] = {}
        self._told: dict[int, tuple[int, int]] = {}
        """Peer to the store and the run of it that everything was put into the outbox for."""

    def mark(self, memory: bytes) -> bytes:
        packed: bytes = msgpack.packb([self._tag, self.stores, memory]) if self.filled else b""
        return packed

    def lose(self, now_ms: int) -> None:
        self.filled = self._regions == 1
        self.stores[self._me] = max(self.stores[self._me] + 1, now_ms)

    def look(self, present: list[int]) -> None:
        """Filled when all peers that are not lost have answered, each knowing of every loss that is known here."""
        known = {region: self.stores[region] for region in (self._me, *present)}
        self.filled = self.filled or all(
            peer in self._answers and all(self._answers[peer][region] >= store for region, store in known.items())
            for peer in present
        )

    def is_outdated(self, peer: int, message: QuotaMessage) -> bool:
        """Sent before the peer lost its store."""
        return message.stores[peer] < self.stores[peer]

    def must_tell_all(self, peer: int, message: QuotaMessage) -> bool:
        """Whether the peer's store, or its run, is another one than that which was told everything."""
        self.stores[peer] = message.stores[peer]
        heard = (message.stores[peer], message.mark.run)
        if self._told.get(peer, (0, 0)) >= heard:
            return False
        self._told[peer] = heard
        return True

    def told_store(self, peer: int) -> int:
        """The peer's store that everything is told to."""
        return self._told.get(peer, (0, 0))[0]

    def take_answer(self, peer: int, message: QuotaMessage) -> None:
        if message.whole and message.answers == self.stores[self._me]:
            self._answers[peer] = message.stores


def _read(mark: bytes, tag: bytes) -> tuple[list[int], bytes]:
    """The stores and what membership remembers; nothing when there is no mark, or that of another set of regions."""
    if not mark:
        return [], b""
    try:
        marked_tag, stores, memory = msgpack.unpackb(mark)
    except (ValueError, TypeError, msgpack.UnpackException):  # as good as none: the others are asked
        return [], b""
    return (stores, memory) if marked_tag == tag else ([], b"")
