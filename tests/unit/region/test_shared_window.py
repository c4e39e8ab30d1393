"""How a window's counter merges answers, and what becomes of one that was made by a wrong clock.

Windows are written as differences to the first: 0 is the one in which the counter was made.
"""

from typing import NamedTuple

import pytest
from headgate.origin.protocol import OVERTAKEN, Count, WindowAnswer
from headgate.region.window_counter import SharedWindow

from tests.unit.region.support import NOTHING, SEQUENCE, QuietShard, answer, case, window_counter


class Shown(NamedTuple):
    """A counter, as far as an answer changes it."""

    window: int
    current: int
    previous: int
    totals: tuple[int, int]
    """This node's own part of the current and the previous cell."""
    ahead: bool = False


def shown(counter: SharedWindow) -> Shown:
    current, previous = counter.cells
    assert (current.sequence, previous.sequence) == (counter.sequence, counter.sequence - 1)
    totals = current.total, previous.total
    return Shown(counter.sequence - SEQUENCE, counter.current, counter.previous, totals, counter.ahead_of_shard)


def counter_with(current: int, previous: int, *, answered: bool, known: bool = True) -> SharedWindow:
    """This node admitted so much in both windows, and told the shard of all of it."""
    counter = window_counter(shard=QuietShard(known=known))
    counter.current_cell.total, counter.previous_cell.total = current, previous
    for cell in counter.cells:
        cell.note_sent(0)
    counter.has_answer = answered
    return counter


TEN, FIVE = Count(3, 10, 0), Count(1, 5, 0)


@pytest.mark.parametrize(
    ("totals", "told", "after"),
    [
        # Told: the shard's window, its current and its previous count (own, region total, foreign).
        case((3, 1), answer(TEN, FIVE), Shown(0, 10, 5, (3, 1)), id="the same window"),
        case((5, 1), answer(TEN, FIVE), Shown(0, 12, 5, (5, 1)), id="two are not acknowledged, and count"),
        case((3, 1), answer(Count(3, 10, 4), FIVE), Shown(0, 14, 5, (3, 1)), id="other regions count"),
        case((3, 1), answer(TEN, FIVE, at=-1), Shown(0, 3, 10, (3, 1), True), id="the shard is one window behind"),
        case((3, 1), answer(TEN, FIVE, at=-2), Shown(0, 3, 1, (3, 1), True), id="two behind: nothing to merge"),
        case((3, 1), answer(TEN, FIVE, at=1), Shown(1, 10, 7, (0, 3)), id="one ahead: current becomes previous"),
        case((3, 1), answer(TEN, FIVE, at=2), Shown(2, 10, 5, (0, 0)), id="two ahead: both cells are new"),
    ],
)  # fmt: skip
def test_an_answer_is_merged_into_the_cells_that_it_is_of(
    totals: tuple[int, int], told: WindowAnswer, after: Shown
) -> None:
    counter = counter_with(*totals, answered=True)
    assert counter.learn(told), "nothing was known before"
    assert shown(counter) == after


@pytest.mark.parametrize(
    ("at", "after"),
    [
        case(0, Shown(0, 3, 2, (3, 2)), id="the clock was right"),
        case(1, Shown(1, 0, 3, (0, 3)), id="one window slow, or one has passed: as at any rollover"),
        case(4, Shown(4, 3, 2, (3, 2)), id="four slow: what was admitted just now is not long past"),
        case(-1, Shown(-1, 5, 0, (5, 0)), id="one fast: both cells belong to the current one"),
        case(-2, Shown(-2, 3, 2, (3, 2)), id="two fast"),
        case(-9, Shown(-9, 3, 2, (3, 2)), id="nine fast"),
    ],
)
def test_a_first_answer_corrects_the_window_of_a_counter_made_by_a_wrong_clock(at: int, after: Shown) -> None:
    counter = counter_with(3, 2, answered=False, known=False)
    assert counter.learn(answer(at=at))
    assert shown(counter) == after
    assert not counter._by_own_clock, "from here on it goes by the shard's time"


@pytest.mark.parametrize(
    ("at", "first_wanted", "sent"),
    [
        case(0, 0, (3, 2), id="the clock was right: all that was sent was taken"),
        case(0, 4, (3, 2), id="and what was wanted is in it already"),
        case(4, 0, (0, 2), id="the shard took no report of another window"),
        case(4, 4, (4, 2), id="but it charged in its own what was wanted"),
        case(-1, 4, (6, 0), id="one fast: it took the previous cell, and charged"),
    ],
)
def test_what_the_shard_can_have_taken_from_a_wrong_clock(at: int, first_wanted: int, sent: tuple[int, int]) -> None:
    counter = counter_with(3, 2, answered=False, known=False)
    counter.first_wanted = first_wanted
    counter.learn(answer(at=at))
    assert tuple(cell.highest_sent for cell in counter.cells) == sent


@pytest.mark.parametrize(
    ("known", "to", "after"),
    [
        case(None, 1, Shown(1, 0, 3, (0, 3), True), id="the next window"),
        case(None, 2, Shown(2, 0, 0, (0, 0), True), id="two on: nothing counts any more"),
        case(False, 4, Shown(4, 0, 0, (0, 0), True), id="four on by the node's own clock"),
        case(True, 1, Shown(1, 0, 3, (0, 3), True), id="one on, and the shard's time is known now"),
        case(True, 4, Shown(4, 3, 2, (3, 2)), id="four on: the node's clock was slow"),
    ],
)  # fmt: skip
def test_going_on_to_a_later_window(known: bool | None, to: int, after: Shown) -> None:
    """By a counter that was made by the shard's time (None), or by the node's own clock: is that known now?"""
    counter = counter_with(3, 2, answered=False, known=known is None)
    counter.shard.time.known = known is not False
    counter.roll(SEQUENCE + to)
    assert shown(counter) == after


