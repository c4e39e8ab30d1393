"""Disturbances of a region: times and keys for which a promise that needs a healthy shard does not hold."""

from typing import Final

from headgate.simulation.cell_watch import CellWatch
from headgate.simulation.evidence import Evidence, Watcher
from headgate.simulation.shard_watch import ShardWatch

UNNOTICED_MS: Final = 2_000
"""So long a node may date what it admits by the clock as it was before it was set: a heartbeat and its timeout."""


class Upsets(Watcher):
    """Told of every fault that may cost something, just before or after it happens."""

    def __init__(self, evidence: Evidence, cells: CellWatch, answers: ShardWatch) -> None:
        super().__init__(evidence)
        self.upset_s: dict[bytes, float] = {}
        """Time when each key's record was last lost, or its limit changed."""
        self.stepped_s: dict[int, float] = {}
        """Time when each shard's clock was last set."""
        self._cells = cells
        self._answers = answers
        shards = evidence.world.shards
        self._lived: dict[int, list[tuple[int, int]]] = {index: [] for index in range(len(shards))}
        """Spans of each shard's time before its clock was set: it may come by them again."""
        self._since_ms = [shard.time_ms() for shard in shards]

    def shard(self, index: int) -> None:
        """Note that a shard lost something that it knew, and its allowances with it."""
        shard = self._world.shards[index]
        self._truth.disturb(index, shard.time_ms(), self._latest_ms(index))
        for key in self._world.history.keys:
            if index in self._world.may_count(key.name):
                self._lost(key.name)
        self._evidence.disturb_buckets(index)

    def key(self, key: bytes) -> None:
        """The shard lost one key's record, and nothing else."""
        shard = self._world.shards[self._world.shard_of(key)]
        self._truth.disturb(key, shard.time_ms(), shard.key_time_ms(key))
        self._lost(key)
        if key in self._truth.buckets:
            self._truth.buckets[key].disturb(shard.key_time_ms(key))

    def _lost(self, key: bytes) -> None:
        self.upset_s[key] = self._world.loop.time()
        self._answers.lost(key)
        self._cells.lost(key)

    def clock(self, index: int, by_ms: int) -> None:
        """Note that a shard's clock is about to be set: records that lie ahead may be started again, and times come
        again.
        """
        now_ms = self._world.shards[index].time_ms()
        then_ms = now_ms + by_ms
        self.shard(index)
        self.stepped_s[index] = self._world.loop.time()
        self._lived[index].append((self._since_ms[index], now_ms))
        self._since_ms[index] = then_ms
        self._truth.disturb(index, then_ms, then_ms)
        for from_ms, to_ms in self._lived[index]:
            if to_ms >= then_ms:
                self._truth.disturb(index, max(from_ms, then_ms), to_ms)
        for key, actual in self._truth.buckets.items():
            if self._world.shard_of(key) == index:
                actual.disturb(then_ms + UNNOTICED_MS)

    def _latest_ms(self, index: int) -> int:
        """The latest time by which a key of the shard would be charged."""
        shard = self._world.shards[index]
        mine = [key.name for key in self._world.history.keys if self._world.shard_of(key.name) == index]
        return max([shard.time_ms(), *map(shard.key_time_ms, mine)])

    def node(self) -> None:
        """A node was killed: what it had admitted and not reported is gone."""
        for index, shard in enumerate(self._world.shards):
            self._truth.disturb(index, shard.time_ms(), self._latest_ms(index))
            self._evidence.disturb_buckets(index)

    def reset(self, key: bytes, number: int) -> None:
        """A key was reset: allowances from before are in use until their nodes hear of it."""
        if not self._truth.reset(key, number):
            return
        self.rule(key)
        self._answers.lost(key)
        if key in self._truth.buckets:
            shard = self._world.shards[self._world.shard_of(key)]
            self._truth.buckets[key].disturb(shard.key_time_ms(key))

    def rule(self, key: bytes) -> None:
        """A key's limit was changed, or something came in from another region."""
        shard = self._world.shards[self._world.shard_of(key)]
        self._truth.disturb(key, shard.time_ms(), shard.key_time_ms(key))
        self.upset_s[key] = self._world.loop.time()
        if key in self._truth.buckets:
            self._truth.buckets[key].disturb(shard.key_time_ms(key))
