"""What a history is judged by: its world, the books of a perfect observer, and the promises that were broken."""

from typing import Final, NamedTuple

from headgate.limiter.limit import Algorithm
from headgate.simulation.books import Books, BucketBook
from headgate.simulation.world import NodeSlot, World

MOST_VIOLATIONS: Final = 20
"""Kept: the first few tell all, and a broken build makes thousands."""


class Violation(NamedTuple):
    """A promise that a history broke: which, when, and how."""

    invariant: str
    at_s: float
    what: str

    def describe(self) -> str:
        return f"{self.at_s:9.3f} s  {self.invariant}: {self.what}"


class Evidence:
    """Shared by all that watch a history: they write what they see into the books, and report what breaks a promise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = Books()
        self.violations: list[Violation] = []
        for key in world.history.keys:
            if key.limit.algorithm is Algorithm.GCRA:
                self.books.buckets[key.name] = BucketBook(max(1, key.limit.requests_per_unit))

    def violate(self, invariant: str, what: str, at_s: float | None = None) -> None:
        """A promise was broken, now or at that time."""
        now_s = self.world.loop.time() if at_s is None else at_s
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(invariant, now_s, what))
        self.world.trace.say("VIOLATION", f"{invariant}: {what}")

    def charged_unheard(self, slot: NodeSlot, key: bytes) -> int:
        """After a loss, what a node was charged and never heard of comes back to it as somebody else's."""
        return slot.open_most[key] if self.world.shards[self.world.shard_of(key)].has_lost(key) else 0

    def disturb_buckets(self, index: int) -> None:
        """No bucket of the shard is held to its bound by what happened up to now."""
        for key, book in self.books.buckets.items():
            if self.world.shard_of(key) == index:
                book.disturb(self.world.shards[index].key_time_ms(key))
