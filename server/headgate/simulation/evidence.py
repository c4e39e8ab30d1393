"""What a history is judged by: its world, the books of a perfect observer, and the promises that were broken."""

import math
from collections import Counter, defaultdict, deque
from typing import Final, NamedTuple

from headgate.limiter.limit import Algorithm, Limit
from headgate.origin.window_record import WindowRecord
from headgate.region.pause import LONGEST_MS
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
        self.ahead_most: Counter[tuple[bytes, bytes]] = Counter()
        """By run and key: the most that the run ever asked ahead for."""
        self.demanded: Counter[tuple[bytes, bytes]] = Counter()
        """By component and key: what it has ever demanded back."""
        self._rooms: defaultdict[bytes, deque[tuple[float, Limit, int]]] = defaultdict(deque)
        """By key: what was left whenever its shard had answered a call, in the last turn."""
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
        if not self.world.shards[self.world.shard_of(key)].has_lost(key):
            return 0
        return self.charged_most(slot, key)

    def charged_most(self, slot: NodeSlot, key: bytes) -> int:
        """The most that a node may be charged and not have spent: requests under way, and what it asked ahead for."""
        return slot.open_most[key] + self.ahead_most[slot.run, key]

    def given_back(self, key: bytes, sequence: int) -> int:
        """What a key's shard has given back of a cell, by its record as it is now: what it lost counts again."""
        record = self.world.shards[self.world.shard_of(key)].record(key)
        if not isinstance(record, WindowRecord):
            return 0
        cell = {record.sequence: record.current, record.sequence - 1: record.previous}.get(sequence)
        return 0 if cell is None else cell.refunded + cell.foreign_refunded

    def used(self, key: bytes, limit: Limit, time_ms: int) -> int:
        """What counts of a key at a time, by the truth."""
        return self.books.effective(key, limit, time_ms, lambda sequence: self.given_back(key, sequence))

    def note_room(self, key: bytes, limit: Limit, room: int) -> None:
        """A shard has answered, and so much is left of a key now."""
        rooms, now_s = self._rooms[key], self.world.loop.time()
        rooms.append((now_s, limit, room))
        while rooms[0][0] < now_s - 2 * LONGEST_MS / 1000:
            rooms.popleft()

    def least_room(self, key: bytes, limit: Limit, since_s: float) -> float:
        """The least that was left of a key under this limit, whenever its shard answered since then."""
        return min([room for at_s, of, room in self._rooms[key] if at_s >= since_s and of is limit], default=math.inf)

    def disturb_buckets(self, index: int) -> None:
        """No bucket of the shard is held to its bound by what happened up to now."""
        for key, book in self.books.buckets.items():
            if self.world.shard_of(key) == index:
                book.disturb(self.world.shards[index].key_time_ms(key))
