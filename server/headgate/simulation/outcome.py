"""What came of one history, of whatever kind."""

from collections import Counter
from dataclasses import dataclass, field

from headgate.simulation.history import History
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.watch import Violation

AnyHistory = History | RegionsHistory


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one history: what was violated, and how many requests went which way."""

    history: AnyHistory
    violations: list[Violation]
    requests: int = 0
    admitted: int = 0
    waited: int = 0
    unserved: int = 0
    digest: int = 0
    """Of every decision, in order: two runs with the same one were the same run."""
    paths: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations
