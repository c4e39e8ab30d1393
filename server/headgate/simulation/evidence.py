"""Evidence in a history: its world, and the true counts."""

import math
from collections import Counter, defaultdict, deque

from headgate.limiter.limit import Algorithm, Limit
from headgate.region.allowance import LONGEST_TURN_MS
from headgate.simulation.shard import cells_of
from headgate.simulation.truth import BucketTruth, Truth
from headgate.simulation.world import NodeSlot, World


class Evidence:
    """Shared by all that watch a history: they add what they see to the true counts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.truth = Truth()
        self.excused: set[tuple[bytes, bytes]] = set()
        """Components and keys of which something was admitted that no allowance covers: by a policy, or late."""
        self.answered_s: dict[tuple[bytes, bytes], float] = {}
        """Time when its shard last answered a report of each component, by key."""
        self.demanded: Counter[tuple[bytes, bytes]] = Counter()
        """Refunds that a component has ever demanded, by component and key."""
        self._rooms: defaultdict[bytes, deque[tuple[float, Limit, int]]] = defaultdict(deque)
        """Room of each key whenever its shard had answered a call, in the last turn."""
        for key in world.history.keys:
            if key.limit.algorithm is Algorithm.GCRA:
                self.truth.buckets[key.name] = BucketTruth(max(1, key.limit.requests_per_unit))

    def charged_unheard(self, slot: NodeSlot, key: bytes) -> int:
        """Cost that a node was charged and never heard of: after a loss it comes back as another component's."""
        if not self.world.shards[self.world.shard_of(key)].has_lost(key):
            return 0
        return self.charged_most(slot, key)

    def charged_most(self, slot: NodeSlot, key: bytes) -> int:
        """The most that a node may be charged and not have spent: its requests under way."""
        return slot.open_most[key]

    def refunded_in(self, key: bytes, sequence: int) -> int:
        """Refunds that a key's shard has granted in a cell, by its record as it is now: lost ones count again."""
        cell = cells_of(self.world.shards[self.world.shard_of(key)].record(key)).get(sequence)
        return 0 if cell is None else cell.refunded + cell.foreign_refunded

    def used(self, key: bytes, limit: Limit, time_ms: int) -> int:
        """True count of a key at a time."""
        return self.truth.effective(key, limit, time_ms, lambda sequence: self.refunded_in(key, sequence))

    def note_room(self, key: bytes, limit: Limit, room: int) -> None:
        """A shard has answered, and so much is left of a key now."""
        rooms, now_s = self._rooms[key], self.world.loop.time()
        rooms.append((now_s, limit, room))
        while rooms[0][0] < now_s - 2 * LONGEST_TURN_MS / 1000:
            rooms.popleft()

    def least_room(self, key: bytes, limit: Limit, since_s: float) -> float:
        """The least that was left of a key under this limit, whenever its shard answered since then."""
        return min([room for at_s, of, room in self._rooms[key] if at_s >= since_s and of is limit], default=math.inf)

    def disturb_buckets(self, index: int) -> None:
        """No bucket of the shard is held to its bound by what happened up to now."""
        for key, actual in self.truth.buckets.items():
            if self.world.shard_of(key) == index:
                actual.disturb(self.world.shards[index].key_time_ms(key))


class Watcher:
    """One who watches a history: the evidence, and what is used of it most."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._world = evidence.world
        self._truth = evidence.truth
        self._violate = evidence.world.violate
