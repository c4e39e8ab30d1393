"""The pause of a key at its limit: how long, how much is prefetched, and what ends it."""

import pytest
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.protocol import BucketAnswer, Count
from headgate.region.pause import AskPause, most_prefetched, pause_ms
from headgate.region.window_counter import SharedWindow

from tests.unit.region.support import NOW_MS, WINDOW_MS, answer, bucket_counter, bucket_limit, window_counter

NOW_S = 1_000.0


def limit(requests: int = 1_000, seconds: int = 60, **fields: object) -> Limit:
    return Limit(requests, Unit.SECOND, seconds, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "length_ms", "ahead"),
    [
        (limit(1_000, 1), 10, 10),
        (limit(10_000, 10), 100, 100),
        (limit(10_000, 60), 600, 100),
        (limit(10_000, 3_600), 1_000, 2),
        (limit(99, 10), 100, 0),
        (limit(1_000, 1, algorithm=Algorithm.GCRA, burst=1_000), 100, 100),
        (limit(1_000, 1, algorithm=Algorithm.GCRA, burst=150), 15, 15),
        (limit(1_000, 1, algorithm=Algorithm.GCRA, burst=99), 0, 0),
        (limit(10, 10, algorithm=Algorithm.GCRA, burst=100), 100, 0),
        (limit(0, 10, algorithm=Algorithm.GCRA, burst=1), 100, 0),
    ],
)
def test_a_pause_is_a_part_of_the_window_or_of_the_bursts_time(of: Limit, length_ms: int, ahead: int) -> None:
    assert pause_ms(of) == length_ms
    assert most_prefetched(of) == ahead


def prefetch(counter: SharedWindow, asking: int, now_s: float) -> tuple[int, int]:
    assert counter.pause is not None
    return counter.pause.prefetch(counter.limit, asking, counter.shard.now_ms(), now_s)


def counted(costs: list[int], *, of: Limit | None = None) -> AskPause:
    """Requests of these costs in the last pause."""
    pause = AskPause(of or limit(10_000))
    for cost in costs:
        pause.count(cost, NOW_S - 0.5)
    return pause


@pytest.mark.parametrize(
    ("costs", "wanted"),
    [
        ([], (0, 0)),
        ([1] * 9, (6, 1)),
        ([5] * 8, (6, 5)),
        ([1, 5, 10], (12, 1)),
        ([0, 0, 4, 4], (1, 4)),
        ([1] * 500, (100, 1)),
    ],
)
def test_what_is_prefetched_follows_what_came_lately_in_whole_requests(
    costs: list[int], wanted: tuple[int, int]
) -> None:
    counter = window_counter(limit(10_000))
    counter.pause = counted(costs)
    requests, cost = prefetch(counter, 0, NOW_S)
    assert requests == wanted[0]
    assert cost == wanted[1] or not requests


def test_what_the_call_asks_for_itself_is_not_asked_for_again() -> None:
    counter = window_counter(limit(10_000))
    counter.pause = counted([1] * 8)
    assert prefetch(counter, 4, NOW_S)[0] == 3


def test_what_came_before_the_last_pause_counts_for_nothing() -> None:
    counter = window_counter(limit(10_000))
    counter.pause = counted([1] * 8)
    assert prefetch(counter, 0, NOW_S + 1.0)[0] == 0


def test_no_more_is_prefetched_than_comes_before_the_window_ends() -> None:
    counter = window_counter(limit(10_000))
    counter.pause = counted([1] * 100)
    counter.shard.time_ms = NOW_MS + WINDOW_MS - 60  # type: ignore[attr-defined]
    assert prefetch(counter, 0, NOW_S)[0] == 7


def test_a_key_whose_limit_is_too_small_to_prefetch_costs_nothing() -> None:
    counter = window_counter(limit(99))
    counter.note_near(1, NOW_S)
    assert counter.pause is None


def begun(counter: SharedWindow, *, room: int = 0, chance: float = 0.0) -> None:
    """Have a call answered that was refused more than the room that is left."""
    most = counter.limit.requests_per_unit
    counter.learn(answer(Count(0, most - room, 0)))
    counter.begin_pause(counter.limit, 0, room + 1, NOW_MS, NOW_S, lambda: chance)


@pytest.mark.parametrize(("chance", "lasts_ms"), [(0.0, 300), (0.25, 375), (0.999, 600)])
def test_a_pause_lasts_half_of_its_length_to_all_of_it_from_sending(chance: float, lasts_ms: int) -> None:
    counter = window_counter(limit(10_000))
    begun(counter, chance=chance)
    assert counter.pause is not None
    assert counter.pause.left_ms(NOW_S) == lasts_ms
    assert counter.is_paused(1, NOW_S + (lasts_ms - 1) / 1000)
    assert not counter.is_paused(1, NOW_S + (lasts_ms + 1) / 1000)


