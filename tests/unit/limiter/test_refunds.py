"""Refunds on one node: out of this window, then out of the one before; out of what a bucket has in use."""

import dataclasses

import pytest
from headgate.limiter.decision import Charge, Decision, Kind
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Unit

from tests.support.clock import ManualClock

NOW_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
SLIDING = Limit(100, Unit.MINUTE, refund=True)
FIXED = dataclasses.replace(SLIDING, algorithm=Algorithm.FIXED_WINDOW)
BUCKET = Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=10, refund=True)
TOKENS = dataclasses.replace(SLIDING, overdraft=True)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.engine = Engine(self.clock, max_cells=100)

    def take(self, cost: int, limit: Limit) -> bool:
        return self.engine.decide((Charge(b"k", limit, cost),)).admitted

    def back(self, cost: int, limit: Limit) -> Decision:
        return self.engine.decide((Charge(b"k", limit, cost, refund=True),))


@pytest.fixture
def world() -> World:
    return World()


def test_a_refund_is_neither_late_nor_a_look_and_no_quota_hangs_on_it() -> None:
    charge = Charge(b"k", dataclasses.replace(TOKENS, quota=True), 5, refund=True)
    assert (charge.kind, charge.cost, charge.quota, charge.plain) == (Kind.REFUND, 5, False, False)
    assert charge.peek is charge


@pytest.mark.parametrize(
    ("limit", "capacity"), [(SLIDING, 100), (FIXED, 100), (BUCKET, 10)], ids=["sliding", "fixed", "gcra"]
)
def test_what_is_given_back_may_be_taken_again_at_once(world: World, limit: Limit, capacity: int) -> None:
    assert world.take(capacity, limit)
    assert not world.take(1, limit), "and the denial is remembered"
    assert world.back(4, limit).verdicts[0][:2] == (False, 4)
    assert not world.take(5, limit)
    assert world.take(4, limit)
    assert not world.take(1, limit)


@pytest.mark.parametrize(
    ("limit", "capacity"), [(SLIDING, 100), (FIXED, 100), (BUCKET, 10)], ids=["sliding", "fixed", "gcra"]
)
def test_no_more_is_given_back_than_counts(world: World, limit: Limit, capacity: int) -> None:
    world.take(3, limit)
    assert world.back(50, limit).verdicts[0][1] == capacity
    assert world.take(capacity, limit)
    assert not world.take(1, limit)


def test_after_a_window_s_end_it_comes_out_of_the_window_before(world: World) -> None:
    world.take(100, SLIDING)
    world.clock.advance(60_000)
    assert not world.take(1, SLIDING)
    world.back(40, SLIDING)
    assert world.take(40, SLIDING)
    assert not world.take(1, SLIDING)


def test_what_a_bucket_has_drained_is_back_already(world: World) -> None:
    world.take(10, BUCKET)
    world.clock.advance(8_000)
    assert world.back(10, BUCKET).verdicts[0][1] == 10
    assert world.take(10, BUCKET)
    assert not world.take(1, BUCKET)


def test_a_debt_may_be_given_back(world: World) -> None:
    world.engine.decide((Charge(b"k", TOKENS, 150),))
    assert world.back(60, TOKENS).verdicts[0][:2] == (False, 10)
