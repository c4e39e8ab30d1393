"""What a node wants to hold of a key, for how long it spends it, and when it gives it back."""

import pytest
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.protocol import NOW_AND_THEN, OVERTAKEN, PLENTY, BucketAnswer, Count, WindowReport
from headgate.region.allowance import measured, turn_s, wanted_far, wanted_near
from headgate.region.pause import Pause
from headgate.region.window_counter import SharedWindow

from tests.unit.region.support import NOW_MS, QuietShard, answer, bucket_counter, bucket_limit, window_counter

NOW_S = 1_000.0


def limit(requests: int = 1_000, seconds: int = 1, **fields: object) -> Limit:
    return Limit(requests, Unit.SECOND, seconds, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "turn_ms"),
    [
        (limit(1_000, 1), 100),
        (limit(10_000, 60), 600),
        (limit(10_000, 3_600), 1_000),
        (limit(10_000, 3_600, refund=True), 200),
        (limit(1_000, 1, algorithm=Algorithm.GCRA, burst=1_000), 100),
        (limit(10, 10, algorithm=Algorithm.GCRA, burst=40), 400),
        (limit(0, 10, algorithm=Algorithm.GCRA, burst=1), 100),
    ],
)
def test_a_turn_is_a_hundredth_of_the_window_or_of_the_bursts_time(of: Limit, turn_ms: int) -> None:
    assert turn_s(of) * 1000 == turn_ms


@pytest.mark.parametrize(
    ("before", "asked", "passed_s", "rate"),
    [
        pytest.param(40.0, 0, 0.25, 0.0, id="nobody asked"),
        pytest.param(40.0, 8, 0.25, 32.0, id="enough to be sure"),
        pytest.param(40.0, 4, 0.25, 28.0, id="too few to be sure: half of it, and half of the last"),
        pytest.param(0.0, 50, 3_600.0, 25.0, id="a burst after an hour"),
    ],
)
def test_a_rate_is_measured_by_what_was_asked(before: float, asked: int, passed_s: float, rate: float) -> None:
    assert measured(before, asked, passed_s) == rate


@pytest.mark.parametrize(
    ("rate", "of", "far", "calm", "short"),
    [
        (8.0, limit(), 1 + 1 + 1, 0, 1),
        (100.0, limit(), 12 + 3 + 1, 5, 10),
        (100.0, limit(1_000, 60), 50 + 7 + 1, 30, 60),
        (1_000.0, limit(1_000, 1, algorithm=Algorithm.GCRA, burst=100), 12 + 3 + 1, 50, 100),
    ],
)
def test_what_is_wanted_follows_the_rate(rate: float, of: Limit, far: int, calm: int, short: int) -> None:
    assert wanted_far(rate, of) == far
    assert (wanted_near(rate, of, short=False), wanted_near(rate, of, short=True)) == (calm, short)


@pytest.mark.parametrize(("asked", "want"), [(0, 0), (1, NOW_AND_THEN), (7, NOW_AND_THEN), (8, 1 + 1 + 1)])
def test_a_slow_node_wants_a_unit_now_and_then(asked: int, want: int) -> None:
    counter = warm(of=limit())
    counter.requests_per_s, counter.requests, counter.asked = float(asked), asked, asked
    assert sent(counter, after_s=1.0)[1] == want


def warm(allowance: int = 0, *, of: Limit | None = None) -> SharedWindow:
    """A counter that was answered at NOW_S, and holds so much until its view is stale."""
    counter = window_counter(of or limit(1_000, 60))
    counter.pin(1)
    counter.answered(answer(more=allowance), counter.limit, NOW_S + 5, NOW_S)
    counter.measured_s = NOW_S
    return counter


def sent(counter: SharedWindow, *, wanted: int = 0, leaving: bool = False, after_s: float = 0.0) -> tuple[int, int]:
    """The rest and the want of a report that goes out."""
    report = counter.sent(1, wanted, leaving, NOW_S + after_s)
    assert isinstance(report, WindowReport)
    return report.rest, report.want


def test_a_report_gives_up_what_is_beyond_the_need_before_it_is_written() -> None:
    counter = warm(40)
    counter.asked = counter.requests = 25
    assert sent(counter, after_s=1.0) == (12 + 3 + 1, 12 + 3 + 1)
    assert counter.allowance == 12 + 3 + 1


def test_what_nobody_asks_for_is_given_back() -> None:
    counter = warm(40)
    assert sent(counter, after_s=1.0) == (0, 0)
    assert counter.allowance == 0


def test_a_call_that_asks_gives_up_all_of_it_first() -> None:
    counter = warm(4)
    counter.asked = counter.requests = 50
    assert sent(counter, wanted=9, after_s=1.0)[0] == 0
    assert counter.allowance == 0


def test_a_drain_wants_nothing_and_gives_all_back() -> None:
    counter = warm(40)
    counter.asked = counter.requests = 50
    assert sent(counter, leaving=True, after_s=1.0) == (0, 0)