def test_in_a_pause_only_what_did_not_fit_is_denied() -> None:
    counter = window_counter(limit(10_000))
    begun(counter, room=3)
    assert counter.pause is not None
    assert [counter.is_paused(missing, NOW_S) for missing in (0, 3, 4)] == [False, False, True]


def test_another_limit_ends_a_pause() -> None:
    counter = window_counter(limit(10_000))
    begun(counter)
    assert counter.pause is not None
    counter.limit = limit(20_000)
    assert not counter.is_paused(1, NOW_S)


def test_an_answer_under_another_limit_begins_none() -> None:
    counter = window_counter(limit(20_000))
    counter.begin_pause(limit(10_000), 0, 1, NOW_MS, NOW_S, lambda: 0.0)
    assert counter.pause is None


@pytest.mark.parametrize(("algorithm", "goes_on"), [(Algorithm.FIXED_WINDOW, False), (Algorithm.SLIDING_WINDOW, True)])
def test_a_fixed_windows_pause_ends_with_the_window(algorithm: Algorithm, goes_on: bool) -> None:
    counter = window_counter(limit(10_000, algorithm=algorithm))
    begun(counter)
    counter.advance(NOW_MS + WINDOW_MS)
    assert counter.pause is not None
    assert counter.is_paused(1, NOW_S) is goes_on


def test_a_counter_that_begins_anew_has_no_pause() -> None:
    counter = window_counter(limit(10_000))
    begun(counter)
    counter.begin_anew()
    assert counter.pause is None


@pytest.mark.parametrize(
    ("refused", "held", "after_ms", "pauses"),
    [
        (20, 0, WINDOW_MS // 2, False),
        (21, 0, WINDOW_MS // 2, True),
        (10, 15, WINDOW_MS // 2, False),
        (11, 15, WINDOW_MS // 2, True),
        (21, 0, WINDOW_MS, False),
    ],
)
def test_a_pause_begins_if_less_fitted_by_the_shards_room_at_the_time_of_its_answer(
    refused: int, held: int, after_ms: int, pauses: bool
) -> None:
    """100 less 60 less half of 60 are 10, beside a credit of 10. What requests hold here beyond that the shard does not
    know of; an answer of another window says nothing."""
    of = limit(100)
    counter = window_counter(of)
    counter.learn(answer(Count(10, 60, 0), Count(0, 60, 0)))
    if held:
        counter.hold(held, NOW_MS + WINDOW_MS // 2)
    counter.begin_pause(of, 0, refused, NOW_MS + after_ms, NOW_S, lambda: 0.0)
    assert (counter.pause is not None) is pauses


def test_a_pause_begins_if_less_was_prefetched_than_hoped() -> None:
    of = limit(10_000)
    for credit, pauses in ((5, False), (4, True)):
        counter = window_counter(of)
        counter.learn(answer(Count(credit, 100, 0)))
        counter.begin_pause(of, 5, 0, NOW_MS, NOW_S, lambda: 0.0)
        assert (counter.pause is not None) is pauses


def test_credit_in_a_bucket_drains_with_what_was_charged_for_it() -> None:
    """One a second: five were prefetched, and are the last of eight in the bucket."""
    counter = bucket_counter(bucket_limit(60, burst=10))
    counter.learn(BucketAnswer(5, NOW_MS + 8_000, 0, 0))
    for after_ms, credit in ((0, 5), (3_000, 5), (3_009, 5), (3_011, 4), (6_500, 1), (8_100, 0)):
        counter.advance(NOW_MS + after_ms)
        assert counter.credit == credit, after_ms
    assert (counter.total, counter.void, counter.unacked) == (5, 5, 0)


def test_what_others_put_into_a_bucket_later_does_not_bring_drained_credit_back() -> None:
    counter = bucket_counter(bucket_limit(60, burst=10))
    counter.learn(BucketAnswer(5, NOW_MS + 5_000, 0, 0))
    counter.advance(NOW_MS + 5_000)
    counter.learn(BucketAnswer(5, NOW_MS + 15_000, 0, 0))
    counter.advance(NOW_MS + 5_000)
    assert counter.credit == 0


def test_the_oldest_credit_of_a_bucket_is_spent_first() -> None:
    counter = bucket_counter(bucket_limit(60, burst=10))
    counter.learn(BucketAnswer(2, NOW_MS + 2_000, 0, 0))
    counter.learn(BucketAnswer(4, NOW_MS + 9_000, 0, 0))
    counter.spend(2, 0, NOW_MS)
    counter.advance(NOW_MS + 4_000)
    assert counter.credit == 2


def test_what_a_request_holds_does_not_drain() -> None:
    counter = bucket_counter(bucket_limit(60, burst=10))
    counter.learn(BucketAnswer(3, NOW_MS + 3_000, 0, 0))
    hold = counter.hold(2, NOW_MS)
    counter.advance(NOW_MS + 3_000)
    assert (counter.credit, counter.unacked) == (0, 0)
    counter.settle(hold, commit=True)
    assert (counter.total, counter.void) == (3, 1)
