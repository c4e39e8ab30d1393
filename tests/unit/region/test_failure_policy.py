"""What a rule admits while its shard can't be asked: `local`, `open` and `closed`, for windows and buckets."""

from typing import NamedTuple

import pytest
from headgate.limiter.limit import Algorithm, Limit, OnError
from headgate.origin.protocol import BucketAnswer, Count
from headgate.region.policy import admits, ceiling, weighted

from tests.unit.region.support import (
    NOW_MS,
    WINDOW_MS,
    answer,
    bucket_counter,
    bucket_limit,
    case,
    window_counter,
    window_limit,
)


@pytest.mark.parametrize(
    ("own", "live_nodes", "counts_as"),
    [
        case(10, 1, 10, id="alone"),
        case(0, 9, 0, id="nothing is nothing"),
        case(3, 2, 4, id="two nodes: four thirds"),
        case(1, 2, 2, id="rounded up"),
        case(3, 3, 6, id="three nodes: twice"),
        case(1, 3, 2, id="three nodes, one request"),
        case(3, 12, 24, id="twelve nodes: eight times"),
    ],
)
def test_own_cost_counts_once_for_every_one_and_a_half_nodes(own: int, live_nodes: int, counts_as: int) -> None:
    assert weighted(own, live_nodes) == counts_as


class Window(NamedTuple):
    """What is known of a key: 30 are allowed a minute."""

    others: int = 0
    total: int = 0
    reserved: int = 0
    own: int = 0
    """Of total and reserved, what the shard has acknowledged; above them it is credit."""
    previous: int = 0
    elapsed_ms: int = 0


FIXED, SLIDING = Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW
BUSY = Window(others=20, total=4, own=4)
"""6 are left, and all is acknowledged."""
UNACKED = Window(others=20, total=6, own=4)
WAITING = Window(others=20, total=4, reserved=2, own=4)
CREDIT = Window(others=20, total=4, own=10)


@pytest.mark.parametrize(
    ("algorithm", "known", "live_nodes", "most"),
    [
        case(FIXED, Window(), 1, 30, id="nothing known, alone: the limit"),
        case(FIXED, Window(), 3, 15, id="nothing known, three nodes: half of it each, one and a half times in all"),
        case(FIXED, Window(), 2, 22, id="two nodes: three quarters, rounded down"),
        case(FIXED, BUSY, 1, 6, id="alone: what is left"),
        case(FIXED, BUSY, 2, 4, id="two nodes: what is left times 3/4, rounded down"),
        case(FIXED, BUSY, 3, 3, id="three nodes: half of what is left"),
        case(FIXED, UNACKED, 1, 4, id="unacknowledged, alone"),
        case(FIXED, UNACKED, 3, 1, id="unacknowledged hits are weighted too"),
        case(FIXED, WAITING, 3, 1, id="and so is what waiting requests hold"),
        case(FIXED, CREDIT, 1, 6, id="credit is paid for, and all else is gone"),
        case(FIXED, CREDIT, 9, 6, id="credit is not weighted"),
        case(FIXED, Window(others=30), 1, 0, id="nothing is left"),
        case(FIXED, Window(others=35), 1, -1, id="over already: not even a cost of nothing"),
        case(FIXED, Window(others=10, previous=20), 1, 20, id="fixed: the previous window does not count"),
        case(
            SLIDING, Window(others=10, previous=20), 1, 0, id="sliding, at its beginning: the previous counts in full"
        ),
        case(SLIDING, Window(others=10, previous=20, elapsed_ms=30_000), 1, 10, id="sliding, half way: by half"),
        case(SLIDING, Window(others=10, previous=20, elapsed_ms=30_000), 3, 5, id="sliding, half way, three nodes"),
        case(SLIDING, Window(others=10, previous=20, elapsed_ms=59_999), 1, 20, id="sliding, at its end: rounded down"),
    ],
)
def test_the_most_that_local_admits_in_a_window(
    algorithm: Algorithm, known: Window, live_nodes: int, most: int
) -> None:
    assert _most_in_window(window_limit(30, algorithm=algorithm), known, live_nodes) == most


@pytest.mark.parametrize(
    ("limit", "live_nodes", "part"),
    [
        case(30, 1, 30, id="alone: the limit"),
        case(30, 2, 22, id="two nodes: three quarters, rounded down"),
        case(30, 3, 15, id="three nodes: half of it each, one and a half times in all"),
        case(30, 30, 1, id="thirty nodes"),
        case(30, 500, 1, id="more nodes than the limit: one each"),
    ],
)
def test_all_nodes_parts_are_one_and_a_half_times_the_limit(limit: int, live_nodes: int, part: int) -> None:
    assert ceiling(window_limit(limit), live_nodes) == part


OTHERS = Window(others=1000, total=4, own=4)
SKEWED = Window(total=20, own=20)
"""This node alone has admitted, and more than its part if there are three."""


