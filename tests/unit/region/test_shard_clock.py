"""A shard's time as a node knows it: bounds from answers, standing still for drift, following a clock that was set."""

import pytest
from headgate.region.shard_clock import SET_MS, ShardClock

from tests.support.clock import ManualClock

UNIX_MS = 1_700_000_000_000


def known(clock: ManualClock, time_ms: int = UNIX_MS) -> ShardClock:
    shard = ShardClock(clock)
    assert shard.learn(time_ms, clock.monotonic(), clock.monotonic()) == 0
    return shard


@pytest.mark.parametrize("by_ms", [1, 80, SET_MS - 2, -1, -80, -SET_MS])
def test_a_small_difference_is_drift_and_time_stands_still_rather_than_go_back(by_ms: int) -> None:
    clock = ManualClock()
    shard = known(clock)
    clock.advance(1_000)
    before_ms = shard.now_ms()
    assert shard.learn(UNIX_MS + 1_000 + by_ms, clock.monotonic(), clock.monotonic()) == 0
    assert shard.steps == 0
    assert shard.now_ms() == max(before_ms, UNIX_MS + 1_000 + by_ms)


@pytest.mark.parametrize("by_ms", [SET_MS + 2, 7_200_000, 31_536_000_000, -SET_MS - 2, -7_200_000, -31_536_000_000])
def test_a_clock_that_was_set_is_followed_whatever_it_says(by_ms: int) -> None:
    clock = ManualClock()
    shard = known(clock)
    clock.advance(1_000)
    set_ms = shard.learn(UNIX_MS + 1_000 + by_ms, clock.monotonic(), clock.monotonic())
    assert abs(set_ms - by_ms) <= 1
    assert shard.steps == 1
    assert shard.now_ms() == UNIX_MS + 1_000 + by_ms
    assert shard.certain(10)


def test_a_slow_answer_says_little_and_is_no_step() -> None:
    """It was read at some time in three seconds: what is known lies among them."""
    clock = ManualClock()
    shard = known(clock)
    sent_s = clock.monotonic()
    clock.advance(3_000)
    assert shard.learn(UNIX_MS, sent_s, clock.monotonic()) == 0
    assert shard.now_ms() == UNIX_MS + 3_000


def test_the_first_answer_is_no_step_however_wrong_this_node_was() -> None:
    clock = ManualClock(UNIX_MS + 3_600_000)
    shard = ShardClock(clock)
    assert shard.now_ms() == UNIX_MS + 3_600_000
    assert shard.learn(UNIX_MS, clock.monotonic(), clock.monotonic()) == 0
    assert shard.now_ms() == UNIX_MS