SEEN = (10, 5)
"""The totals that the counter was told before, in its current and its previous window."""


@pytest.mark.parametrize(
    ("told", "remembers", "lacks"),
    [
        case(answer(TEN, FIVE), True, False, id="all is there"),
        case(answer(Count(3, 9, 0), FIVE), False, True, id="one is missing in the current window"),
        case(answer(TEN, Count(1, 4, 0)), False, True, id="one is missing in the previous window"),
        case(answer(NOTHING, NOTHING), False, True, id="all is gone"),
        case(answer(Count(0, 5, 0), NOTHING, at=-1), True, False, id="the shard is behind, and knows that window"),
        case(answer(Count(0, 4, 0), NOTHING, at=-1), False, True, id="the shard is behind, and lacks one there"),
        case(answer(NOTHING, Count(3, 10, 0), at=1), True, False, id="the shard is ahead, and has the former one"),
        case(answer(NOTHING, Count(3, 9, 0), at=1), False, True, id="the shard is ahead, and lacks one of it"),
        case(answer(NOTHING, NOTHING, at=2), True, False, id="neither window matters any more"),
    ],
)  # fmt: skip
def test_a_shard_that_knows_less_than_it_did_is_noticed(told: WindowAnswer, remembers: bool, lacks: bool) -> None:
    counter = counter_with(3, 1, answered=True)
    counter.learn(answer(TEN, FIVE))
    assert tuple(cell.highest_total_seen for cell in counter.cells) == SEEN
    assert counter.learn(told) is remembers
    assert counter.lacks(told) is lacks


@pytest.mark.parametrize(
    ("refill", "told", "remembers", "refill_after"),
    [
        case(False, answer(TEN, FIVE), True, False, id="all is there"),
        case(False, answer(NOTHING, FIVE), False, True, id="a loss: the next report tells everything"),
        case(True, answer(NOTHING, FIVE), True, True, id="a loss during a refill is no new one, and goes on"),
        case(True, answer(TEN, FIVE), True, False, id="a refill that arrived is over"),
    ],
)
def test_an_answer_ends_a_refill_or_begins_one(
    refill: bool, told: WindowAnswer, remembers: bool, refill_after: bool
) -> None:
    counter = counter_with(3, 1, answered=True)
    counter.learn(answer(TEN, FIVE))
    counter.refill = refill
    counter.pins, counter.credit_offered = 1, 2
    assert counter.answered(told, counter.limit, 99.0, 94.0) is remembers
    assert counter.refill is refill_after
    assert (counter.pins, counter.credit_offered, counter.has_answer) == (0, 0, True)


@pytest.mark.parametrize(
    ("more", "allowance", "usable_until_s"),
    [
        case(4, 11, 99.0, id="more"),
        case(0, 7, 99.0, id="no more is fresh too"),
        case(OVERTAKEN, 7, 50.0, id="an overtaken call renews nothing"),
    ],
)
def test_an_answer_adds_to_the_allowance(more: int, allowance: int, usable_until_s: float) -> None:
    counter = counter_with(3, 1, answered=True)
    counter.allowance, counter.usable_until_s = 7, 50.0
    counter.answered(answer(TEN, FIVE, more=more), counter.limit, 99.0, 94.0)
    assert (counter.allowance, counter.usable_until_s) == (allowance, usable_until_s)


@pytest.mark.parametrize(
    ("answered", "own", "deny_until_ms"),
    [
        case(True, 3, 500, id="nothing changes"),
        case(True, 4, 0, id="credit may pay for what did not fit"),
        case(False, 3, 0, id="what was denied before was denied by this node's own clock"),
    ],
)
def test_an_answer_may_undo_a_denial_that_is_kept(answered: bool, own: int, deny_until_ms: int) -> None:
    counter = counter_with(3, 1, answered=answered)
    counter.deny_until_ms = 500
    counter.learn(answer(Count(own, 10, 0), FIVE))
    assert counter.deny_until_ms == deny_until_ms


@pytest.mark.parametrize(
    ("at", "charged", "totals", "current"),
    [
        case(0, Count(7, 7, 0), (7, 1), 7, id="the shard charged it here: it counts once"),
        case(0, Count(9, 30, 5), (7, 1), 35, id="credit is left of what others and other regions count with"),
        case(0, Count(3, 9, 0), (7, 1), 13, id="the shard has forgotten it: it counts all the same"),
        case(-1, Count(5, 5, 0), (3, 5), 3, id="the shard charged it in the window before"),
    ],
)
def test_what_the_shard_charged_is_held_and_then_committed_where_it_was_charged(
    at: int, charged: Count, totals: tuple[int, int], current: int
) -> None:
    told = answer(charged, NOTHING, at=at)
    counter = counter_with(3, 1, answered=True)
    counter.learn(told)
    hold = counter.hold(4, SEQUENCE, told)
    assert (counter.reserved, counter.current) == (4, current)
    counter.settle(hold, commit=True)
    assert (counter.reserved, counter.current) == (0, current)
    assert (counter.current_cell.total, counter.previous_cell.total) == totals
    assert hold.ended_before(counter.sequence) is (at < 0)
