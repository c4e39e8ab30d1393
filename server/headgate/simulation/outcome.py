"""Result of one history, of one region or of several."""

from collections import Counter
from dataclasses import dataclass, field

from headgate.simulation.history import SimulationHistory
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.watch import Violation

AnyHistory = SimulationHistory | RegionsHistory


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """Result of one history: the violations, and the number of requests by path."""

    history: AnyHistory
    violations: list[Violation]
    requests: int = 0
    admitted: int = 0
    waited: int = 0
    unserved: int = 0
    digest: int = 0
    """Digest of every decision, in order: two runs with the same one were the same run."""
    paths: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """True if nothing was violated."""
        return not self.violations
