"""A key near its limit: when it is reported next, how long it pauses, what is denied meanwhile, and what ends it."""

import pytest
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.protocol import PLENTY, Count, WindowReport
from headgate.region.pause import FIRST_PAUSE_S, Pause
from headgate.region.window_counter import SharedWindow

from tests.unit.region.support import NOW_MS, SEQUENCE, WINDOW_MS, QuietShard, answer, window_counter

NOW_S = 1_000.0


def limit(requests: int = 1_000, seconds: int = 60, **fields: object) -> Limit:
    return Limit(requests, Unit.SECOND, seconds, **fields)  # type: ignore[arg-type]


def concluded(
    counter: SharedWindow, *, left: int = 0, refused: int = 0, want: int = 5, more: int = 0, rest: int = 0,
    chance: float = 0.0, of: Limit | None = None, at: int = 0, rate: float = 100.0,
) -> None:  # fmt: skip
    """Have a call taken in that wanted so much, and brought this."""
    under = of or counter.limit
    told = answer(Count(0, 1, 0), at=at, more=more, left=left)
    report = WindowReport(b"k", b"run.0", 1, rest, want, under.requests_per_unit, under.window_ms, 0, True, False, ())
    counter.requests_per_s = rate
    counter.conclude(report, told, under, refused, NOW_S, lambda: chance)


def reports_at(counter: SharedWindow) -> list[float]:
    assert isinstance(counter.shard, QuietShard)
    return counter.shard.reports_at


def test_far_from_the_limit_nothing_is_due_and_nothing_denied() -> None:
    counter = window_counter(limit())
    concluded(counter)
    assert counter.pause is not None
    concluded(counter, left=PLENTY, refused=3)
    assert counter.pause is None, "another key of the request was in its way, or allowances were"


@pytest.mark.parametrize(("chance", "after_s"), [(0.0, 0.3), (0.5, 0.45), (0.999, 0.5997)])
def test_near_it_a_key_is_reported_once_a_turn_half_of_it_to_all_of_it_from_sending(
    chance: float, after_s: float
) -> None:
    counter = window_counter(limit())
    concluded(counter, left=4, more=5, chance=chance)
    assert reports_at(counter) == [pytest.approx(NOW_S + after_s)]
    assert not counter.is_paused(1, NOW_S), "it got what it wanted"


def test_a_key_that_nobody_asks_for_is_not_reported_on_its_own() -> None:
    counter = window_counter(limit())
    concluded(counter, want=0)
    assert reports_at(counter) == []


@pytest.mark.parametrize(
    ("left", "refused", "more", "pauses"),
    [
        pytest.param(0, 0, 5, False, id="all that was wanted came"),
        pytest.param(0, 0, 4, True, id="less came, and nothing is left"),
        pytest.param(1, 0, 4, False, id="less came, and something is left"),
        pytest.param(0, 1, 5, True, id="a request was refused, and nothing is left"),
        pytest.param(3, 4, 5, True, id="a request was refused for which too little is left"),
        pytest.param(4, 4, 5, False, id="a request was refused because of another key"),
    ],
)
def test_a_pause_begins_if_too_little_came_and_too_little_is_left(
    left: int, refused: int, more: int, pauses: bool
) -> None:
    counter = window_counter(limit())
    concluded(counter, left=left, refused=refused, more=more)
    assert counter.is_paused(max(1, refused), NOW_S) is pauses


def test_pauses_double_while_the_shortage_lasts_up_to_a_turn() -> None:
    counter = window_counter(limit())
    for _ in range(7):
        concluded(counter, chance=1.0)
    concluded(counter, more=5)
    concluded(counter, chance=1.0)
    concluded(counter, more=5)
    concluded(counter, more=5)
    concluded(counter, chance=1.0)
    lengths_s = [round(due_s - NOW_S, 3) for due_s in reports_at(counter)]
    assert lengths_s == [0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.6, 0.3, 0.6, 0.3, 0.3, 0.6]
    assert FIRST_PAUSE_S == 0.025


def test_a_key_that_is_asked_for_less_than_once_a_turn_does_not_pause() -> None:
    """Asking for each request makes no more calls than reporting every turn."""
    counter = window_counter(limit())
    concluded(counter, rate=1.6)
    assert not counter.is_paused(1, NOW_S)
    concluded(counter, rate=1.7)
    assert counter.is_paused(1, NOW_S)


@pytest.mark.parametrize("algorithm", [Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW])
def test_a_window_in_which_nothing_becomes_free_within_a_turn_is_not_reported(algorithm: Algorithm) -> None:
    counter = window_counter(limit(10, algorithm=algorithm))
    counter.learn(answer(Count(0, 10, 0)))
    concluded(counter)
    assert reports_at(counter) == []


def test_one_in_which_something_does_is() -> None:
    """Of the 990 of the window before, ten leave in each turn."""
    counter = window_counter(limit(990))
    counter.learn(answer(Count(0, 1, 0), previous=Count(0, 990, 0)))
    concluded(counter)
    assert len(reports_at(counter)) == 1


def test_in_a_pause_only_what_did_not_fit_is_denied() -> None:
    counter = window_counter(limit())
    concluded(counter, left=3, refused=4, chance=1.0)
    assert [counter.is_paused(missing, NOW_S) for missing in (0, 3, 4)] == [False, False, True]
    assert counter.pause_left_ms(4, NOW_S) == 25


def test_in_a_pause_the_allowance_is_spent() -> None:
    counter = window_counter(limit())
    concluded(counter)
    counter.allowance, counter.allowance_until_s = 2, NOW_S + 1
    assert [counter.is_paused(missing, NOW_S) for missing in (2, 3)] == [False, True]


def test_another_limit_ends_a_pause() -> None:
    counter = window_counter(limit(10_000))
    concluded(counter)
    counter.limit = limit(20_000)
    assert not counter.is_paused(1, NOW_S)


def test_an_answer_under_another_limit_or_of_another_window_begins_none() -> None:
    counter = window_counter(limit(20_000))
    concluded(counter, of=limit(10_000))
    concluded(counter, at=-1)
    assert counter.pause is None


@pytest.mark.parametrize(("algorithm", "goes_on"), [(Algorithm.FIXED_WINDOW, False), (Algorithm.SLIDING_WINDOW, True)])
def test_a_fixed_windows_pause_ends_with_the_window(algorithm: Algorithm, goes_on: bool) -> None:
    counter = window_counter(limit(10_000, algorithm=algorithm))
    concluded(counter)
    counter.advance(NOW_MS + WINDOW_MS)
    assert counter.pause is not None
    assert counter.is_paused(1, NOW_S) is goes_on


def test_a_counter_that_begins_anew_has_no_pause() -> None:
    counter = window_counter(limit(10_000))
    concluded(counter)
    counter.begin_anew()
    assert counter.pause is None


def test_a_pause_is_timed_by_the_nodes_own_clock() -> None:
    pause = Pause(limit())
    assert pause.answered(limit(), SEQUENCE, 0, 0, short=True)
    assert pause.next_report_s(NOW_S, 0.0, pausing=True) == pause.ends_s == NOW_S + 0.0125
