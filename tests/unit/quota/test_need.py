"""Need: what a region is offered, what it tells of it."""

import pytest
from headgate.quota.need import HIGHEST_NEED, is_published, is_told_anew, need_of
from headgate.quota.offered import Offered


@pytest.mark.parametrize(
    ("window_ms", "at_ms", "per_window"),
    [
        (10_000, 109_999, 300),
        (10_000, 112_500, 225),  # a quarter of the span has passed: three quarters of it count
        (10_000, 119_999, 0),
        (10_000, 125_000, 0),
        (1_000, 109_999, 30),  # of the last 10 s, for one second
        (1_000, 112_500, 22),
        (60_000, 119_999, 300),
        (60_000, 150_000, 150),
    ],
)
def test_offered_cost_by_the_measure_of_a_sliding_window(window_ms: int, at_ms: int, per_window: int) -> None:
    offered = Offered(window_ms)
    offered.add(100, 100_000)
    offered.add(200, 101_000)
    assert offered.per_window(at_ms) == per_window


def test_one_second_of_a_short_window_is_not_taken_for_all() -> None:
    offered = Offered(1_000)
    for second in range(10):
        offered.add(1_000 if second == 9 else 0, 100_000 + second * 1_000)
    assert offered.per_window(109_999) == 100


@pytest.mark.parametrize(
    ("offered", "limit", "need"), [(0, 10, 0), (8, 10, 1_000_000), (80, 100, 1_000_000), (1, 3, 416_666)]
)
def test_need_is_a_quarter_more_than_what_is_offered(offered: int, limit: int, need: int) -> None:
    assert need_of(offered, limit) == need
    assert need_of(1 << 60, 1) == HIGHEST_NEED


@pytest.mark.parametrize(
    ("need", "used", "before", "published"),
    [
        (49, 0, False, False),
        (50, 0, False, True),
        (0, 50, False, True),
        (25, 0, True, True),
        (24, 0, True, False),
        (0, 25, True, True),
    ],
)
def test_a_need_is_published_from_half_of_the_slice_until_under_a_quarter(
    need: int, used: int, before: bool, published: bool
) -> None:
    assert is_published(need, used, 100, before=before) is published


@pytest.mark.parametrize(
    ("figure", "told", "anew"),
    [
        (0, 0, False),
        (5, 0, True),
        (0, 5, True),
        (109_999, 100_000, False),
        (110_000, 100_000, True),
        (90_000, 100_000, True),
    ],
)
def test_a_figure_is_told_again_when_it_differs_by_a_hundredth_of_the_limit(figure: int, told: int, anew: bool) -> None:
    assert is_told_anew(figure, told) is anew
