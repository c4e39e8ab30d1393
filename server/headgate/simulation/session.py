"""Runs of one history or of many, with their progress: the work of `headgate simulate`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError
from headgate.rules.explain import describe as describe_limit
from headgate.simulation.outcome import AnyHistory, SimulationOutcome
from headgate.simulation.report import SimulationTotals, describe, schedule
from headgate.simulation.runner import run
from headgate.simulation.shrinking import shrink
from headgate.simulation.trace import Trace

PROGRESS_EVERY_S: Final = 5.0

Write = Callable[[str], None]
Generate = Callable[[int], AnyHistory]
"""Function from a seed to its history."""


def one(whole: AnyHistory, faults: Sequence[int] | None, requests: int | None, path: Path | None, write: Write) -> bool:
    """Run one history, or a part of it; whether nothing was violated."""
    for number in faults or ():
        if number not in whole.numbers:
            raise ConfigError(f"--faults: seed {whole.seed} has faults 0 to {len(whole.numbers) - 1}, and no {number}")
    history = whole.cut(faults=faults, requests=requests)
    trace = Trace()
    outcome = run(history, trace)
    write(describe(outcome))
    if not outcome.ok:
        _explain(outcome, path, write)
    elif path is not None:
        _keep(path, history, trace)
    return outcome.ok


def many(
    generate: Generate, first: int, histories: int | None, seconds: float | None, path: Path | None, write: Write
) -> bool:
    """Run one seed after the other, until there are enough, the time is up, or one fails."""
    totals, began_s = SimulationTotals(), time.monotonic()
    shown_s = began_s
    write(f"from seed {first}")
    while not _enough(totals, histories, seconds, time.monotonic() - began_s):
        outcome = run(generate(first + totals.histories))
        totals.add(outcome)
        if not outcome.ok:
            write(describe(outcome))
            _explain(outcome, path, write)
            return False
        if time.monotonic() - shown_s >= PROGRESS_EVERY_S:
            shown_s = time.monotonic()
            write(totals.line())
    write(f"to seed {first + totals.histories - 1}\n\n{totals.table()}")
    return True


def _enough(totals: SimulationTotals, histories: int | None, seconds: float | None, elapsed_s: float) -> bool:
    return (histories is not None and totals.histories >= histories) or (seconds is not None and elapsed_s >= seconds)


def _explain(outcome: SimulationOutcome, path: Path | None, write: Write) -> None:
    """The smallest schedule that fails too, and its trace."""
    smallest = shrink(outcome).history
    write(f"smallest schedule found: {schedule(smallest)}")
    trace = Trace()
    run(smallest, trace)
    path = path or Path(f"headgate-simulation-{smallest.seed}.trace")
    _keep(path, smallest, trace)
    write(f"what happened is in {path}")


def _keep(path: Path, history: AnyHistory, trace: Trace) -> None:
    keys = [f"{key.name.decode()}: {describe_limit(key.limit)}" for key in history.keys]
    try:
        path.write_text("\n".join([schedule(history), *keys, "", trace.text()]), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the trace can't be written: {error}") from error
