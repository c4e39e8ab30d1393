"""The sliding window, by exact values on a clock that stands until it is moved."""

import pytest
from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import WindowCounter
from headgate.limiter.limit import Limit, Unit
from headgate.limiter.sliding_window import SlidingWindow

WINDOW_MS = 60_000
SEQUENCE = 1_000
START_MS = SEQUENCE * WINDOW_MS

SLIDING = SlidingWindow()


def cell_with(current: int, previous: int) -> WindowCounter:
    cell = WindowCounter(b"k", Limit(1, Unit.SECOND, WINDOW_MS // 1_000), SEQUENCE)
    cell.current, cell.previous = current, previous
    return cell


# limit, current, previous, elapsed ms, cost -> remaining (OVER = denied)
TAKE = [
    (10, 5, 10, 30_000, 1, OVER),
    (10, 5, 10, 59_400, 1, 4),
    (10, 9, 0, 0, 1, 0),
    (10, 10, 0, 30_000, 0, 0),
    (10, 10, 0, 30_000, 1, OVER),
    (10, 0, 0, 0, 100, OVER),
    (10, 0, 0, 0, 10, 0),
    (10, 0, 10, 0, 1, OVER),
    (10, 0, 10, 0, 0, 0),
    (10, 0, 10, 1, 1, 0),  # 10 × 59,999 // 60,000 = 9
    (10, 0, 10, 6_000, 1, 0),  # exactly 9 left of the previous window
    (10, 0, 10, 6_001, 1, 1),  # one millisecond later it is 8
    (10, 11, 0, 0, 0, OVER),  # the limit was lowered under what is counted
    (0, 0, 0, 0, 0, OVER),  # 0 denies always, looking included
    (2**32 - 1, 0, 0, 0, 2**32 - 1, 0),
]


@pytest.mark.parametrize(("limit", "current", "previous", "elapsed_ms", "cost", "remaining"), TAKE)
def test_take(limit: int, current: int, previous: int, elapsed_ms: int, cost: int, remaining: int) -> None:
    cell = cell_with(current, previous)
    assert SLIDING.take(cell, Limit(limit, Unit.MINUTE), START_MS + elapsed_ms, cost) == remaining
    assert cell.current == current + (0 if remaining == OVER else cost), "a denial charges nothing"


# limit, current, previous, elapsed ms, cost -> ms until it fits
RETRY = [
    # Only the previous window is in the way: 10 × left // 60,000 must come down to 4.
    (10, 5, 10, 30_000, 1, 1),
    (10, 5, 10, 0, 1, 30_001),
    (10, 9, 10, 0, 1, 54_001),
    # This window is full: it must roll over and decay below limit − cost.
    (10, 10, 0, 30_000, 1, 30_000 + 1),
    (10, 10, 0, 30_000, 5, 30_000 + 24_001),
    (10, 10, 0, 30_000, 10, 30_000 + 54_001),
    (1, 1, 0, 59_999, 1, 1 + 1),
    # More hits than milliseconds: they are all gone only when the next window ends.
    (100_000, 100_000, 0, 0, 100_000, 60_000 + 60_000),
    # What can never fit is sent to the end of the window.
    (10, 0, 0, 10_000, 100, 50_000),
    (0, 0, 0, 10_000, 1, 50_000),
    # What fits already has nothing to wait for.
    (10, 0, 0, 10_000, 1, 0),
]


@pytest.mark.parametrize(("limit", "current", "previous", "elapsed_ms", "cost", "retry_ms"), RETRY)
def test_retry(limit: int, current: int, previous: int, elapsed_ms: int, cost: int, retry_ms: int) -> None:
    cell = cell_with(current, previous)
    assert SLIDING.retry_ms(cell, Limit(limit, Unit.MINUTE), START_MS + elapsed_ms, cost) == retry_ms


def test_the_next_window_sees_this_one_as_previous() -> None:
    limit = Limit(10, Unit.MINUTE)
    cell = cell_with(10, 3)
    assert SLIDING.take(cell, limit, START_MS + WINDOW_MS + 30_000, 1) == 4
    assert (cell.sequence, cell.current, cell.previous) == (SEQUENCE + 1, 1, 10)


def test_a_window_later_still_nothing_is_left() -> None:
    limit = Limit(10, Unit.MINUTE)
    cell = cell_with(10, 3)
    assert SLIDING.take(cell, limit, START_MS + 2 * WINDOW_MS, 10) == 0
    assert (cell.sequence, cell.current, cell.previous) == (SEQUENCE + 2, 10, 0)


def test_the_reset_is_the_end_of_the_window() -> None:
    limit = Limit(10, Unit.MINUTE)
    assert SLIDING.reset_ms(cell_with(1, 0), limit, START_MS) == 60_000
    assert SLIDING.reset_ms(cell_with(1, 0), limit, START_MS + 59_999) == 1
