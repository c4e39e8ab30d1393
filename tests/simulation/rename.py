"""Find histories for planted bugs again: `python -m tests.simulation.rename [BUG …]`, for developers.

Whatever changes the protocol moves what a seed does. For every planted bug whose named history is no
longer green without it, or no longer shows it, this looks for one that is and does: through the fixed set,
the shortest first, then through seeds beyond, which it adds to the set. A bug that has no history yet is given
one. The tests' tables and docs/reliability.md are rewritten, and what was changed is printed.
"""

import argparse
import multiprocessing
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from headgate.simulation.generate import generate
from headgate.simulation.regions.generate import generate as generate_regions
from headgate.simulation.runner import run

from tests.simulation import fixed_set, mutations, regions_mutations, test_mutations, test_regions

HERE: Final = Path(__file__).parent
RELIABILITY: Final = HERE.parents[1] / "docs" / "reliability.md"
PROCESSES: Final = 2
ENTRY: Final = re.compile(r'^    mutations\.(\w+): \("[\w-]+", "\w+"\),$', re.MULTILINE)


class Suite(NamedTuple):
    """Planted bugs of one kind, and the histories among which theirs are looked for."""

    bugs: types.ModuleType
    tests: types.ModuleType
    found_by: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, str]]
    set_in: Any
    """The module with SEEDS."""
    generate: Callable[[int], Any]

    def planted(self) -> Iterator[Callable[[pytest.MonkeyPatch], None]]:
        """Every bug, in the order in which they are written down."""
        for name, bug in vars(self.bugs).items():
            mine = isinstance(bug, types.FunctionType) and bug.__module__ == self.bugs.__name__
            if mine and name[0] != "_" and bug is not mutations.without_pauses:
                yield bug


SUITES: Final = (
    Suite(mutations, test_mutations, test_mutations.FOUND_BY, fixed_set, generate),
    Suite(regions_mutations, test_regions, test_regions.FOUND_BY, test_regions, generate_regions),
)


def violated(place: tuple[int, str, int]) -> tuple[int, str, set[str]]:
    """Suite, bug, seed: the seed, its history's name, and what it shows with the bug; nothing if it is red without."""
    number, name, seed = place
    suite = SUITES[number]
    history = suite.generate(seed)
    bug = getattr(suite.bugs, name)
    with pytest.MonkeyPatch.context() as patch:
        if bug not in mutations.OF_PAUSES:
            mutations.without_pauses(patch)
        with pytest.MonkeyPatch.context() as planted:
            bug(planted)
            shown = {violation.invariant for violation in run(history).violations}
        return seed, history.name, shown if shown and run(history).ok else set()


def look(pool: Any, number: int, name: str, seeds: Iterable[int], before: str) -> tuple[int, str, str] | None:
    """The first seed that shows the bug, its history's name, and an invariant: the one of before, if it can be."""
    places = ((number, name, seed) for seed in seeds)
    while some := list(islice(places, 2 * PROCESSES)):
        for seed, history, shown in pool.map(violated, some, chunksize=1):
            if shown:
                return seed, history, before if before in shown else min(shown)
    return None


def write(suite: Suite, bug: Callable[..., None], seed: int, history: str, invariant: str) -> None:
    """Into the table of the tests, the fixed set and the docs."""
    name, tests = bug.__name__, Path(suite.tests.__file__ or "")
    entry = f'    mutations.{name}: ("{history}", "{invariant}"),'
    row = f"| `{name}` | {(bug.__doc__ or '').strip().splitlines()[0].rstrip('.')} | `{history}` | `{invariant}` |"
    text, page = tests.read_text(), RELIABILITY.read_text()
    entries = list(ENTRY.finditer(text))
    known = [found for found in entries if found[1] == name]
    rows = list(re.finditer(rf"^\| `{(known or entries)[-1][1]}` \|.*$", page, re.MULTILINE))[-1]
    tests.write_text(_put(text, known[0] if known else entries[-1], entry, instead=bool(known)))
    RELIABILITY.write_text(_put(page, rows, row, instead=bool(known)))
    if seed not in suite.set_in.SEEDS:
        _add_to_the_set(suite, seed)


def _put(text: str, place: re.Match[str], line: str, *, instead: bool) -> str:
    kept = text[: place.start()] if instead else text[: place.end()] + "\n"
    return kept + line + text[place.end() :]


def _add_to_the_set(suite: Suite, seed: int) -> None:
    before = len(suite.set_in.SEEDS)
    suite.set_in.SEEDS = (*suite.set_in.SEEDS, seed)
    path = Path(suite.set_in.__file__ or "")
    path.write_text(re.sub(r"^(SEEDS: Final = \(.*)\)$", rf"\1, {seed})", path.read_text(), flags=re.MULTILINE))
    told = f"a fixed set of {before} histories", f"a fixed set of {before + 1} histories"
    RELIABILITY.write_text(RELIABILITY.read_text().replace(*told))


def astray(
    pool: Any, number: int, names: dict[str, int], only: Sequence[str]
) -> list[Callable[[pytest.MonkeyPatch], None]]:
    """The bugs of a suite that have no history in the fixed set, or one that no longer does."""
    suite = SUITES[number]
    bugs = [bug for bug in suite.planted() if not only or bug.__name__ in only]
    named = [bug for bug in bugs if bug in suite.found_by and suite.found_by[bug][0] in names]
    places = [(number, bug.__name__, names[suite.found_by[bug][0]]) for bug in named]
    results = zip(named, pool.map(violated, places, chunksize=1), strict=True)
    found = {bug for bug, (_, _, shown) in results if suite.found_by[bug][1] in shown}
    return [bug for bug in bugs if bug not in found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.rename", description=__doc__)
    parser.add_argument("bug", nargs="*", help="those to look at (default: all)")
    parser.add_argument("--beyond", type=int, default=3_000, metavar="N", help="seeds to try beyond the fixed set")
    arguments, lost = parser.parse_args(), 0
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        for number, suite in enumerate(SUITES):
            histories = sorted(map(suite.generate, suite.set_in.SEEDS), key=lambda history: len(history.asks))
            names = {history.name: history.seed for history in histories}
            for bug in astray(pool, number, names, arguments.bug):
                before = suite.found_by.get(bug, ("", ""))
                further = (seed for seed in range(len(names) + arguments.beyond) if seed not in suite.set_in.SEEDS)
                found = look(pool, number, bug.__name__, chain(names.values(), further), before[1])
                print(f"{bug.__name__}: {before} is now {found and found[1:]}", flush=True)  # noqa: T201 - it is a command
                if found is None:
                    lost += 1
                else:
                    write(suite, bug, *found)
    return min(lost, 1)


if __name__ == "__main__":
    raise SystemExit(main())
