"""The invariants that hold at every step, checked at every answer, every decision and every few milliseconds.

One part for each subject: what shards answer (shard_watch.py), what nodes believe (cell_watch.py) and decide
(decision_watch.py), what is bounded (bounds_watch.py), and what disturbs them (upsets.py). They write into the same
true counts (evidence.py). What holds only when all is quiet again is in quiescence.py.
"""

from collections import Counter

from headgate.limiter.decision import Charge, Decision
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.simulation.bounds_watch import BoundsWatch
from headgate.simulation.cell_watch import CellWatch
from headgate.simulation.decision_watch import Asked, DecisionWatch
from headgate.simulation.evidence import Evidence, Violation
from headgate.simulation.shard_watch import ShardWatch
from headgate.simulation.upsets import Upsets
from headgate.simulation.world import World

__all__ = ["Asked", "Violation", "Watch"]


class Watch:
    """Checks every promise while a history is played, from the true counts and from what nodes say."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._evidence = Evidence(world)
        self.truth = self._evidence.truth
        """True counts of an observer of the whole history."""
        self._cells = CellWatch(self._evidence)
        self._shards = ShardWatch(self._evidence, self._cells)
        self._upsets = Upsets(self._evidence, self._cells, self._shards)
        self._decisions = DecisionWatch(self._evidence, self._cells, self._upsets)
        self._bounds = BoundsWatch(self._evidence, self._cells, self._upsets)
        world.on_error = lambda what: self.violate("tasks", what)
        for index, shard in enumerate(world.shards):
            shard.on_reset = self._upsets.reset
            shard.on_reply = lambda call, reply, index=index: self._shards.replied(index, call, reply)  # type: ignore[misc]

    @property
    def violations(self) -> list[Violation]:
        return self._evidence.violations

    @property
    def paths(self) -> Counter[str]:
        return self._decisions.paths

    @property
    def promised(self) -> Counter[tuple[RegionNode, bytes]]:
        return self._decisions.promised

    @property
    def committed(self) -> Counter[tuple[RegionNode, bytes]]:
        return self._cells.committed

    @property
    def restated(self) -> set[tuple[RegionNode, bytes]]:
        return self._cells.restated

    def violate(self, invariant: str, what: str) -> None:
        """A promise was broken."""
        self._evidence.violate(invariant, what)

    def asked_in_vain(self, key: bytes, sequence: int) -> int:
        """Most cost that nodes had asked for when a shard lost something, or have since, and were not charged for."""
        return self._cells.asked_in_vain(key, sequence)

    # Told of faults

    def shard_upset(self, index: int) -> None:
        self._upsets.shard(index)

    def key_upset(self, key: bytes) -> None:
        self._upsets.key(key)

    def clock_upset(self, index: int, by_ms: int) -> None:
        self._upsets.clock(index, by_ms)

    def node_upset(self) -> None:
        self._upsets.node()

    def rule_upset(self, key: bytes) -> None:
        self._upsets.rule(key)

    # Told of decisions, and called from time to time

    def decided(self, asked: Asked, cells: list[SharedCounter | None], decision: Decision, unplaced: bool) -> None:
        """`cells` are those that the request met: one may have gone from the table while it waited."""
        self._decisions.decided(asked, cells, decision, unplaced)

    def demanded(self, charges: tuple[Charge, ...], cells: list[SharedCounter | None]) -> None:
        """A request has just been asked, which may give something back."""
        self._decisions.demanded(charges, cells)

    def observe(self) -> None:
        """Check what holds at every instant."""
        self._bounds.observe()

    def measure(self) -> None:
        """Over-admission in healthy windows is within the budget."""
        for excess in self.truth.excesses.values():
            shard = self.world.shard_of(excess.key)
            if self.truth.healthy(excess.key, shard, excess.sequence, excess.window_ms):
                self._evidence.violate("budget", excess.what, excess.at_s)