def test_what_a_waiting_request_holds_is_a_part_of_the_rest_until_it_is_charged() -> None:
    counter = warm(10)
    counter.asked = counter.requests = 100
    hold = counter.hold(3, NOW_MS)
    assert (counter.allowance, counter.uncovered) == (7, 3)
    assert sent(counter, after_s=1.0)[0] == 10
    counter.settle(hold, commit=False)
    assert counter.allowance == 10
    counter.settle(counter.hold(3, NOW_MS), commit=True)
    assert (counter.allowance, counter.uncovered, counter.unacked) == (7, 0, 3)


def test_what_credit_covers_by_now_is_not_given_back_to_the_allowance_too() -> None:
    counter = warm(10)
    hold = counter.hold(3, NOW_MS)
    counter.learn(answer(Count(2, 2, 0)))
    counter.settle(hold, commit=False)
    assert (counter.credit, counter.allowance) == (2, 8)


def test_a_release_under_another_limit_gives_nothing_back() -> None:
    counter = warm(10)
    hold = counter.hold(3, NOW_MS)
    counter.come_to(limit(500, 60), NOW_S)
    counter.settle(hold, commit=False)
    assert counter.allowance == 0


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        pytest.param(limit(1_000, 60), 10, id="the same limit, read again"),
        pytest.param(limit(999, 60), 0, id="another limit"),
        pytest.param(limit(1_000, 60, precision_millionths=0), 0, id="another precision"),
    ],
)
def test_another_limit_or_precision_voids_the_allowance(other: Limit, kept: int) -> None:
    counter = warm(10)
    counter.come_to(other, NOW_S)
    assert counter.spendable(NOW_S) == kept


def test_an_answer_to_a_report_under_another_limit_brings_no_allowance() -> None:
    counter = warm(10)
    before = counter.limit
    counter.come_to(limit(999, 60), NOW_S)
    counter.pin(1)
    counter.answered(answer(more=7), before, NOW_S + 5, NOW_S)
    assert counter.allowance == 0


@pytest.mark.parametrize("void", ["shard_forgot", "unreadable", "begin_anew"])
def test_what_the_shard_forgot_is_not_spent(void: str) -> None:
    counter = warm(10)
    getattr(counter, void)()
    assert counter.spendable(NOW_S) == 0


def test_an_overtaken_call_brings_nothing_and_ends_nothing() -> None:
    counter = warm(10)
    counter.pin(1)
    counter.answered(answer(more=OVERTAKEN, left=0), counter.limit, NOW_S + 9, NOW_S + 4)
    assert (counter.allowance, counter.usable_until_s, counter.allowance_until_s) == (10, NOW_S + 5, NOW_S + 5)


@pytest.mark.parametrize(
    ("allowance", "used", "rate", "left", "until_s"),
    [
        pytest.param(30, 0, 100.0, PLENTY, 5.0, id="a small part of what is left: while the view is fresh"),
        pytest.param(63, 0, 100.0, PLENTY, 0.15, id="a considerable part"),
        pytest.param(30, 700, 100.0, PLENTY, 0.15, id="a considerable part of the little that is left"),
        pytest.param(1, 999, 1.0, PLENTY, 5.0, id="a unit of a slow node"),
        pytest.param(30, 0, 100.0, 12, 1.2, id="near the limit: two turns"),
    ],
)
def test_an_allowance_is_spent_for_as_long_as_that_harms_nobody(
    allowance: int, used: int, rate: float, left: int, until_s: float
) -> None:
    counter = window_counter(limit(1_000, 60))
    counter.requests_per_s = rate
    counter.pin(1)
    counter.answered(answer(Count(0, used, 0), more=allowance, left=left), counter.limit, NOW_S + 5, NOW_S)
    assert counter.allowance_until_s == pytest.approx(NOW_S + until_s)
    assert counter.spendable(NOW_S + until_s - 0.001) == allowance
    assert counter.spendable(NOW_S + until_s) == 0
    assert isinstance(counter.shard, QuietShard)
    due_s = [] if until_s == 5.0 else [pytest.approx(NOW_S + until_s - 0.005)]
    assert counter.shard.reports_at == due_s, "what is held briefly is renewed, or given back"


def test_half_of_a_turn_is_wanted_until_a_call_brings_too_little() -> None:
    counter = warm(of=limit(1_000, 60))
    counter.pause = Pause(counter.limit)
    counter.asked = counter.requests = 100
    assert sent(counter, after_s=1.0)[1] == 30
    counter.pause.short = True
    counter.asked = counter.requests = 100
    assert sent(counter, after_s=2.0)[1] == 60


def test_what_was_charged_in_a_bucket_and_not_spent_is_spent_on_nobody() -> None:
    counter = bucket_counter(bucket_limit(60, burst=10))
    counter.pin(1)
    counter.answered(BucketAnswer(5, NOW_MS + 5_000, 0, 0), counter.limit, NOW_S + 5, NOW_S)
    hold = counter.hold(2, NOW_MS, BucketAnswer(5, 0, 0, 0))
    counter.conclude(
        counter.report(1, 0, 0, False, NOW_S), BucketAnswer(5, 0, 0, 0), counter.limit, 0, NOW_S, lambda: 0.0
    )
    assert (counter.total, counter.vain, counter.credit, counter.missing(1)) == (3, 3, 0, 1)
    counter.settle(hold, commit=False)
    assert (counter.total, counter.vain, counter.unacked) == (5, 5, 0)
