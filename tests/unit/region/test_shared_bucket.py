"""How a bucket's counter merges answers, holds and gives back. One request is a second here, and the burst is ten.

Arrival times are written in milliseconds ahead of the shard's time.
"""

from dataclasses import replace
from typing import NamedTuple

import pytest
from headgate.limiter.gcra import Gcra
from headgate.origin.protocol import OVERTAKEN, BucketAnswer, BucketReport
from headgate.region.bucket_counter import SharedBucket

from tests.unit.region.support import NOW_MS, bucket_counter, bucket_limit, case

SECOND_MS = 1_000


class Shown(NamedTuple):
    """A bucket, as far as its node can tell."""

    ahead_ms: float
    unacked: int = 0
    credit: int = 0


def shown(counter: SharedBucket) -> Shown:
    vain = max(0, counter.own - counter.total - counter.reserved)
    return Shown(counter.tat / counter.rate - NOW_MS, counter.unacked, vain)


def told(own: int, ahead_ms: int, rest: int = 0) -> BucketAnswer:
    return BucketAnswer(own, NOW_MS + ahead_ms, rest, OVERTAKEN)


def counter_with(admitted: int = 0, own: int = 0, ahead_ms: int = 0) -> SharedBucket:
    """The shard has charged `own` for this node, which has admitted so much since the last answer."""
    counter = bucket_counter()
    assert counter.learn(told(own, ahead_ms))
    counter.has_answer = True
    for _ in range(admitted):
        missing = int(counter.own <= counter.total)
        assert Gcra().take(counter, counter.limit, NOW_MS, missing) >= 0
        counter.spend(1, 0, NOW_MS)
    return counter


@pytest.mark.parametrize(
    ("admitted", "reported", "answer", "after"),
    [
        case(0, True, told(0, 3000), Shown(3000), id="what others have used"),
        case(0, True, told(0, 3000, 30), Shown(3000.5), id="and its rest, in ticks"),
        case(2, True, told(2, 5000), Shown(5000), id="all of it is acknowledged"),
        case(2, True, told(4, 5000), Shown(5000, 0, 2), id="two were charged that nobody has spent"),
        case(2, True, told(0, 3000), Shown(5000, 2), id="the call was overtaken: two count on top"),
        case(2, False, told(0, 3000), Shown(5000, 2), id="admitted after the call went out: two on top"),
        case(2, False, told(0, -9000), Shown(2000, 2), id="what was admitted now can't have arrived before now"),
        case(2, True, told(0, -9000), Shown(-7000, 2), id="but what a call carried may have, by the shard's word"),
    ],
)  # fmt: skip
def test_an_answer_moves_the_arrival_time(admitted: int, reported: bool, answer: BucketAnswer, after: Shown) -> None:
    counter = counter_with(admitted)
    if reported:
        counter.report(1, 0, 0, False, 0.0)
    assert counter.learn(answer)
    assert shown(counter) == after


def test_what_the_shard_has_never_falls() -> None:
    counter = counter_with(own=5, ahead_ms=4000)
    counter.learn(told(3, 2000))
    assert (counter.own, counter.answered_arrival) == (5, (NOW_MS + 4000, 0))


@pytest.mark.parametrize(
    ("own", "ahead_ms", "cost", "held"),
    [
        case(0, 0, 3, Shown(3000, 3), id="it counts at once"),
        case(0, -5000, 3, Shown(3000, 3), id="from now, when the bucket was full"),
        case(0, 2000, 3, Shown(5000, 3), id="or from the arrival time"),
        case(3, 2000, 3, Shown(2000, 0, 0), id="the shard has charged it"),
        case(2, 2000, 3, Shown(3000, 1), id="or a part of it"),
        case(5, 2000, 3, Shown(2000, 0, 2), id="and some is left"),
    ],
)
def test_what_is_held_is_committed_where_it_is_or_given_back(own: int, ahead_ms: int, cost: int, held: Shown) -> None:
    for commit in (True, False):
        counter = counter_with(own=own, ahead_ms=ahead_ms)
        before = shown(counter)
        hold = counter.hold(cost, NOW_MS)
        assert (shown(counter), counter.reserved) == (held, cost)
        counter.settle(hold, commit=commit)
        assert counter.reserved == 0
        if commit:
            assert (counter.total, shown(counter)) == (cost, held)
        else:
            # A bucket that was full for a while is full since now; what was charged is spent on nobody.
            vain = min(own, cost)
            assert shown(counter) == before._replace(ahead_ms=max(0, before.ahead_ms), credit=own - vain)
            assert counter.total == counter.vain == vain


