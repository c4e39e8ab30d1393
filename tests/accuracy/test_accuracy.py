"""The short form of the accuracy table: real nodes, real shards, three times the load."""

from collections.abc import Iterator

import pytest

from tests.accuracy.measure import Case, measure, region
from tests.support.headgate import Headgate
from tests.support.waiting import undisturbed

CASES = [Case(10, 2), Case(1000, 2), Case(100, 2, exact=True), Case(1000, 2, load=0.9)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Headgate]]:
    with region(CASES) as started:
        yield started


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_limit_holds_over_all_nodes(case: Case, nodes: list[Headgate]) -> None:
    def attempt(number: int) -> int:
        result = measure(case, nodes, windows=3, value=str(number))
        assert result.failed == 0
        if not result.by_policy:
            assert result.worst <= result.bound, result.row()
            assert result.enough, result.row()
        return result.by_policy

    undisturbed(attempt)
