"""Rollouts on time that a test moves: when they go on, whom they wait for, and when they are taken back."""

from dataclasses import replace
from typing import Any

import pytest
from headgate.plane.entry import FollowerRefusal, FollowerState, Position, RolloutCounts
from headgate.plane.marks import RolloutRecord
from headgate.plane.rollouts import Move, RolloutEnd, RolloutTallies, Standing, next_move, standing, waits_for

STAGES = (10_000, 100_000, 500_000)
BEGUN = RolloutRecord("edge", "a.7", 10_000, STAGES, 60_000, 1_000, 7, 10_000, "ann", "ticket 1", 1_000, 7)
DUE_MS = 61_000
NOTHING = RolloutCounts("edge", "a.7")


def node(index: int = 7, name: str = "n1", refused: str = "", **counts: Any) -> FollowerState:
    refusals = (FollowerRefusal(refused, "an unknown field"),) if refused else ()
    reported = (RolloutCounts("edge", "a.7", **counts),) if counts else ()
    return FollowerState(name, "eu", "1", False, Position("a", index, "v"), 0, refusals, reported)


def counted(**counts: int) -> RolloutCounts:
    return RolloutCounts("edge", "a.7", **counts)


# Stages


def test_stages_follow_each_other_and_then_comes_everybody() -> None:
    shares, rollout, now_ms = [BEGUN.share], BEGUN, 1_000
    while True:
        assert next_move(rollout, NOTHING, [node()], now_ms + 59_999) is None
        now_ms += 60_000
        move = next_move(rollout, NOTHING, [node()], now_ms)
        assert move is not None
        if move.outcome is not None:
            break
        shares.append(move.share)
        rollout = replace(rollout, share=move.share, stage_began_ms=now_ms)
    assert (shares, move.outcome, now_ms) == ([*STAGES], RolloutEnd.DONE, 181_000)


@pytest.mark.parametrize(
    ("followers", "waited_for"),
    [
        pytest.param([], "", id="nobody follows"),
        pytest.param([node(7), node(9, "n2")], "", id="all have the stage in force"),
        pytest.param([node(6), node(7, "n2")], "n1 (at entry 6)", id="one is behind"),
        pytest.param([node(refused="edge")], "n1 (refuses it: an unknown field)", id="one can't take the domain"),
        pytest.param([node(refused="api")], "", id="one can't take another domain"),
        pytest.param(
            [node(1, f"n{number}") for number in range(7)],
            "n0 (at entry 1), n1 (at entry 1), n2 (at entry 1), n3 (at entry 1), n4 (at entry 1) and 2 others",
            id="many are behind",
        ),
    ],
)
def test_it_waits_for_followers(followers: list[FollowerState], waited_for: str) -> None:
    assert waits_for(BEGUN, followers, DUE_MS) == waited_for
    assert (next_move(BEGUN, NOTHING, followers, DUE_MS) is None) == bool(waited_for)
    assert waits_for(BEGUN, followers, DUE_MS - 1) == "", "its time has not come"
    assert standing(BEGUN, followers, DUE_MS) is (Standing.WAITING if waited_for else Standing.RUNNING)


def test_one_that_is_halted_stays_where_it_is_and_its_gate_stays() -> None:
    halted = replace(BEGUN, halted=True)
    assert next_move(halted, NOTHING, [node()], 10**9) is None
    assert standing(halted, [node(1)], 10**9) is Standing.HALTED
    move = next_move(halted, counted(staged_decided=1_000, staged_denied=500), [node()], 1_001)
    assert move is not None
    assert move.outcome is RolloutEnd.ROLLED_BACK


# The gate


@pytest.mark.parametrize(
    ("counts", "passed_ms", "closed"),
    [
        pytest.param({"staged_decided": 999, "staged_denied": 999}, 29_999, False, id="too few, too early"),
        pytest.param({"staged_decided": 1_000, "staged_denied": 11}, 0, True, id="enough, above"),
        pytest.param({"staged_decided": 1_000, "staged_denied": 10}, 0, False, id="enough, as was said"),
        pytest.param({"staged_decided": 10, "staged_denied": 10}, 30_000, True, id="few, for long"),
        pytest.param({"staged_decided": 9, "staged_denied": 9}, 30_000, False, id="too few, for long"),
        pytest.param(
            {"staged_decided": 1_000, "staged_denied": 100, "base_decided": 9_000, "base_denied": 900},
            0,
            False,
            id="as many as before",
        ),
        pytest.param(
            {"staged_decided": 1_000, "staged_denied": 111, "base_decided": 9_000, "base_denied": 900},
            0,
            True,
            id="more than before",
        ),
    ],
)
def test_the_gate(counts: dict[str, int], passed_ms: int, closed: bool) -> None:
    move = next_move(BEGUN, counted(**counts), [node()], BEGUN.stage_began_ms + passed_ms)
    assert (move is not None and move.outcome is RolloutEnd.ROLLED_BACK) == closed


def test_the_reason_has_the_figures() -> None:
    counts = counted(staged_decided=2_000, staged_denied=500, base_decided=8_000, base_denied=80)
    assert next_move(BEGUN, counts, [], 1_000) == Move(
        BEGUN,
        "denies 24% more than the rules in force, and 1% was expected: denied 500 of 2000 by the staged rules, "
        "80 of 8000 by those in force",
        outcome=RolloutEnd.ROLLED_BACK,
    )


# Counts


@pytest.mark.parametrize(
    ("reports", "total"),
    [
        pytest.param([{"staged_decided": 5}, {"staged_decided": 7}], {"staged_decided": 7}, id="they grow"),
        pytest.param(
            [{"staged_decided": 5, "base_denied": 3}, {"staged_decided": 2, "base_denied": 3}],
            {"staged_decided": 7, "base_denied": 6},
            id="the process began anew",
        ),
        pytest.param([{"staged_decided": 5}] * 3, {"staged_decided": 5}, id="repeated"),
    ],
)
def test_counts_of_one_follower(reports: list[dict[str, Any]], total: dict[str, Any]) -> None:
    tallies = RolloutTallies()
    for report in reports:
        tallies.report([node(**report)])
    assert tallies.of("edge", "a.7") == counted(**total)


def test_counts_of_all_followers_are_added_and_of_those_that_left_kept() -> None:
    tallies = RolloutTallies()
    tallies.report([node(name="n1", staged_decided=5), node(name="n2", staged_denied=2)])
    tallies.report([node(name="n2", staged_denied=3)])
    tallies.report([node(name="n1", staged_decided=6)])
    assert tallies.of("edge", "a.7") == counted(staged_decided=6, staged_denied=3)
    tallies.keep([BEGUN])
    assert tallies.of("edge", "a.7").staged_decided == 6
    tallies.keep([])
    assert tallies.of("edge", "a.7") == NOTHING
