"""Gifts between regions: rows that only grow, the slices that follow, and the change of epochs."""

import random

import pytest
from headgate.quota.gifts import EpochRows, GiveRows, carried_over, epoch_ms, in_proportion, overlap_ms

WINDOW_MS = 10_000
HOUR_MS = 3_600_000
A, B, C = 0, 1, 2
LATE_MS = 100 * HOUR_MS + HOUR_MS // 2
"""In the middle of epoch 100."""
TURN_MS = 101 * HOUR_MS


@pytest.mark.parametrize(
    ("window_ms", "epoch", "overlap"),
    [(1_000, HOUR_MS, 32_000), (60_000, HOUR_MS, 150_000), (HOUR_MS, 10 * HOUR_MS, 2 * HOUR_MS + 30_000)],
)
def test_an_epoch_is_an_hour_or_ten_windows(window_ms: int, epoch: int, overlap: int) -> None:
    assert (epoch_ms(window_ms), overlap_ms(window_ms)) == (epoch, overlap)


def test_a_gift_makes_the_giver_smaller_and_the_receiver_larger() -> None:
    rows = GiveRows(WINDOW_MS, 3)
    rows.give(A, B, 100_000, LATE_MS)
    rows.give(A, B, 20_000, LATE_MS)
    rows.give(B, C, 5, LATE_MS)
    assert rows.slices(LATE_MS) == [213_333, 453_328, 333_338]
    assert sorted(rows.flat()) == [(100, A, B, 120_000), (100, B, C, 5)]


def test_rows_merge_by_max_in_any_order_and_any_number_of_times() -> None:
    told = [(A, B, 10), (A, B, 30), (B, A, 7), (A, B, 20), (C, A, 1), (B, A, 7)]
    for seed in range(20):
        rows = EpochRows()
        for row in random.Random(seed).sample(told * 2, len(told) * 2):
            rows.merge(*row)
        assert rows.totals == {(A, B): 30, (B, A): 7, (C, A): 1}
    assert not rows.merge(A, B, 30)
    assert rows.merge(A, B, 31)


@pytest.mark.parametrize(
    ("at_ms", "counting", "accepted"),
    [
        (LATE_MS, (100,), [100]),
        (TURN_MS - 40_001, (100,), [100]),
        (TURN_MS - 40_000, (100,), [100, 101]),  # a peer that is 10 s ahead carries over already
        (TURN_MS - 1, (100,), [100, 101]),
        (TURN_MS, (100, 101), [100, 101]),
        (TURN_MS + 49_999, (100, 101), [100, 101]),  # two windows and 30 s
        (TURN_MS + 50_000, (101,), [100, 101]),
        (TURN_MS + 60_000, (101,), [101]),  # a peer that is 10 s behind does not need it any more either
    ],
)
def test_which_epochs_count_and_which_are_kept(at_ms: int, counting: tuple[int, ...], accepted: list[int]) -> None:
    rows = GiveRows(WINDOW_MS, 3)
    assert rows.counting(at_ms) == counting
    assert list(rows.accepted(at_ms)) == accepted


def test_while_two_epochs_count_a_slice_is_the_smaller_and_a_gift_is_in_both() -> None:
    rows = GiveRows(WINDOW_MS, 2)
    rows.give(A, B, 300_000, LATE_MS)
    assert rows.slices(TURN_MS) == [200_000, 500_000]
    rows.give(B, A, 50_000, TURN_MS)
    assert rows.slices(TURN_MS) == [250_000, 450_000]
    assert rows.slices(TURN_MS + 50_000) == [550_000, 450_000]


def carry(rows: GiveRows, giver: int, now_ms: int) -> bool:
    """Whether that changed anything."""
    before = set(rows.flat())
    rows.carry_over(giver, now_ms)
    return set(rows.flat()) != before


def test_before_an_epoch_ends_its_slices_are_carried_over() -> None:
    rows = GiveRows(WINDOW_MS, 3)
    rows.give(B, A, 200_000, LATE_MS)
    rows.give(C, A, 100_000, LATE_MS)
    assert not carry(rows, B, LATE_MS)
    assert not carry(rows, B, TURN_MS - 30_001)
    assert carry(rows, B, TURN_MS - 30_000)
    assert not carry(rows, B, TURN_MS - 29_000), "nothing is left to carry"
    assert not carry(rows, A, TURN_MS - 29_000), "it lacks"
    assert rows.slices(TURN_MS - 1) == [633_333, 133_333, 233_333]
    assert rows.slices(TURN_MS) == [533_333, 133_333, 233_333]
    assert carry(rows, C, TURN_MS), "it may still do so while both count"
    assert rows.slices(TURN_MS) == rows.slices(TURN_MS + 50_000) == [633_333, 133_333, 233_333]


def test_a_key_without_gifts_carries_nothing_and_old_rows_go() -> None:
    rows = GiveRows(WINDOW_MS, 3)
    assert not carry(rows, A, TURN_MS - 1)
    rows.give(A, B, 1, LATE_MS)
    assert not rows.forget_old(TURN_MS + 59_999)
    assert rows.forget_old(TURN_MS + 60_000)
    assert list(rows.flat()) == []
    assert rows.slices(TURN_MS + 60_000) == [333_333] * 3


def test_a_gift_that_is_undone_leaves_no_trace() -> None:
    rows = GiveRows(WINDOW_MS, 2)
    rows.give(A, B, 10, LATE_MS)
    rows.take_back(A, {(100, B): 7}, rows.given(A))
    assert rows.slices(LATE_MS) == [499_993, 500_007]
    rows.take_back(A, {}, rows.given(A))
    assert list(rows.flat()) == []
    assert rows.slices(LATE_MS) == [500_000, 500_000]


@pytest.mark.parametrize(
    ("present", "coming", "gifts"),
    [
        ([800, 100, 100], [333, 333, 334], [(0, 233)]),
        ([100, 600, 300], [333, 333, 334], []),  # it lacks itself
        ([500, 100, 400], [300, 400, 300], [(0, 200), (2, 100)]),
    ],
)
def test_only_what_is_above_the_present_slice_is_carried_over(
    present: list[int], coming: list[int], gifts: list[tuple[int, int]]
) -> None:
    assert carried_over(B, present, coming) == gifts


@pytest.mark.parametrize(
    ("share", "lacks", "parts"),
    [
        (100, [0, 0], []),
        (0, [10, 0], []),
        (-5, [10, 0], []),
        (100, [30, 0, 20], [(0, 30), (2, 20)]),  # never more than they lack
        (10, [30, 0, 20], [(0, 6), (2, 4)]),
        (1, [30, 0, 20], []),  # rounded down
    ],
)
def test_parts_are_in_proportion_to_what_each_lacks(share: int, lacks: list[int], parts: list[tuple[int, int]]) -> None:
    assert in_proportion(share, lacks) == parts
