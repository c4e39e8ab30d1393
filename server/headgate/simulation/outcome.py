"""Result of one history, of one region or of several."""

import zlib
from collections import Counter
from dataclasses import dataclass, field

from headgate.limiter.decision import Decision
from headgate.simulation.history import SimulationHistory
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.stage import Violation

AnyHistory = SimulationHistory | RegionsHistory


@dataclass(slots=True)
class SimulationOutcome:
    """Result of one history: the violations, and the number of requests by path. Its clients count as they go."""

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

    def decided(self, at_s: float, place: int, decision: Decision) -> None:
        """Count a decision that was made at that time, at that node or in that region."""
        self.admitted += decision.admitted
        self.paths[f"{decision.path.value} {'admitted' if decision.admitted else 'denied'}"] += 1
        fact = b"%d %d %d %s" % (round(at_s * 1e6), place, decision.admitted, decision.path.encode())
        self.digest = zlib.crc32(fact, self.digest)
