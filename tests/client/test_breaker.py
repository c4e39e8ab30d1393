"""When the breaker opens, and how it closes again, on a clock of the test."""

import pytest
from headgate_client.breaker import (
    FIRST_PAUSE_S,
    LATE_IN_A_ROW,
    LONGEST_PAUSE_S,
    PAUSE_JITTER,
    STALLED_AFTER_S,
    UNREACHABLE_IN_A_ROW,
    Breaker,
)
from headgate_client.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> Breaker:
    return Breaker(clock)


def open_it(breaker: Breaker) -> None:
    for _ in range(UNREACHABLE_IN_A_ROW):
        breaker.was_unreachable("refused")


def test_it_opens_after_some_in_a_row_that_reached_nobody(breaker: Breaker) -> None:
    for _ in range(3):
        for _ in range(UNREACHABLE_IN_A_ROW - 1):
            breaker.was_unreachable("refused")
        breaker.answered()
    assert breaker.admits()
    open_it(breaker)
    assert (breaker.admits(), breaker.closed, breaker.opened, breaker.why) == (False, False, 1, "refused")


def test_late_answers_alone_do_not_open_it(breaker: Breaker, clock: FakeClock) -> None:
    """Ninety-nine in a hundred late, for an hour."""
    for _ in range(3600):
        for _ in range(99):
            breaker.was_late()
        clock.advance(1)
        breaker.answered()
    assert breaker.closed


def test_many_late_at_once_are_one_hiccup(breaker: Breaker, clock: FakeClock) -> None:
    for _ in range(100 * LATE_IN_A_ROW):
        breaker.was_late()
    clock.advance(STALLED_AFTER_S - 0.01)
    breaker.was_late()
    assert breaker.closed
    clock.advance(0.02)
    breaker.was_late()
    assert not breaker.closed, "no answer at all for a second: stalled"


def test_a_few_late_ones_over_a_long_time_are_no_stall(breaker: Breaker, clock: FakeClock) -> None:
    for _ in range(LATE_IN_A_ROW - 1):
        breaker.was_late()
        clock.advance(60)
    assert breaker.closed


def test_one_probe_at_a_time_after_pauses_that_grow(breaker: Breaker, clock: FakeClock) -> None:
    open_it(breaker)
    pause_s = FIRST_PAUSE_S
    for _ in range(6):
        clock.advance(pause_s - 0.001)
        assert not breaker.admits()
        clock.advance(pause_s * PAUSE_JITTER + 0.001)
        assert breaker.admits()
        assert not breaker.admits(), "one probe at a time"
        breaker.was_unreachable("refused")
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    assert breaker.opened == 1
    clock.advance(2 * LONGEST_PAUSE_S)
    assert breaker.admits()
    breaker.answered()
    assert breaker.closed
    open_it(breaker)
    clock.advance(FIRST_PAUSE_S * (1 + PAUSE_JITTER))
    assert breaker.admits(), "pauses are short again"


def test_a_probe_that_is_given_up_makes_room_for_another(breaker: Breaker, clock: FakeClock) -> None:
    open_it(breaker)
    clock.advance(1)
    assert breaker.admits()
    breaker.abandoned()
    assert breaker.admits()


def test_what_was_under_way_when_it_opened_changes_nothing(breaker: Breaker, clock: FakeClock) -> None:
    open_it(breaker)
    clock.advance(FIRST_PAUSE_S)
    for _ in range(10):
        breaker.was_unreachable("late in coming")
        breaker.was_late()
    clock.advance(FIRST_PAUSE_S * PAUSE_JITTER)
    assert breaker.admits()


def test_a_wait_for_a_connection_that_ended_without_one_opens_it_at_once(breaker: Breaker) -> None:
    breaker.was_unreachable("no connection", for_sure=True)
    assert not breaker.admits()
