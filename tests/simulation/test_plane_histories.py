"""Planes on bad days: nothing is violated, and each planted bug is found by a named day."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from headgate.simulation.plane.history import generate
from headgate.simulation.plane.runner import run_plane

from tests.simulation import plane_mutations as mutations

SEEDS: Final = (*range(10), 14, 19, 24, 43)
"""The fixed set: every change must pass it."""

FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], tuple[int, str]] = {
    mutations.apply_without_comparing_the_version: (0, "published"),
    mutations.entries_follow_by_index: (0, "published"),
    mutations.a_beat_is_freshness: (0, "fresh"),
    mutations.a_lost_entry_is_lost: (0, "heal"),
    mutations.a_relay_is_never_old: (1, "fresh"),
    mutations.go_on_from_the_index: (24, "heal"),
    mutations.take_an_older_snapshot: (43, "back"),
    mutations.begin_with_the_history: (43, "begins"),
    mutations.stage_by_node: (0, "staged"),
    mutations.choose_by_the_staged_key_first: (1, "staged"),
    mutations.leave_the_order_of_staged_wildcards: (3, "staged"),
    mutations.change_the_rules_in_force_alone: (0, "staged"),
}
"""Each with a day of the fixed set and the invariant that it shows to be violated."""


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_violated(seed: int) -> None:
    outcome = run_plane(generate(seed))
    assert outcome.ok, "\n".join(item.describe() for item in outcome.violations)
    assert outcome.entries >= 20
    assert outcome.moves >= 80


def test_the_same_seed_is_the_same_day() -> None:
    one, two = (run_plane(generate(4)) for _ in range(2))
    assert (one.entries, one.moves, one.digest) == (two.entries, two.moves, two.digest)


@pytest.mark.parametrize("mutation", FOUND_BY, ids=lambda mutation: mutation.__name__)
def test_a_planted_bug_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, invariant = FOUND_BY[mutation]
    assert seed in SEEDS
    mutation(monkeypatch)
    assert invariant in {item.invariant for item in run_plane(generate(seed)).violations}


def test_the_page_lists_every_planted_bug() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    _, section = page.split("## Rule planes\n")
    listed = re.findall(r"^\| `(\w+)` \| .* \| (\d+) \| `(\w+)` \|$", section, re.MULTILINE)
    assert listed == [(bug.__name__, str(seed), invariant) for bug, (seed, invariant) in FOUND_BY.items()]


@pytest.mark.long
def test_many_days() -> None:
    for seed in range(100, 400):
        outcome = run_plane(generate(seed))
        assert outcome.ok, (seed, [item.describe() for item in outcome.violations])
