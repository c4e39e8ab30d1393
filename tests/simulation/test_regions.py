"""Several regions on bad days: nothing is violated, and each planted bug is found by a named history."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from headgate.simulation.regions.generate import generate
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.report import again
from headgate.simulation.runner import run

from tests.simulation import regions_mutations as mutations
from tests.simulation.mutations import without_pauses

ROOT = Path(__file__).parents[2]
SEEDS: Final = (*range(12), 15, 16, 18, 21, 22, 24, 27, 29, 33, 40, 54, 64, 72, 119, 370, 669)
"""The fixed set: every change must pass it. Beyond the first: those that find a planted bug."""

FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, str]] = {
    mutations.republish_what_is_foreign: ("quiet-0", "owner"),
    mutations.add_what_is_foreign: ("quiet-0", "owner"),
    mutations.believe_the_latest: ("exchangers-2", "agree"),
    mutations.add_what_comes_back: ("world-5", "doubled"),
    mutations.what_comes_back_is_foreign: ("world-5", "owner"),
    mutations.what_comes_back_is_kept: ("world-119", "agree"),
    mutations.drop_what_is_ahead: ("skewed-64", "agree"),
    mutations.acknowledge_before_it_is_sent: ("wiped-27", "agree"),
    mutations.acknowledge_what_was_not_imported: ("skewed-370", "agree"),
    mutations.acknowledge_any_memory: ("wiped-669", "agree"),
    mutations.a_change_keeps_its_number: ("quiet-0", "agree"),
    mutations.never_ask_for_a_fill: ("wiped-15", "floor"),
    mutations.filled_at_once: ("wiped-15", "floor"),
    mutations.the_current_cell_alone: ("links-1", "agree"),
    mutations.only_above_the_threshold: ("links-1", "agree"),
    mutations.names_stay_for_ever: ("quiet-0", "outbox"),
    mutations.the_threshold_of_one_region: ("quiet-54", "budget"),
    mutations.foreign_counts_do_not_bind: ("quiet-6", "budget"),
    mutations.forget_other_regions_at_a_rollover: ("quiet-0", "sums"),
    mutations.hear_of_every_key: ("hostile-24", "owner"),
    mutations.resets_go_everywhere: ("hostile-24", "unmoved"),
    mutations.take_back_what_was_not_asked_for: ("hostile-24", "doubled"),
    mutations.mark_what_a_peer_says: ("hostile-24", "doubled"),
    mutations.those_who_left_are_heard: ("joining-72", "left"),
    mutations.those_who_come_know_the_past: ("joining-22", "agree"),
    mutations.anybody_keeps_the_slices: ("scopes-8", "keeper"),
    mutations.acknowledged_and_dropped: ("scopes-3", "keeper"),
    mutations.cell_is_whole: ("scopes-18", "cell"),
    mutations.always_filled: ("scopes-33", "shares"),
    mutations.exchangers_go_by_their_settings: ("moving-16", "lists"),
    mutations.import_without_a_fence: ("moving-16", "lists"),
    mutations.import_where_it_belongs: ("moving-16", "lists"),
}
"""Each with a history of the fixed set and the invariant that it shows to be violated."""


def named(name: str) -> RegionsHistory:
    history = generate(int(name.rsplit("-", 1)[1]))
    assert history.name == name
    assert history.seed in SEEDS
    return history


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_violated(seed: int) -> None:
    outcome = run(generate(seed))
    assert outcome.ok, "\n".join([again(outcome.history), *(item.describe() for item in outcome.violations)])
    assert outcome.requests + outcome.unserved >= 600


def test_the_same_seed_is_the_same_run() -> None:
    assert run(generate(11)).digest == run(generate(11)).digest


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize("mutation", FOUND_BY, ids=lambda mutation: mutation.__name__)
def test_a_planted_bug_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, invariant = FOUND_BY[mutation]
    without_pauses(monkeypatch)
    mutation(monkeypatch)
    assert invariant in {violation.invariant for violation in run(named(name)).violations}


def test_every_planted_bug_is_described() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| `([a-z]+-\d+)` \| `(\w+)` \|$", page, re.MULTILINE)
    told = {name: (history, invariant) for name, history, invariant in rows}
    expected = {mutation.__name__: found for mutation, found in FOUND_BY.items()}
    assert expected.items() <= told.items()