@pytest.mark.parametrize(
    ("limit", "on_error", "known", "live_nodes", "most"),
    [
        case(30, OnError.OPEN, Window(), 1, 30, id="open, alone: up to the limit"),
        case(30, OnError.OPEN, Window(), 3, 15, id="open, three nodes: one and a half times the limit in all"),
        case(30, OnError.OPEN, Window(), 500, 1, id="open, more nodes than the limit: one each"),
        case(30, OnError.OPEN, OTHERS, 1, 26, id="open: what others have does not matter"),
        case(30, OnError.OPEN, OTHERS, 3, 11, id="open, three nodes: nor there"),
        case(30, OnError.OPEN, WAITING, 1, 24, id="open: what this node holds does"),
        case(30, OnError.OPEN, WAITING, 3, 9, id="open, three nodes: there too"),
        case(30, OnError.OPEN, Window(total=30, own=30), 1, 0, id="open: a hard ceiling"),
        case(30, OnError.OPEN, Window(total=15), 3, 0, id="open, three nodes: a hard ceiling"),
        case(30, OnError.OPEN, SKEWED, 3, 5, id="open: over its part, as much as local admits"),
        case(30, OnError.LOCAL, SKEWED, 3, 5, id="local: half of what is left"),
        case(30, OnError.CLOSED, Window(), 1, -1, id="closed: nothing, not even a cost of nothing"),
        case(0, OnError.OPEN, Window(), 9, -1, id="a limit of 0 denies always, open"),
        case(0, OnError.LOCAL, Window(), 9, -1, id="a limit of 0 denies always, local"),
    ],
)
def test_the_most_that_other_policies_admit_in_a_window(
    limit: int, on_error: OnError, known: Window, live_nodes: int, most: int
) -> None:
    assert _most_in_window(window_limit(limit, on_error=on_error), known, live_nodes) == most


class Bucket(NamedTuple):
    """What is known of a bucket of 10 that refills by one a second."""

    used: int = 0
    """By the region's last answer."""
    total: int = 0
    own: int = 0


@pytest.mark.parametrize(
    ("on_error", "known", "live_nodes", "most"),
    [
        case(OnError.LOCAL, Bucket(), 1, 10, id="full, alone: the burst"),
        case(OnError.LOCAL, Bucket(), 3, 5, id="full, three nodes: half of it"),
        case(OnError.LOCAL, Bucket(used=4), 1, 6, id="four are used"),
        case(OnError.LOCAL, Bucket(used=4), 3, 3, id="four are used, three nodes"),
        case(OnError.LOCAL, Bucket(used=10), 1, 0, id="empty"),
        case(OnError.LOCAL, Bucket(used=12), 1, -1, id="over already"),
        case(OnError.LOCAL, Bucket(used=-5), 1, 10, id="full since five seconds: no more than the burst"),
        case(OnError.LOCAL, Bucket(total=2), 1, 8, id="two are not acknowledged"),
        case(OnError.LOCAL, Bucket(used=4, total=2), 3, 1, id="and are weighted"),
        case(OnError.OPEN, Bucket(used=10, total=2), 1, 8, id="open: what others have does not matter"),
        case(OnError.OPEN, Bucket(used=10, total=2), 3, 3, id="open, three nodes: one and a half bursts in all"),
        case(OnError.OPEN, Bucket(used=10, total=10), 1, 0, id="open: a hard ceiling"),
        case(OnError.OPEN, Bucket(used=10, total=5), 3, 0, id="open, three nodes: a hard ceiling"),
        case(OnError.CLOSED, Bucket(), 1, -1, id="closed"),
    ],
)
def test_the_most_that_is_admitted_from_a_bucket(on_error: OnError, known: Bucket, live_nodes: int, most: int) -> None:
    limit = bucket_limit(on_error=on_error)
    counter = bucket_counter(limit)
    if known.total:
        counter.spend(known.total, 0, NOW_MS)
    counter.learn(BucketAnswer(known.own, NOW_MS + known.used * 1_000, 0, 0))
    admitted = [cost for cost in range(20) if admits(counter, limit, cost, NOW_MS, live_nodes)]
    assert admitted == list(range(most + 1))


def _most_in_window(limit: Limit, known: Window, live_nodes: int) -> int:
    """The highest cost that is admitted; -1 if none is. All lower ones must be too."""
    counter = window_counter(limit)
    counter.current_cell.total, counter.current_cell.reserved = known.total, known.reserved
    count = Count(known.own, known.own + known.others, 0)
    counter.learn(answer(count, Count(0, known.previous, 0)))
    now_ms = NOW_MS + known.elapsed_ms
    assert now_ms < NOW_MS + WINDOW_MS
    admitted = [cost for cost in range(60) if admits(counter, limit, cost, now_ms, live_nodes)]
    assert admitted == list(range(len(admitted)))
    return len(admitted) - 1
