"""The sweep of `python -m benchmarks.room --sweep`: cells chosen by chance from all axes, and curves by load.

A cell is one limit, window, algorithm, precision, number of nodes, load and demand. All of them together are more than
anybody waits for: so they are chosen by chance, by a seed, and summed up by load.
"""

import random
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Final

from headgate.limiter.limit import Algorithm

from benchmarks.overload import Case
from benchmarks.plots import lines
from benchmarks.room_cases import Figures, Target, case_of

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
ALGORITHMS: Final = tuple(Algorithm)
LIMITS: Final = (20, 100, 1_000, 10_000, 100_000)
WINDOWS_S: Final = (1, 10, 60, 3_600)
NODES: Final = (2, 4, 20, 100)
LOADS: Final = (0.1, 0.5, 0.8, 0.95, 1.2, 3.0)
DEMANDS: Final = ("even", "skewed", "moving", "bursts")
PRECISIONS: Final = (0.0, 0.05, 0.2, 1.0)
LEAST_REQUESTS: Final = 200
MOST_REQUESTS: Final = 60_000
"""Of a cell: fewer say little, more take longer than some seconds of one core."""
MOST_BEATS: Final = 60_000
"""Heartbeats of a cell: nodes times seconds."""

SHAPES: Final = {
    "100/s, 4 nodes": (100, 4),
    "100/s, 20 nodes": (100, 20),
    "1,000/s, 20 nodes": (1_000, 20),
    "1,000/s, 100 nodes": (1_000, 100),
}
CURVE_LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0)
CURVES: Final = [
    Target(f"{name}, {100 * load:g}%", case_of(requests, 1, nodes, load, windows=10 if requests == 100 else 4))
    for name, (requests, nodes) in SHAPES.items()
    for load in CURVE_LOADS
]
PLOTS: Final = {
    "room-waits": ("wait", "Requests that wait for the shard, by load", "%"),
    "room-calls": ("calls", "Calls to the shard per second and node, by load", ""),
    "room-admitted": ("admitted", "Admitted, of what a perfect limiter admits, by load", "%"),
}


def cells(count: int, seed: int) -> list[Case]:
    """Return so many cells that don't take too long, chosen by chance."""
    chance = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        requests, window_s, nodes = chance.choice(LIMITS), chance.choice(WINDOWS_S), chance.choice(NODES)
        load = chance.choice(LOADS)
        windows = max(6 if window_s == 1 else 2, 2 + int(LEAST_REQUESTS / (requests * load)))
        algorithm, demand = chance.choice(ALGORITHMS), chance.choice(DEMANDS)
        precision = chance.choice(PRECISIONS)
        if requests * load * windows <= MOST_REQUESTS and nodes * window_s * windows <= MOST_BEATS:
            found.append(case_of(requests, window_s, nodes, load, algorithm, demand, precision, windows))
    return found


def sweep(count: int, seeds: int, before: dict[str, Figures]) -> bool:
    """Play the cells and print means by load; write the plots. Return whether a limit was exceeded."""
    by_load: defaultdict[float, list[Figures]] = defaultdict(list)
    wrong = 0
    for case in cells(count, seed=1):
        found = Figures.of(case, 1)
        by_load[case.load].append(found)
        if found.over > case.limit.precision:
            wrong += 1
            sys.stdout.write(f"above P: {case}: {found.over}\n")
    sys.stdout.write("| load | cells | wait | calls per second and node | admitted | false denials |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for load, rows in sorted(by_load.items()):
        wait, calls, admitted, false = (fmean(column) for column in zip(*map(_means, rows), strict=True))
        mean = Figures(wait, calls, admitted, false, 0)
        sys.stdout.write(f"| {100 * load:g}% | {len(rows)} | {mean.cells()} |\n")
    sys.stdout.write(f"\n{count} cells, {wrong} above P\n")
    plot(seeds, before)
    return bool(wrong)


def _means(found: Figures) -> tuple[float, float, float, float]:
    return found.wait, found.calls, found.admitted, found.false


def plot(seeds: int, before: dict[str, Figures]) -> None:
    """Play the curves, and write them into docs/images beside those of the rule before."""
    now = {row.name: Figures.of(row.case, seeds) for row in CURVES}
    for file, (field, title, unit) in PLOTS.items():
        series: dict[str, list[tuple[float, float]]] = {}
        for when, figures in (("before", before), ("now", now)):
            for name in ("100/s, 20 nodes", "1,000/s, 20 nodes", "1,000/s, 100 nodes"):
                points = [(100 * load, figures.get(f"{name}, {100 * load:g}%")) for load in CURVE_LOADS]
                series[f"{name}, {when}"] = [(load, getattr(at, field)) for load, at in points if at is not None]
        shown = {name: points for name, points in series.items() if points}
        note = "sliding window of a second, precision 5%, even demand; before: grants within the precision"
        (IMAGES / f"{file}.svg").write_text(lines(title, note, shown, x_unit="%", y_unit=unit))
