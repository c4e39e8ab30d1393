"""Shares of a limit: even ones, floors, and costs."""

import pytest
from headgate.limiter.shares import can_be_shared, cost_within, even_share, floor_share, share_of


@pytest.mark.parametrize(
    ("regions", "even", "floor"),
    [
        (1, 1_000_000, 100_000),
        (2, 500_000, 100_000),
        (3, 333_333, 100_000),
        (5, 200_000, 100_000),
        (6, 166_666, 83_333),
        (10, 100_000, 50_000),
    ],
)
def test_what_a_region_begins_with_and_what_it_keeps(regions: int, even: int, floor: int) -> None:
    """10%, or 50% ÷ regions when that is less."""
    assert (even_share(regions), floor_share(regions)) == (even, floor)


@pytest.mark.parametrize(
    ("limit", "share", "cost"), [(1_000, 333_333, 333), (3, 333_333, 0), (3, 333_334, 1), (7, 1_000_000, 7)]
)
def test_a_share_as_a_cost_is_rounded_down(limit: int, share: int, cost: int) -> None:
    assert cost_within(limit, share) == cost


@pytest.mark.parametrize(
    ("cost", "limit", "share"), [(0, 10, 0), (1, 3, 333_334), (10, 10, 1_000_000), (11, 10, 1_100_000)]
)
def test_a_cost_as_a_share_is_rounded_up(cost: int, limit: int, share: int) -> None:
    assert share_of(cost, limit) == share


@pytest.mark.parametrize(
    ("limit", "regions", "enough"), [(10, 3, True), (9, 3, False), (20, 10, True), (19, 10, False)]
)
def test_a_quota_whose_floor_admits_nothing_can_not_be_shared(limit: int, regions: int, enough: bool) -> None:
    assert can_be_shared(limit, regions) is enough
