"""The histories find bugs: each one planted in the quota engine is found by a named history, green without it."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.unit.quota import planted_bugs
from tests.unit.quota.histories import named
from tests.unit.quota.world import World

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "quota.md"

FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, str]] = {
    planted_bugs.recomputed_by_everyone: ("shift-0", "usage"),
    planted_bugs.giving_slice_less_usage: ("shift-0", "settling"),
    planted_bugs.giving_before_the_nodes_know: ("shift60-0", "shares"),
    planted_bugs.giving_what_is_in_use: ("unsaved-0", "usage"),
    planted_bugs.no_filled_mark: ("forgotten-0", "usage"),
    planted_bugs.own_row_is_not_told: ("losses-33", "shares"),
    planted_bugs.unheard_is_lost: ("pair-0", "usage"),
    planted_bugs.heard_is_connected: ("mute-0", "usage"),
    planted_bugs.written_by_the_receiver: ("pair-0", "usage"),
    planted_bugs.no_overlap_of_epochs: ("turn-0", "shares"),
    planted_bugs.nothing_is_carried_over: ("turn-0", "settling"),
    planted_bugs.gifts_of_the_old_epoch_alone: ("turn-0", "settling"),
    planted_bugs.back_at_once: ("return-0", "usage"),
    planted_bugs.nothing_left_to_the_others: ("return60-0", "usage"),
    planted_bugs.lost_uses_nothing: ("return60-0", "usage"),
    planted_bugs.statements_never_age: ("stale-0", "usage"),
    planted_bugs.no_deadline: ("lost-0", "usage"),
    planted_bugs.sent_before_it_is_saved: ("unsaved-0", "shares"),
    planted_bugs.cut_off_and_still_sending: ("pending-0", "shares"),
    planted_bugs.a_new_set_at_once: ("removed-0", "usage"),
    planted_bugs.no_floor: ("spread-0", "floor"),
}
"""Each with a history and the invariant that it shows to be violated."""


@cache
def is_green(name: str) -> bool:
    return not World(named(name)).run().violations


@pytest.mark.parametrize("bug", FOUND_BY, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    name, invariant = FOUND_BY[bug]
    assert is_green(name)
    bug(monkeypatch)
    assert invariant in {violation.invariant for violation in World(named(name)).run().violations}


def test_every_planted_bug_has_its_history_and_is_documented() -> None:
    assert set(FOUND_BY) == set(planted_bugs.ALL)
    documented = PAGE.read_text()
    for bug, (history, invariant) in FOUND_BY.items():
        assert re.search(rf"^\| `{bug.__name__}` \|.*\| `{history}` \| `{invariant}` \|$", documented, re.MULTILINE)