def test_what_was_spent_and_not_wanted_after_all_is_given_back() -> None:
    counter = counter_with(admitted=2)
    assert shown(counter) == Shown(2000, 2)
    counter.unspend(1)
    assert shown(counter) == Shown(1000, 1)
    credited = counter_with(admitted=2, own=2, ahead_ms=7000)
    assert shown(credited) == Shown(7000)
    credited.unspend(1)
    assert shown(credited) == Shown(7000, 0, 1), "it was charged, and will be spent on nobody"


@pytest.mark.parametrize(("commit", "after"), [(True, Shown(2000, 2)), (False, Shown(-NOW_MS))])
def test_what_was_held_before_the_bucket_began_anew_counts_from_now_if_it_is_committed(
    commit: bool, after: Shown
) -> None:
    counter = counter_with(admitted=3)
    hold = counter.hold(2, NOW_MS)
    counter.begin_anew()
    counter.settle(hold, commit=commit)
    assert shown(counter) == after


def test_a_bucket_too_far_ahead_was_filled_by_a_wrong_clock_and_begins_anew() -> None:
    counter = counter_with(admitted=1)
    limit, component = counter.limit, counter.component
    most_ms = (limit.burst + limit.precision + counter.rate) * SECOND_MS
    counter.learn(told(1, most_ms))
    counter.advance(NOW_MS)
    assert (counter.component, counter.own) == (component, 1)
    counter.learn(told(1, most_ms + 1))
    counter.advance(NOW_MS)
    assert counter.component != component
    assert (counter.tat, counter.total, counter.own, counter.answered_arrival) == (0, 0, 0, (0, 0))
    assert not counter.has_answer


def test_a_report_says_everything_and_offers_no_credit() -> None:
    counter = counter_with(admitted=1, own=3, ahead_ms=2000)
    counter.hold(1, NOW_MS)
    report = counter.report(7, 0, 4, True, 0.0)
    assert isinstance(report, BucketReport)
    assert (report.number, report.leaving, report.rate, report.burst) == (7, True, 60, 10)
    assert (report.total, report.reserved, report.acknowledged) == (1, 1, 3)
    assert (report.answered_ms, report.answered_rest) == (NOW_MS + 2000, 0)
    assert (report.rest, report.want) == (0, 4)
    counter.report(8, 1, 4, False, 0.0)
    assert counter.credit_offered == 0


def test_another_rate_is_in_force_from_the_next_answer_on() -> None:
    counter = counter_with()
    counter.limit = bucket_limit(rate=120)
    counter.learn(told(0, 3000, 60))
    assert counter.rate == 120
    assert shown(counter) == Shown(3000.5)


def test_it_expires_when_the_bucket_is_full_and_is_as_heavy_as_what_is_used() -> None:
    counter = counter_with(ahead_ms=2500)
    assert counter.expires_ms == NOW_MS + 2500
    assert counter.load(NOW_MS) == 250
    assert counter.load(NOW_MS + 3000) == 0
    assert not counter.lacks(told(0, 0))


def test_a_limit_of_nothing_has_a_rate_all_the_same() -> None:
    """Ticks are 1/rate ms: there must be some."""
    counter = bucket_counter(replace(bucket_limit(), requests_per_unit=0))
    counter.learn(told(0, 0))
    assert counter.rate == 1
