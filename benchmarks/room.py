"""Waits, calls and admissions over limits, nodes, loads, demands and precisions, on virtual time.

    python -m benchmarks.room [--seeds N] [--only WORD] [--precision]

Plays each row of the table of targets with the nodes, the shard and the arithmetic that serve, and prints what came of
it beside what was wanted and beside the figures of the rule before: grants that were together within `P`. Ends with
status 1 if anything was admitted above the limit and `P`. With `--precision`: what each precision gives and costs.
"""

import argparse
import sys
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from headgate.limiter.limit import Algorithm

from benchmarks.overload import Case, Result, play

SLIDING, FIXED, GCRA = Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW, Algorithm.GCRA


BEFORE: Final = {
    "100/s, 20 nodes, half load": "76.3%; 2.6; 100.0%; 0.0%",
    "1,000/s, 100 nodes, half load": "62.5%; 4.8; 100.0%; 0.0%",
    "1,000/min, 20 nodes, 80%, precision 0%": "83.1%; 0.6; 100.0%; 0.0%",
    "1,000/min, 20 nodes, 80%, precision 5%": "0.0%; 0.6; 100.0%; 0.0%",
    "1,000/min, 20 nodes, 80%, precision 20%": "10.3%; 0.6; 100.0%; 0.0%",
    "1,000/min, 20 nodes, 80%, precision 100%": "83.1%; 0.6; 100.0%; 0.0%",
    "sliding_window 1,000/s at 3 ×, 4 nodes": "22.1%; 113.5; 99.9%; 62.0%",
    "sliding_window 1,000/s at 3 ×, 20 nodes": "56.4%; 77.7; 99.9%; 58.4%",
    "sliding_window 1,000/s at 3 ×, 100 nodes": "78.4%; 24.3; 100.5%; 58.4%",
    "fixed_window 1,000/s at 3 ×, 4 nodes": "3.3%; 17.1; 100.7%; 0.2%",
    "fixed_window 1,000/s at 3 ×, 20 nodes": "7.8%; 12.3; 102.2%; 0.1%",
    "fixed_window 1,000/s at 3 ×, 100 nodes": "25.8%; 9.0; 103.1%; 0.1%",
    "gcra 1,000/s at 3 ×, 4 nodes": "2.1%; 11.2; 100.5%; 65.9%",
    "gcra 1,000/s at 3 ×, 20 nodes": "7.6%; 11.7; 100.0%; 66.6%",
    "gcra 1,000/s at 3 ×, 100 nodes": "28.3%; 10.0; 100.0%; 63.8%",
    "20/s, 2 nodes, 95%": "60.7%; 8.3; 100.2%; 1.4%",
    "100/s, 4 nodes, 95%": "42.3%; 17.1; 100.0%; 1.4%",
    "1,000/s, 20 nodes, 95%, moving": "15.0%; 8.1; 100.0%; 0.0%",
    "1,000/s, 20 nodes, 95%, bursts": "33.9%; 7.1; 97.2%; 3.9%",
    "1,000/s, 20 nodes, 3 ×, moving": "15.3%; 17.7; 100.1%; 62.9%",
    "1,000/s, 20 nodes, 3 ×, bursts": "28.2%; 20.6; 99.3%; 38.2%",
}
"""Figures of the last commit before this rule, 9e28d4d, by case, with one seed: waits, calls per second and node, of a
perfect limiter's, false denials."""


@dataclass(frozen=True)
class Target:
    """One case, and what was wanted of it."""

    name: str
    case: Case
    wanted: str


def _case(
    requests: int, window_s: int, nodes: int, load: float, algorithm: Algorithm = SLIDING, demand: str = "even",
    precision: float = 0.05, windows: int = 0,
) -> Case:  # fmt: skip
    windows = windows or (6 if window_s <= 10 else 2)
    return Case(requests, window_s, algorithm, nodes, load, demand, windows=windows, precision=precision)


def _overloads() -> list[Target]:
    rows = []
    for algorithm in (SLIDING, FIXED, GCRA):
        for nodes in (4, 20, 100):
            most = "6%" if algorithm is FIXED and nodes == 100 else "3%"
            case = _case(1_000, 1, nodes, 3.0, algorithm)
            wanted = f"wait ≤ {most}, calls ≤ 16, of a perfect limiter's ≥ 99%"
            rows.append(Target(f"{algorithm.value} 1,000/s at 3 ×, {nodes} nodes", case, wanted))
    return rows


