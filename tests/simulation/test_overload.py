"""A key far over its limit: nodes take turns, nearly nobody waits, and what a perfect limiter admits is admitted."""

import pytest
from headgate.limiter.limit import Algorithm

from benchmarks.overload import MIXED, Case, play

SLIDING, FIXED, GCRA = Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW, Algorithm.GCRA


@pytest.mark.parametrize("algorithm", [SLIDING, GCRA])
def test_on_four_nodes_nearly_nobody_waits_and_the_shard_is_hardly_asked(algorithm: Algorithm) -> None:
    result = play(Case(algorithm=algorithm, windows=2))
    assert result.waiting_share <= 0.03
    assert result.calls_per_s <= 15
    assert 0.99 <= result.share <= 1.01
    assert result.over <= result.case.limit.precision


@pytest.mark.parametrize(
    "case",
    [
        Case(2_000, algorithm=SLIDING, demand="moving"),
        Case(2_000, algorithm=GCRA, demand="moving"),
        Case(2_000, algorithm=FIXED, demand="skewed"),
        Case(2_000, algorithm=SLIDING, demand="skewed"),
        Case(2_000, algorithm=GCRA, demand="skewed"),
        Case(2_000, algorithm=SLIDING, demand="one node"),
        Case(10_000, algorithm=SLIDING, costs=MIXED, windows=2),
        Case(10_000, algorithm=GCRA, costs=(5,), windows=2),
        Case(2_000, algorithm=SLIDING, nodes=1, windows=3),
        Case(1_000, algorithm=SLIDING, nodes=64, windows=2),
        Case(1_000, algorithm=GCRA, nodes=64, windows=2),
        Case(10, algorithm=SLIDING, windows=20),
        Case(100, algorithm=FIXED, windows=10),
        Case(1_000, algorithm=SLIDING, load=1.1),
    ],
    ids=lambda case: (
        f"{case.algorithm.value}-{case.requests}-{case.nodes}-{case.demand.replace(' ', '-')}-{max(case.costs)}"
    ),
)
def test_as_much_is_admitted_as_by_a_perfect_limiter_and_never_more_than_p_above(case: Case) -> None:
    result = play(case)
    assert result.is_right, result.row()
