"""Beliefs of nodes: they never fall, are never above the truth, and nothing of them is lost before its time."""

from collections import Counter
from typing import NamedTuple

from headgate.limiter.limit import Limit
from headgate.region.bucket_counter import SharedBucket
from headgate.region.cells import CellView
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.region.window_counter import SharedWindow
from headgate.simulation.evidence import Evidence, Watcher
from headgate.simulation.world import NodeSlot


class Belief(NamedTuple):
    """State of a node's cell when it was last observed."""

    sequence: int
    total: int
    own: int
    others: int
    foreign: int
    highest_total_seen: int


class CellWatch(Watcher):
    """Looks at the counters of nodes, and adds what they have admitted to the true counts."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self.committed: Counter[tuple[RegionNode, bytes]] = Counter()
        """Cost that each node committed, by key."""
        self.restated: set[tuple[RegionNode, bytes]] = set()
        """Nodes and keys whose windows were put together because the node's clock had been off."""
        self._beliefs: dict[CellView, Belief] = {}
        self._pairs: dict[SharedWindow, tuple[CellView, CellView]] = {}
        self._components: dict[SharedWindow, bytes] = {}
        self._unanswered: set[SharedWindow] = set()
        self._buckets: dict[tuple[SharedBucket, bytes], tuple[int, int, int]] = {}
        self._vain: dict[tuple[bytes, int], dict[bytes, int]] = {}

    def observe(self, slot: NodeSlot, counter: SharedCounter) -> None:
        """Look at what a node knows of a key, and compare it with what it knew before and with the truth."""
        if isinstance(counter, SharedBucket):
            self._observe_bucket(slot, counter)
            return
        assert isinstance(counter, SharedWindow)  # noqa: S101 - there is no third kind
        if not self._truth.is_of_now(counter.key, counter.reset):
            return  # it has not heard of the reset yet: nothing that it has will count
        pair = self._pairs.get(counter)
        if pair != counter.cells:
            self._changed_cells(slot, counter, pair)
        if counter.has_answer:
            self._unanswered.discard(counter)
        else:
            self._unanswered.add(counter)
        for cell in counter.cells:
            self._observe_cell(slot, counter, cell)
        self._observe_refunds(slot, counter)

    def _observe_refunds(self, slot: NodeSlot, counter: SharedWindow) -> None:
        """A node believes in no refund that no shard gave, and in nothing below nothing."""
        for cell, counted in zip(counter.cells, (counter.current, counter.previous), strict=True):
            actual = self._truth.cells[counter.key, cell.sequence]
            if counted < max(0, cell.known - actual.refunded):
                what = f"counts {counted} of {cell.known}, {actual.refunded} were given back"
                self._violate("refunds", f"{slot.name} {counter.key.decode()} in {cell.sequence}: {what}")

    def _changed_cells(self, slot: NodeSlot, counter: SharedWindow, pair: tuple[CellView, CellView] | None) -> None:
        """A window goes only when its time is over: what was admitted in it is not lost before."""
        self._pairs[counter] = counter.cells
        if self._components.setdefault(counter, counter.component) != counter.component:
            # It was started again: right after a step, wrong at any other time.
            self._components[counter] = counter.component
            self._restated(slot, counter.key)
            if not self._world.clock_was_set(counter.key) and counter.key not in self._truth.resets:
                self._violate("lost", f"{slot.name} {counter.key.decode()} began anew, and no clock was set")
            return
        now_ms = self._world.shards[self._world.shard_of(counter.key)].time_ms()
        if slot.node is not None:
            now_ms = max(now_ms, counter.shard.now_ms())
        for cell in pair or ():
            gone = cell not in counter.cells and cell.unacked
            over = cell.sequence < max(counter.sequence, now_ms // counter.window_ms) - 1
            if gone and not over and self._taken_over(counter, cell, pair):
                self._restated(slot, counter.key)
            elif gone and not over:
                self._violate("lost", f"{slot.name} {counter.key.decode()}: {cell.unacked} of window {cell.sequence}")

    def _taken_over(self, counter: SharedWindow, cell: CellView, pair: tuple[CellView, CellView] | None) -> bool:
        """The window before last went, or another part took this one in because the node's clock had been off."""
        if (
            pair is not None
            and counter.current_cell is not pair[0]
            and (cell is pair[1] or counter in self._unanswered)
        ):
            return True
        return any(now.sequence == cell.sequence and now.total >= cell.total for now in counter.cells)

    def asked_in_vain(self, key: bytes, sequence: int) -> int:
        """Most cost that nodes had asked for when the shard lost something, or have since, and were not charged for."""
        return sum(self._vain.get((key, sequence), {}).values())

    def _in_vain(self, counter: SharedWindow, cell: CellView, cost: int) -> None:
        vain = self._vain.setdefault((counter.key, cell.sequence), {})
        vain[counter.component] = max(vain.get(counter.component, 0), cost)

    def _observe_cell(self, slot: NodeSlot, counter: SharedWindow, cell: CellView) -> None:
        if self._world.shards[self._world.shard_of(counter.key)].has_lost(counter.key):
            self._in_vain(counter, cell, cell.highest_sent - max(cell.own, cell.total))
        now = Belief(cell.sequence, cell.total, cell.own, cell.others, cell.foreign, cell.highest_total_seen)
        was = self._beliefs.get(cell, None)
        if now == was:
            self._above_truth(slot, counter, cell)
            return
        self._beliefs[cell] = now
        truth, key = self._truth, counter.key
        was = was or Belief(cell.sequence, 0, 0, 0, 0, 0)
        known = was.total
        if was.sequence != cell.sequence:  # the node's own clock had been off
            actual = truth.cells[key, was.sequence]
            actual.subtract(counter.component, was.total)
            actual.committed -= was.total
            was = Belief(cell.sequence, 0, 0, 0, 0, 0)
            self._restated(slot, key)
        if any(new < old for new, old in zip(now, was, strict=True)):
            self._violate("beliefs", f"{slot.name} {key.decode()}: {was} to {now}")
        if cell.total > was.total:
            shard = self._world.shards[self._world.shard_of(counter.key)]
            limit = counter.limit
            truth.cells[key, cell.sequence].raise_to(counter.component, cell.total)
            self._committed(slot, key, cell.total - known)
            time_ms = shard.key_time_ms(key)
            truth.commit(key, limit, cell.sequence, cell.total - was.total, time_ms, self._world.loop.time())
        self._above_truth(slot, counter, cell)

    def _restated(self, slot: NodeSlot, key: bytes) -> None:
        if slot.node is not None:
            self.restated.add((slot.node, key))

    def _committed(self, slot: NodeSlot, key: bytes, cost: int) -> None:
        if slot.node is not None:
            self.committed[slot.node, key] += cost

    def _above_truth(self, slot: NodeSlot, counter: SharedWindow, cell: CellView) -> None:
        """Check that a node never believes in more than all nodes together admitted or were charged."""
        actual = self._truth.cells[counter.key, cell.sequence]
        component = actual.components.get(counter.component, 0)
        truth = actual.total - component + max(component, cell.total + cell.reserved) + actual.abroad
        truth += self._evidence.charged_unheard(slot, counter.key)
        if cell.known > truth:
            what = f"{slot.name} {counter.key.decode()} in {cell.sequence}: knows {cell.known}, the truth is {truth}"
            self._violate("belief_above_truth", what)

    def _observe_bucket(self, slot: NodeSlot, counter: SharedBucket) -> None:
        known = (counter, counter.component)
        total, own, arrival_ms = self._buckets.get(known, (0, 0, 0))
        spent = counter.total - counter.vain
        if counter.limit.refund:
            arrival_ms = 0  # what is given back puts it back
        self._buckets[known] = (spent, counter.own, counter.answered_arrival[0])
        if spent < total or counter.own < own or counter.answered_arrival[0] < arrival_ms:
            what = f"total, own, arrival from {(total, own, arrival_ms)} to {self._buckets[known]}"
            self._violate("beliefs", f"{slot.name} {counter.key.decode()}: {what}")
        if spent > total:
            self._committed(slot, counter.key, spent - total)
            self.bucket_raised(counter.key, counter.component, counter.total, counter.limit)
            self._admitted(counter, spent - total)

    def _admitted(self, counter: SharedBucket, cost: int) -> None:
        """Check that admissions alone stay within the bound too: a charge that has drained since pays for nothing."""
        actual, limit = self._truth.buckets[counter.key], counter.limit
        over = actual.admit(cost, limit, self._world.shards[self._world.shard_of(counter.key)].key_time_ms(counter.key))
        slack = self._world.history.deadline_ms * actual.rate
        if over > slack and actual.clean and not limit.overdraft:
            self._violate("budget", f"{counter.key.decode()}: {over / actual.rate:.1f} ms admitted above burst and P")

    def bucket_raised(self, key: bytes, component: bytes, value: int, limit: Limit) -> None:
        """A bucket never holds more than its burst and `P`."""
        actual = self._truth.buckets[key]
        shard = self._world.shards[self._world.shard_of(key)]
        over = actual.raise_to(component, value, limit, shard.key_time_ms(key))
        # A node's notion of the time is a little behind the shard's: by a round trip at most.
        slack = self._world.history.deadline_ms * actual.rate
        if over > slack and actual.clean and not limit.overdraft:
            self._violate("budget", f"{key.decode()}: {over / actual.rate:.1f} ms above burst and P")

    def lost(self, key: bytes) -> None:
        """The shard lost the key's record: what nodes have asked for, and not heard of, may never be charged."""
        for _, _, counter in self._world.counters():
            if isinstance(counter, SharedWindow) and counter.key == key:
                for cell in counter.cells:
                    self._in_vain(counter, cell, cell.highest_sent - cell.own)
