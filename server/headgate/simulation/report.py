"""Results of a run or of many, as text: no wall time in it, the same bytes for the same seed."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from headgate.simulation.history import FaultKind
from headgate.simulation.outcome import AnyHistory, SimulationOutcome
from headgate.simulation.regions.history import RegionFaultKind, RegionsHistory

KINDS: Final = (*FaultKind, *RegionFaultKind)


@dataclass
class SimulationTotals:
    """Sums over many histories."""

    histories: int = 0
    requests: int = 0
    admitted: int = 0
    violations: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: SimulationOutcome) -> None:
        self.histories += 1
        self.requests += outcome.requests
        self.admitted += outcome.admitted
        self.violations += len(outcome.violations)
        self.faults += outcome.history.kinds

    def line(self) -> str:
        return (
            f"histories {self.histories}  requests {self.requests}  "
            f"faults {sum(self.faults.values())}  violations {self.violations}"
        )

    def table(self) -> str:
        """Table for docs/reliability.md."""
        rows = [("histories", self.histories), ("requests", self.requests), ("faults", sum(self.faults.values()))]
        rows += [(f"– {kind.value}", self.faults[kind.value]) for kind in KINDS if self.faults[kind.value]]
        rows.append(("violations", self.violations))
        return "\n".join(["| | |", "|---|---:|", *(f"| {name} | {count:,} |" for name, count in rows)])


def describe(outcome: SimulationOutcome) -> str:
    """One history: what it was, and what came of it."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.history.kinds.items()))
    paths = ", ".join(f"{path} {count}" for path, count in sorted(outcome.paths.items()))
    lines = [
        outcome.history.describe(),
        f"faults: {kinds or 'none'}",
        f"decisions: {paths or 'none'}",
        f"asked {outcome.requests}, admitted {outcome.admitted}, waited {outcome.waited}, "
        f"unserved {outcome.unserved}, digest {outcome.digest:08x}",
        f"violations: {len(outcome.violations)}",
    ]
    return "\n".join(lines + [violation.describe() for violation in outcome.violations])


def schedule(history: AnyHistory) -> str:
    """Describe a history that was made smaller, and the command that runs it again."""
    lines = [f"{history.describe()}:", *(fault.describe() for fault in history.faults)]
    return "\n".join([*lines, f"again: headgate simulate {again(history)}"])


def again(history: AnyHistory) -> str:
    """The arguments of `headgate simulate` that play this history again."""
    faults = ",".join(str(number) for number in history.numbers) or "none"
    regions = "--regions " if isinstance(history, RegionsHistory) else ""
    return f"{regions}--seed {history.seed} --faults {faults} --requests {len(history.asks)}"
