"""Costs that are known later, on one node: charged in any case, looked for with a cost of 0."""

import dataclasses

import pytest
from headgate.limiter.decision import Charge, Decision, DecisionPath, Kind
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Unit

from tests.support.clock import ManualClock

NOW_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
TOKENS = Limit(1000, Unit.MINUTE, overdraft=True)
FIXED = dataclasses.replace(TOKENS, algorithm=Algorithm.FIXED_WINDOW)
BUCKET = Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=10, overdraft=True)
PLAIN = Limit(10, Unit.MINUTE)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.engine = Engine(self.clock, max_cells=100)

    def late(self, cost: int, limit: Limit = TOKENS, key: str = "k", *, shadow: bool = False) -> Decision:
        return self.engine.decide((Charge(key.encode(), limit, cost, shadow=shadow),))

    def look(self, limit: Limit = TOKENS, key: str = "k") -> Decision:
        return self.late(0, limit, key)


@pytest.fixture
def world() -> World:
    return World()


def test_what_a_cost_is_follows_from_the_rule() -> None:
    assert Charge(b"k", TOKENS, 5).kind is Kind.LATE
    assert Charge(b"k", TOKENS, 0).kind is Kind.PEEK
    assert Charge(b"k", PLAIN, 5).kind is Kind.TAKE
    assert Charge(b"k", PLAIN, 0).kind is Kind.TAKE
    assert Charge(b"k", PLAIN, 5, late=True).kind is Kind.LATE
    assert Charge(b"k", TOKENS, 5, late=False).kind is Kind.TAKE


@pytest.mark.parametrize("limit", [TOKENS, FIXED], ids=lambda limit: limit.algorithm.value)
def test_a_late_cost_is_charged_also_where_it_does_not_fit(world: World, limit: Limit) -> None:
    assert world.late(990, limit).verdicts[0][:2] == (False, 10)
    decision = world.late(500, limit)
    assert (decision.admitted, decision.path) == (False, DecisionPath.LOCAL)
    assert decision.verdicts[0][:2] == (True, 0), "nothing remains while it is overdrawn"
    counter = world.engine.counters.find(b"k")
    assert counter is not None
    assert counter.current == 1490  # type: ignore[attr-defined]


def test_the_retry_time_is_when_one_unit_fits_again(world: World) -> None:
    over = world.late(1500)
    # The window must end first; then 1,500 weighs at most 999 from a third of the next one on.
    retry_ms = over.verdicts[0][2]
    assert retry_ms == 60_000 + 20_001
    world.clock.advance(retry_ms - 1)
    assert not world.look().admitted
    world.clock.advance(1)
    assert world.look().admitted


def test_a_fixed_window_forgets_its_debt_when_it_ends(world: World) -> None:
    world.clock.advance(15_000)
    assert world.late(100_000, FIXED).verdicts == [(True, 0, 45_000)]
    world.clock.advance(45_000)
    assert world.look(FIXED).verdicts == [(False, 1000, 60_000)]


def test_a_look_charges_nothing_and_is_decided_as_a_cost_of_one(world: World) -> None:
    for _ in range(3):
        assert world.look().verdicts[0][:2] == (False, 1000)
    world.late(999)
    assert world.look().verdicts[0][:2] == (False, 1)
    world.late(1)
    assert not world.look().admitted, "all is used: a cost of 0 would fit, a caller does not"
    assert world.look().path is DecisionPath.DENY_CACHE


def test_a_denial_from_memory_never_swallows_a_late_cost(world: World) -> None:
    world.late(1000)
    assert not world.look().admitted
    world.late(700)
    counter = world.engine.counters.find(b"k")
    assert counter is not None
    assert counter.current == 1700  # type: ignore[attr-defined]


def test_a_mixed_request_is_denied_as_ever_and_charges_what_is_late(world: World) -> None:
    def ask(late: int, plain: int) -> Decision:
        return world.engine.decide((Charge(b"k", TOKENS, late), Charge(b"p", PLAIN, plain)))

    assert ask(400, 8).admitted
    over_plain = ask(400, 8)
    assert not over_plain.admitted
    assert [verdict[:2] for verdict in over_plain.verdicts] == [(False, 200), (True, 0)]
    over_late = ask(400, 1)
    assert not over_late.admitted
    assert [verdict[:2] for verdict in over_late.verdicts] == [(True, 0), (False, 2)]
    assert world.engine.decide((Charge(b"p", PLAIN, 2),)).admitted, "the plain part of a denied request is not charged"


def test_a_look_that_finds_no_room_denies_the_others(world: World) -> None:
    world.late(2000)
    decision = world.engine.decide((Charge(b"p", PLAIN, 3), Charge(b"k", TOKENS, 0)))
    assert not decision.admitted
    assert [over for over, _, _ in decision.verdicts] == [False, True]
    assert world.engine.decide((Charge(b"p", PLAIN, 10),)).admitted


def test_a_shadow_rule_is_charged_and_never_denies(world: World) -> None:
    assert world.late(2000, shadow=True) == Decision(True, DecisionPath.SHADOW, [(True, 0, 60_000 + 30_001)])
    shadow = Charge(b"k", TOKENS, 0, shadow=True)
    assert world.engine.decide((shadow,)).admitted
    assert not world.look().admitted


def test_a_bucket_goes_beyond_its_burst_by_a_window_at_most(world: World) -> None:
    assert world.late(4, BUCKET).verdicts[0][:2] == (False, 6)
    # 16 more than fit, at one a second, and one more until one unit fits.
    assert world.late(22, BUCKET).verdicts == [(True, 0, 17_000)]
    # However much: the burst of 10 and a window's 60 are in use, so 61 s until one unit fits.
    assert world.late(4_000_000_000, BUCKET).verdicts == [(True, 0, 61_000)]
    world.clock.advance(60_999)
    assert not world.look(BUCKET).admitted
    world.clock.advance(1)
    assert world.look(BUCKET).verdicts[0][:2] == (False, 1)


def test_a_key_that_stands_in_a_request_twice_pays_twice(world: World) -> None:
    decision = world.engine.decide((Charge(b"k", TOKENS, 600), Charge(b"k", TOKENS, 600)))
    assert [verdict[:2] for verdict in decision.verdicts] == [(False, 0), (True, 0)]
    assert not world.look().admitted


def test_a_limit_of_nothing_denies_looks_and_counts_costs(world: World) -> None:
    nothing = Limit(0, Unit.MINUTE, overdraft=True)
    assert world.look(nothing).verdicts == [(True, 0, 60_000)]
    assert not world.late(5, nothing).admitted
