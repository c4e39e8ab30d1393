"""The invariants that hold at every step, checked at every answer, every decision and every few milliseconds.

One part for each subject: what shards answer (shard_watch.py), what nodes believe (cell_watch.py) and decide
(decision_watch.py), what is bounded (bounds_watch.py), and what disturbs them (upsets.py). They write into the same
true counts (evidence.py). What holds only when all is quiet again is in quiescence.py.
"""

from functools import partial

from headgate.simulation.bounds_watch import BoundsWatch
from headgate.simulation.cell_watch import CellWatch
from headgate.simulation.decision_watch import DecisionWatch
from headgate.simulation.evidence import Evidence
from headgate.simulation.shard_watch import ShardWatch
from headgate.simulation.upsets import Upsets
from headgate.simulation.world import World


class Watch:
    """Checks every promise while a history is played, from the true counts and from what nodes say."""

    def __init__(self, world: World) -> None:
        self._world = world
        evidence = Evidence(world)
        self.truth = evidence.truth
        """True counts of an observer of the whole history."""
        self.cells = CellWatch(evidence)
        shards = ShardWatch(evidence, self.cells)
        self.upsets = Upsets(evidence, self.cells, shards)
        self.decisions = DecisionWatch(evidence, self.cells, self.upsets)
        self.bounds = BoundsWatch(evidence, self.cells, self.upsets)
        for index, shard in enumerate(world.shards):
            shard.on_reset = self.upsets.reset
            shard.on_reply = partial(shards.replied, index)

    def measure(self) -> None:
        """Over-admission in healthy windows is within the budget."""
        for excess in self.truth.excesses.values():
            # A key that moves is disturbed by what happens to either shard.
            shards = self._world.may_count(excess.key)
            if all(self.truth.healthy(excess.key, shard, excess.sequence, excess.window_ms) for shard in shards):
                self._world.violate("budget", excess.what, excess.at_s)