TARGETS: Final = [
    Target("100/s, 20 nodes, half load", _case(100, 1, 20, 0.5, windows=30), "wait ≤ 10%"),
    Target("1,000/s, 100 nodes, half load", _case(1_000, 1, 100, 0.5), "wait ≤ 1%"),
    *[
        Target(
            f"1,000/min, 20 nodes, 80%, precision {100 * precision:g}%",
            _case(1_000, 60, 20, 0.8, precision=precision), "wait falling; ≤ 1% at 100%",
        )
        for precision in (0.0, 0.05, 0.2, 1.0)
    ],
    *_overloads(),
    Target("20/s, 2 nodes, 95%", _case(20, 1, 2, 0.95, windows=100), "false ≤ 2%"),
    Target("100/s, 4 nodes, 95%", _case(100, 1, 4, 0.95, windows=50), "false ≤ 2.5%"),
    *[
        Target(
            f"1,000/s, 20 nodes, {name}, {demand}",
            _case(1_000, 1, 20, load, demand=demand, windows=12), wanted,
        )
        for name, load, demand, wanted in (
            ("95%", 0.95, "moving", "false ≤ 2.5%"),
            ("95%", 0.95, "bursts", "false ≤ 6%"),
            ("3 ×", 3.0, "moving", "of a perfect limiter's ≥ 97%"),
            ("3 ×", 3.0, "bursts", "of a perfect limiter's ≥ 97%"),
        )
    ],
]  # fmt: skip


PRECISIONS: Final = (0.0, 0.05, 0.2, 1.0)
LOADS: Final = (0.5, 0.8, 0.95, 3.0)


def precisions(seeds: int) -> bool:
    """Print, by precision, how many requests wait and how much is admitted; return whether a limit was exceeded."""
    wrong = False
    sys.stdout.write(
        "| limit, 20 nodes | load | " + " | ".join([f"precision {100 * precision:g}%" for precision in PRECISIONS])
        + " |\n|---|---|" + "---|" * len(PRECISIONS) + "\n"
    )  # fmt: skip
    for requests, window_s in ((100, 1), (1_000, 1), (1_000, 60)):
        for load in LOADS:
            cells = []
            for precision in PRECISIONS:
                windows = 20 if requests == 100 else 0
                case = _case(requests, window_s, 20, load, precision=precision, windows=windows)
                results = [play(case, seed) for seed in range(1, seeds + 1)]
                wrong |= any(result.over > case.limit.precision for result in results)
                near, share = (fmean(map(of, results)) for of in (lambda r: r.near_share, lambda r: r.share))
                over = max(result.over for result in results)
                cells.append(f"{100 * near:.1f}% wait, {100 * share:.1f}% admitted, {over} over")
            sys.stdout.write(f"| {requests:,} / {window_s} s | {100 * load:g}% | {' | '.join(cells)} |\n")
            sys.stdout.flush()
    return wrong


def row(target: Target, results: list[Result]) -> str:
    """Return a line of the table: means over all seeds, and the most over the limit."""
    near, false = fmean([result.near_share for result in results]), fmean([result.false_share for result in results])
    calls, share = fmean([result.calls_per_s for result in results]), fmean([result.share for result in results])
    over = max(result.over for result in results)
    return (
        f"| {target.name} | {BEFORE[target.name]} | {target.wanted} | {100 * near:.1f}% | {calls:.1f} "
        f"| {100 * share:.1f}% | {100 * false:.1f}% | {over} of {target.case.limit.precision} |"
    )


def main() -> int:
    """Play all rows, and say whether a limit was exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--precision", action="store_true", help="what each precision gives and costs")
    arguments = parser.parse_args()
    if arguments.precision:
        return int(precisions(arguments.seeds))
    sys.stdout.write(
        "| case | before: wait; calls; of a perfect limiter's; false denials "
        "| wanted | wait | calls per second and node | of a perfect limiter's | false denials "
        "| most over |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    wrong = 0
    for target in TARGETS:
        if arguments.only in target.name:
            results = [play(target.case, seed) for seed in range(1, arguments.seeds + 1)]
            wrong += any(result.over > target.case.limit.precision for result in results)
            sys.stdout.write(row(target, results) + "\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
