"""Waits, calls and admissions over limits, nodes, loads, demands and precisions, on virtual time.

    python -m benchmarks.room [--seeds N] [--only WORD]      the table of targets
    python -m benchmarks.room --precision                    what each precision gives and costs
    python -m benchmarks.room --loss                         what a shard that loses its memory lets through
    python -m benchmarks.room --sweep [--cells N]            cells chosen by chance from all axes, and the plots

Plays each case with the nodes, the shard and the arithmetic that serve, and prints what came of it beside what was
wanted and beside the figures of the rule before (room_before.json): grants that were together within `P`. Ends with
status 1 if anything was admitted above the limit and `P`. Constants were chosen with seeds below 100; what is printed
has others.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks import room_sweep
from benchmarks.room_cases import FIXED, GCRA, SLIDING, Figures, Target, case_of

BEFORE: Final = Path(__file__).with_name("room_before.json")
"""Figures of the last commit before this rule, 823424f, as `--json` prints them."""


def _overloads() -> list[Target]:
    rows = []
    for algorithm in (SLIDING, FIXED, GCRA):
        for nodes in (4, 20, 100):
            most = "6%" if algorithm is FIXED and nodes == 100 else "3%"
            case = case_of(1_000, 1, nodes, 3.0, algorithm)
            wanted = f"wait ≤ {most}, calls ≤ 16, admitted ≥ 99%"
            rows.append(Target(f"{algorithm.value} 1,000/s at 3 ×, {nodes} nodes", case, wanted))
    return rows


TARGETS: Final = [
    Target("100/s, 20 nodes, half load", case_of(100, 1, 20, 0.5, windows=30), "wait ≤ 10%"),
    Target("1,000/s, 100 nodes, half load", case_of(1_000, 1, 100, 0.5), "wait ≤ 1%"),
    *[
        Target(
            f"1,000/min, 20 nodes, 80%, precision {100 * precision:g}%",
            case_of(1_000, 60, 20, 0.8, precision=precision), "wait falling; ≤ 1% at 100%",
        )
        for precision in (0.0, 0.05, 0.2, 1.0)
    ],
    *_overloads(),
    Target("20/s, 2 nodes, 95%", case_of(20, 1, 2, 0.95, windows=100), "false ≤ 2%"),
    Target("100/s, 4 nodes, 95%", case_of(100, 1, 4, 0.95, windows=50), "false ≤ 2.5%"),
    *[
        Target(f"1,000/s, 20 nodes, {name}, {demand}", case_of(1_000, 1, 20, load, demand=demand, windows=12), wanted)
        for name, load, demand, wanted in (
            ("95%", 0.95, "moving", "false ≤ 2.5%"),
            ("95%", 0.95, "bursts", "false ≤ 6%"),
            ("3 ×", 3.0, "moving", "admitted ≥ 97%"),
            ("3 ×", 3.0, "bursts", "admitted ≥ 97%"),
        )
    ],
]  # fmt: skip
LOSSES: Final = [
    Target(
        f"{requests:,}/{window_s} s, {nodes} nodes, {100 * load:g}% → 3 ×, {what}",
        case_of(requests, window_s, nodes, load, algorithm, windows=4, lost=lost),
    )
    for requests, window_s, nodes, load, algorithm in (
        (100, 1, 4, 0.8, SLIDING), (1_000, 1, 20, 0.5, SLIDING), (1_000, 1, 20, 0.9, SLIDING),
        (1_000, 10, 20, 0.8, SLIDING), (10_000, 10, 20, 0.8, FIXED),
    )
    for what, lost in (("memory lost", "memory"), ("another server", "server"))
]  # fmt: skip
PRECISIONS: Final = (0.0, 0.05, 0.2, 1.0)
LOADS: Final = (0.5, 0.8, 0.95, 3.0)

HEAD: Final = "wait | calls per second and node | admitted | false denials"


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def precisions(seeds: int) -> bool:
    """Print, by precision, how many requests wait and how much is admitted; return whether a limit was exceeded."""
    wrong = False
    names = " | ".join([f"precision {100 * precision:g}%" for precision in PRECISIONS])
    _say(f"| limit, 20 nodes | load | {names} |", "|---|---|" + "---|" * len(PRECISIONS))
    for requests, window_s in ((100, 1), (1_000, 1), (1_000, 60)):
        for load in LOADS:
            cells = []
            for precision in PRECISIONS:
                windows = 20 if requests == 100 else 0
                case = case_of(requests, window_s, 20, load, precision=precision, windows=windows)
                found = Figures.of(case, seeds)
                wrong |= found.over > case.limit.precision
                cells.append(f"{found.wait:.1f}% wait, {found.admitted:.1f}% admitted, {found.over} over")
            _say(f"| {requests:,} / {window_s} s | {100 * load:g}% | {' | '.join(cells)} |")
    return wrong


def targets(seeds: int, only: str) -> bool:
    """Print the table of targets; return whether a limit was exceeded."""
    wrong, before = False, _before()
    _say(f"| case | before: {HEAD} | wanted | now: {HEAD} | most over |", "|---|" + "---|" * 10)
    for target in TARGETS:
        if only in target.name:
            found = Figures.of(target.case, seeds)
            wrong |= found.over > target.case.limit.precision
            was = before[target.name].cells() if target.name in before else " | | | "
            _say(f"| {target.name} | {was} | {target.wanted} | {found.cells()} | {_over(found, target)} |")
    return wrong


def losses(seeds: int) -> bool:
    """Print what is let through around a loss. `P` may be exceeded there, so nothing is wrong with it."""
    before = _before()
    _say("| case | most over before | most over |", "|---|---|---|")
    for target in LOSSES:
        was = before[target.name].over if target.name in before else ""
        _say(f"| {target.name} | {was} | {_over(Figures.of(target.case, seeds), target)} |")
    return False


def _over(found: Figures, target: Target) -> str:
    return f"{found.over} of {target.case.limit.precision}"


def _before() -> dict[str, Figures]:
    if not BEFORE.exists():
        return {}
    recorded: dict[str, dict[str, Any]] = json.loads(BEFORE.read_text())
    return {name: Figures(**figures) for name, figures in recorded.items()}


def main() -> int:
    """Play what is asked for, and say whether a limit was exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--precision", action="store_true", help="what each precision gives and costs")
    parser.add_argument("--loss", action="store_true", help="what a shard that loses its memory lets through")
    parser.add_argument("--sweep", action="store_true", help="cells chosen by chance, and the plots")
    parser.add_argument("--cells", type=int, default=120, help="of the sweep")
    parser.add_argument("--json", action="store_true", help="all figures of this version, as room_before.json has them")
    arguments = parser.parse_args()
    if arguments.json:
        rows = [*TARGETS, *LOSSES, *room_sweep.CURVES]
        figures = {row.name: vars(Figures.of(row.case, arguments.seeds)) for row in rows}
        _say(json.dumps(figures, indent=1))
        return 0
    if arguments.precision:
        return int(precisions(arguments.seeds))
    if arguments.loss:
        return int(losses(arguments.seeds))
    if arguments.sweep:
        return int(room_sweep.sweep(arguments.cells, arguments.seeds, _before()))
    return int(targets(arguments.seeds, arguments.only))


if __name__ == "__main__":
    raise SystemExit(main())
