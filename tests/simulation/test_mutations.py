"""The simulation finds bugs: each one planted is found by a history of the fixed set, green without it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from headgate.simulation.report import again
from headgate.simulation.runner import run
from headgate.simulation.shrinking import shrink

from tests.simulation import mutations
from tests.simulation.fixed_set import SEEDS, named

ROOT = Path(__file__).parents[2]

FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, str]] = {
    mutations.max_merge: ("crowded-7", "policy"),
    mutations.one_component_per_node: ("nodes-3", "denial"),
    mutations.one_component_per_run: ("crowded-7", "credit"),
    mutations.all_room_to_everybody: ("calm-0", "set_aside"),
    mutations.charge_beside_nothing: ("network-1", "set_aside"),
    mutations.allowances_per_cell: ("calm-0", "cover"),
    mutations.count_the_offer: ("calm-0", "cover"),
    mutations.report_before_giving_up: ("calm-0", "cover"),
    mutations.allowances_end_before_reports: ("calm-0", "cover"),
    mutations.take_what_was_wanted: ("loss-2", "cover"),
    mutations.renew_overtaken: ("calm-10", "cover"),
    mutations.own_rest_is_free: ("nodes-163", "budget"),
    mutations.credit_in_buckets: ("network-131", "budget"),
    mutations.add_instead_of_set: ("network-1", "credit"),
    mutations.drop_on_failure: ("crowded-7", "left_over"),
    mutations.drop_on_full_buffer: ("calm-0", "diverged"),
    mutations.charge_on_deny: ("calm-0", "charged"),
    mutations.forget_to_refill: ("loss-2", "lost"),
    mutations.doubt_what_was_not_answered: ("nodes-3", "refill"),
    mutations.names_stay_as_they_are: ("loss-2", "lost"),
    mutations.breaker_not_rearmed: ("nodes-3", "breaker"),
    mutations.rollback_race: ("network-1", "components"),
    mutations.spend_offered_credit: ("queue-539", "cover"),
    mutations.own_clock: ("nodes-13", "cover"),
    mutations.own_clock_for_ever: ("calm-80", "cover"),
    mutations.charge_overtaken_calls: ("network-1", "cover"),
    mutations.count_the_lost_twice: ("loss-2", "counted_twice"),
    mutations.forget_the_dead: ("loss-12", "lost"),
    mutations.believe_in_lost_credit: ("loss-22", "belief_above_truth"),
    mutations.no_deadline: ("network-1", "deadline"),
    mutations.closed_admits: ("loss-2", "policy"),
    mutations.alone_without_the_origin: ("crowded-7", "policy"),
    mutations.nothing_is_reserved: ("calm-70", "cover"),
    mutations.the_cell_of_now: ("queue-3479", "budget"),
    mutations.sent_for_another_window: ("loss-222", "diverged"),
    mutations.trust_what_was_told: ("storm-568", "diverged"),
    mutations.time_never_goes_back: ("steps-75", "left_over"),
    mutations.records_from_the_future: ("steps-75", "liveness"),
    mutations.buckets_from_the_future: ("steps-115", "liveness"),
    mutations.the_same_component_again: ("steps-15", "beliefs"),
    mutations.answers_from_before_the_step: ("steps-115", "diverged"),
    mutations.unreadable_is_a_denial: ("steps-55", "denial"),
    mutations.late_if_it_fits: ("costs-23", "charged"),
    mutations.late_costs_wait: ("costs-53", "charged"),
    mutations.peek_for_nothing: ("costs-233", "look"),
    mutations.looks_by_old_views: ("costs-23", "view"),
    mutations.reset_by_deleting: ("resets-26", "components"),
    mutations.keep_what_was_not_reported: ("resets-116", "counted_twice"),
    mutations.pauses_of_ten: ("steps-195", "denial"),
    mutations.try_again_and_keep: ("network-131", "charged"),
    mutations.subtract_by_own_view: ("refunds-114", "refunds"),
    mutations.refunds_without_a_cap: ("refunds-114", "refunds"),
    mutations.refunds_per_call: ("refunds-24", "refunds"),
    mutations.one_net_counter: ("refunds-114", "beliefs"),
    mutations.refunds_restored_by_a_floor: ("refunds-114", "refunds"),
    mutations.denials_outlive_refunds: ("refunds-24", "denial"),
    mutations.open_on_every_node: ("outage-184", "policy"),
}
"""Each with a history of the fixed set and the invariant that it shows to be violated."""


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize("mutation", FOUND_BY, ids=lambda mutation: mutation.__name__)
def test_a_planted_bug_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, invariant = FOUND_BY[mutation]
    history = named(name)
    if mutation not in mutations.OF_PAUSES:
        mutations.without_pauses(monkeypatch)
    assert run(history).ok
    mutation(monkeypatch)
    assert invariant in {violation.invariant for violation in run(history).violations}


def test_every_mutation_has_its_history_and_is_documented() -> None:
    assert set(FOUND_BY) == set(mutations.ALL)
    documented = (ROOT / "docs" / "reliability.md").read_text()
    for mutation, (history, invariant) in FOUND_BY.items():
        assert re.search(
            rf"^\| `{mutation.__name__}` \|.*\| `{history}` \| `{invariant}` \|$", documented, re.MULTILINE
        )
    assert f"a fixed set of {len(SEEDS)} histories" in documented
    for mutation in mutations.OF_THEIR_OWN:
        found = re.search(rf"^\| `{mutation.__name__}` \|.*\| `(\w+\.py)` \|$", documented, re.MULTILINE)
        assert found is not None
        assert f"mutations.{mutation.__name__}" in (Path(__file__).parent / found[1]).read_text()


@pytest.mark.pure("it plants a bug in a compiled class")
def test_a_history_that_fails_is_made_smaller_and_can_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.without_pauses(monkeypatch)
    mutations.forget_to_refill(monkeypatch)
    outcome = run(named("loss-2"))
    smallest = shrink(outcome, 40)
    history = smallest.history
    assert not smallest.ok
    assert len(history.faults) < len(outcome.history.faults)
    assert len(history.asks) < len(outcome.history.asks)
    assert run(named("loss-2").cut(faults=history.numbers, requests=len(history.asks))) == smallest
    assert again(history).startswith("--seed 2 --faults ")
