"""One case of the tables of room.py, and the figures that came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from headgate.limiter.limit import Algorithm

from benchmarks.overload import Case, Result, play

SLIDING, FIXED, GCRA = Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW, Algorithm.GCRA
FIRST_SEED: Final = 101
"""Constants were chosen with seeds below it."""


@dataclass(frozen=True)
class Target:
    """One case, and what was wanted of it."""

    name: str
    case: Case
    wanted: str = ""


@dataclass(frozen=True)
class Figures:
    """What came of a case, over all seeds: means in percent, and the most over the limit."""

    wait: float
    calls: float
    admitted: float
    false: float
    over: int

    @classmethod
    def of(cls, case: Case, seeds: int) -> "Figures":
        """Play the case once per seed."""
        results = [play(case, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]

        def mean(of: Callable[[Result], float]) -> float:
            return round(fmean(map(of, results)), 4)

        return cls(
            mean(lambda result: 100 * result.near_share),
            mean(lambda result: result.calls_per_s),
            mean(lambda result: 100 * result.share),
            mean(lambda result: 100 * result.false_share),
            max(result.over for result in results),
        )

    def cells(self) -> str:
        """Return it as cells of a table."""
        return f"{self.wait:.1f}% | {self.calls:.1f} | {self.admitted:.1f}% | {self.false:.1f}%"


def case_of(
    requests: int, window_s: int, nodes: int, load: float, algorithm: Algorithm = SLIDING, demand: str = "even",
    precision: float = 0.05, windows: int = 0, lost: str = "",
) -> Case:  # fmt: skip
    """Return a case that takes some seconds of one core."""
    windows = windows or (6 if window_s <= 10 else 2)
    return Case(requests, window_s, algorithm, nodes, load, demand, windows=windows, precision=precision, lost=lost)
