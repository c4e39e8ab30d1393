"""A failing history made smaller: fewer faults, fewer requests, the same invariant violated."""

from collections.abc import Callable
from typing import Final

from headgate.simulation.outcome import AnyHistory, SimulationOutcome
from headgate.simulation.runner import run

MOST_RUNS: Final = 120
"""A history takes a fraction of a second: a minute or less for a schedule that a person can read."""


def shrink(outcome: SimulationOutcome, runs: int = MOST_RUNS) -> SimulationOutcome:
    """The smallest history found that violates one of the same invariants, and its outcome."""
    shrinker = _Shrinker(outcome, runs)
    while shrinker.fewer_requests() | shrinker.fewer_faults():
        pass  # fewer of one may allow fewer of the other
    return shrinker.smallest


class _Shrinker:
    def __init__(self, outcome: SimulationOutcome, runs: int) -> None:
        self.smallest = outcome
        self._wanted = {violation.invariant for violation in outcome.violations}
        self._runs = runs

    def fewer_requests(self) -> bool:
        """Halve what is left out, as long as it still fails: a binary search for the last request that matters."""
        count = len(self.smallest.history.asks)
        step, smaller = count // 2, False
        while step:
            if self._still_fails(lambda history, kept=count - step: history.cut(requests=kept)):  # type: ignore[misc]
                count, smaller = count - step, True
            step = min(step // 2, count // 2)
        return smaller

    def fewer_faults(self) -> bool:
        """Leave out groups of faults, then single ones."""
        smaller = False
        size = max(1, len(self.smallest.history.faults) // 2)
        while size:
            numbers = self.smallest.history.numbers
            for start in range(0, len(numbers), size):
                without = set(numbers[start : start + size])
                kept = [number for number in self.smallest.history.numbers if number not in without]
                smaller |= self._still_fails(lambda history, kept=kept: history.cut(faults=kept))  # type: ignore[misc]
            size //= 2
        return smaller

    def _still_fails(self, cut: Callable[[AnyHistory], AnyHistory]) -> bool:
        history = cut(self.smallest.history)
        if self._runs <= 0 or history == self.smallest.history:
            return False
        self._runs -= 1
        outcome = run(history)
        if not self._wanted & {violation.invariant for violation in outcome.violations}:
            return False
        self.smallest = outcome
        return True
