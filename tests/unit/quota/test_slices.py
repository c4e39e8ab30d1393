"""Slices: exact tables of what regions want, enforce, give, take and leave."""

import random

import pytest
from headgate.limiter.shares import WHOLE, floor_share
from headgate.quota.slices import (
    enforced_share,
    gifts,
    possible_slice,
    share_maybe_taken,
    still_in_use,
    taken_share,
    wanted_slices,
)


@pytest.mark.parametrize(
    ("needs", "wanted"),
    [
        pytest.param([0, 0, 0], [333_333] * 3, id="nobody needs anything"),
        pytest.param(
            [400_000, 100_000, 0], [566_666, 266_666, 166_666], id="all fit: need and an even part of the rest"
        ),
        pytest.param([900_000, 50_000, 0], [800_000, 100_000, 100_000], id="all fit, but not above the floors"),
        pytest.param([3_000_000, 562_500, 187_500], [757_894, 142_105, 100_000], id="80/15/5 at three times the limit"),
        pytest.param([1_000_000, 187_500, 62_500], [757_894, 142_105, 100_000], id="80/15/5 at the limit"),
        pytest.param([750_000, 2_250_000, 750_000], [200_000, 600_000, 200_000], id="in proportion"),
        pytest.param([5_000_000, 0, 0], [800_000, 100_000, 100_000], id="one needs everything"),
        pytest.param([9_000_000] + [0] * 9, [550_000] + [50_000] * 9, id="ten regions have smaller floors"),
        pytest.param([2_000_000, 1_000_000], [666_666, 333_333], id="two"),
        pytest.param([7_000_000], [1_000_000], id="one"),
    ],
)
def test_wanted_slices(needs: list[int], wanted: list[int]) -> None:
    assert wanted_slices(tuple(needs)) == tuple(wanted)
    assert sum(wanted) <= 1_000_000


@pytest.mark.parametrize(
    ("slices", "possible"),
    [
        ([333_333] * 3, 333_333),
        ([800_000, 100_000, 100_000], 800_000),
        ([1 << 40, 333_333 - (1 << 40), 333_333], 566_667),  # a gift of what nobody has
        ([1 << 40, 1 << 40, -(1 << 41)], -(1 << 40) + 900_000),  # two of them
        ([500_000, -50_000, 549_999], 350_001),  # more of its gifts are known here than of those to it
        ([999_999], 999_999),
    ],
)
def test_a_slice_is_no_more_than_others_leave_who_have_theirs_and_their_floors(
    slices: list[int], possible: int
) -> None:
    assert possible_slice(slices, 0) == possible


def test_whatever_is_said_of_gifts_all_who_heard_the_same_have_one_limit_together() -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        regions = chance.randint(2, 10)
        slices, floor = [WHOLE // regions] * regions, floor_share(regions)
        for _ in range(chance.randint(0, 8)):
            giver, receiver = chance.sample(range(regions), 2)
            share = chance.choice([1, 100_000, 500_000, WHOLE, 1 << 50])
            slices[giver] -= share
            slices[receiver] += share
        enforced = [max(floor, possible_slice(slices, region)) for region in range(regions)]
        assert sum(enforced) <= WHOLE, slices


@pytest.mark.parametrize(
    ("own", "wanted", "lacking", "enforced"),
    [
        (800_000, 200_000, 600_000, 200_000),
        (800_000, 200_000, 100_000, 700_000),  # others lack less than it has too much
        (800_000, 200_000, 19_999, 800_000),  # nothing moves for so little
        (100_000, 200_000, 600_000, 100_000),
    ],
)
def test_a_region_above_its_wanted_slice_enforces_it_at_once(
    own: int, wanted: int, lacking: int, enforced: int
) -> None:
    assert enforced_share(own, wanted, lacking) == enforced


@pytest.mark.parametrize(
    ("own", "kept", "lacks", "given"),
    [
        (800_000, 790_000, [0, 300_000, 100_000], [(1, 7_500), (2, 2_500)]),
        (800_000, 800_000, [0, 300_000, 100_000], []),
        (800_000, 900_000, [0, 300_000, 100_000], []),  # it uses what it took from a lost region
        (800_000, 200_000, [0, 10_000, 9_999], []),
        (800_000, 200_000, [0, 10_000, 10_000], [(1, 10_000), (2, 10_000)]),
    ],
)
def test_what_usage_frees_is_given_to_those_who_lack(
    own: int, kept: int, lacks: list[int], given: list[tuple[int, int]]
) -> None:
    assert gifts(own, kept, lacks) == given


@pytest.mark.parametrize(
    ("ended_ms", "in_use"),
    [(-5, 1_000), (0, 1_000), (10_000, 1_000), (12_500, 750), (19_999, 1), (20_000, 0), (90_000, 0)],
)
def test_what_was_used_counts_for_a_window_and_decays_over_the_next(ended_ms: int, in_use: int) -> None:
    assert still_in_use(1_000, ended_ms, 10_000) == in_use


@pytest.mark.parametrize(
    ("lost_slice", "silent_ms", "regions", "taken"),
    [
        (600_000, 30_000, 3, 0),  # it went on for 20 s, and its last cell may end 10 s later
        (600_000, 35_000, 3, 125_000),
        (600_000, 40_000, 3, 250_000),
        (600_000, 90_000, 3, 250_000),
        (600_000, 90_000, 5, 125_000),  # the parts of all others together are what it had above its floor
        (100_000, 90_000, 3, 0),
        (-50_000, 90_000, 3, 0),  # more of its gifts are known here than of those to it
    ],
)
def test_what_each_takes_of_a_lost_region(lost_slice: int, silent_ms: int, regions: int, taken: int) -> None:
    assert taken_share(lost_slice, silent_ms, 10_000, regions) == taken


@pytest.mark.parametrize(("back_ms", "part"), [(0, 250_000), (20_000, 250_000), (25_000, 125_000), (30_000, 0)])
def test_what_one_may_use_of_a_returning_region_without_having_said_so(back_ms: int, part: int) -> None:
    assert share_maybe_taken(600_000, back_ms, 10_000, 3) == part
