"""Grants: how much each run may admit of one limit key before it is acknowledged.

The sum of all grants never exceeds `P`. A grant is a lease in generations of shard
time: sums are kept for this generation and the one before, older ones do not count,
so the cost does not grow with the number of runs, and what a dead node held comes back.
(docs/convergence.md, section 4.)
"""

from typing import Final

GENERATION_MS: Final = 10_000
"""Twice the time for which a node uses a grant (5 s from sending): what two generations do not
count, nobody uses any more."""


class Holding:
    """Grant that one run holds of a key, and the number of the last call that it made."""

    __slots__ = ("generation", "held", "number")

    def __init__(self) -> None:
        self.held = 0
        self.generation = 0
        self.number = 0


class Grants:
    """Grants of all runs together of one limit key."""

    __slots__ = ("generation", "previous_sum", "sum")

    def __init__(self) -> None:
        self.generation = 0
        """Generation of shard time in which somebody was last granted something."""
        self.sum = 0
        """Sum of what was granted in this generation."""
        self.previous_sum = 0
        """Sum of what was granted in the one before, and not renewed since."""

    def ahead(self, time_ms: int) -> bool:
        """Say if they were granted by a clock that was wrong: they lie so far ahead that they would not age."""
        return self.generation > time_ms // GENERATION_MS + 1

    def renew(self, holding: Holding, held: int, precision: int, time_ms: int, *, leaving: bool) -> int:
        """Offer half of what others leave of `P`, rounded up; count the larger of held and offered.

        The larger, because a reply may be lost: until the node calls again it may be
        using either.
        """
        self._roll(time_ms // GENERATION_MS)
        self._forget(holding)
        if leaving:
            holding.held = 0
            return 0
        free = precision - self.sum - self.previous_sum
        offered = max(0, -(-free // 2))
        holding.held = max(held, offered)
        holding.generation = self.generation
        self.sum += holding.held
        return offered

    def _roll(self, generation: int) -> None:
        if generation <= self.generation:
            return
        self.previous_sum = self.sum if generation == self.generation + 1 else 0
        self.sum = 0
        self.generation = generation

    def _forget(self, holding: Holding) -> None:
        if holding.generation == self.generation:
            self.sum -= holding.held
        elif holding.generation == self.generation - 1:
            self.previous_sum -= holding.held
