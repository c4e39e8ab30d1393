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


@dataclass(frozen=True)
class Target:
    """One case, what it gave before, and what was wanted of it."""

    name: str
    case: Case
    before: str
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
            rows.append(
                Target(f"{algorithm.value} 1,000/s at 3 ×, {nodes} nodes", case, BEFORE[algorithm, nodes], wanted)
            )
    return rows


BEFORE: Final = {
    (SLIDING, 4): "22.5%; 117; 99.8%", (SLIDING, 20): "56.0%; 78; 99.9%", (SLIDING, 100): "78.1%; 25; 100.5%",
    (FIXED, 4): "3.8%; 20; 100%", (FIXED, 20): "10.4%; 16; 100%", (FIXED, 100): "34.7%; 12; 100%",
    (GCRA, 4): "2.2%; 11; 100%", (GCRA, 20): "7.7%; 12; 100%", (GCRA, 100): "28.6%; 10; 100%",
}  # fmt: skip

TARGETS: Final = [
    Target("100/s, 20 nodes, half load", _case(100, 1, 20, 0.5, windows=30), "wait 77%", "wait ≤ 10%"),
    Target("1,000/s, 100 nodes, half load", _case(1_000, 1, 100, 0.5), "wait 55%", "wait ≤ 1%"),
    *[
        Target(
            f"1,000/min, 20 nodes, 80%, precision {100 * precision:g}%",
            _case(1_000, 60, 20, 0.8, precision=precision), f"wait {before}%", "falling; ≤ 1% at 100%",
        )
        for precision, before in ((0.0, 83), (0.05, 0), (0.2, 50), (1.0, 83))
    ],
    *_overloads(),
    Target("20/s, 2 nodes, 95%", _case(20, 1, 2, 0.95, windows=100), "false 0.9%", "false ≤ 2%"),
    Target("100/s, 4 nodes, 95%", _case(100, 1, 4, 0.95, windows=50), "false 1.5%", "false ≤ 2.5%"),
    *[
        Target(
            f"1,000/s, 20 nodes, {name}, {demand}",
            _case(1_000, 1, 20, load, demand=demand, windows=12), before, wanted,
        )
        for name, load, demand, before, wanted in (
            ("95%", 0.95, "moving", "false 0.7%", "false ≤ 2.5%"),
            ("95%", 0.95, "bursts", "false 4.7%", "false ≤ 6%"),
            ("3 ×", 3.0, "moving", "100.4%", "of a perfect limiter's ≥ 97%"),
            ("3 ×", 3.0, "bursts", "99.1%", "of a perfect limiter's ≥ 97%"),
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
        f"| {target.name} | {target.before} | {target.wanted} | {100 * near:.1f}% | {calls:.1f} | {100 * share:.1f}% "
        f"| {100 * false:.1f}% | {over} of {target.case.limit.precision} |"
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
        "| case | before | wanted | wait | calls per second and node | of a perfect limiter's | false denials "
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
