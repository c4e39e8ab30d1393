"""The engine: all or nothing, deny_until, modes, and a clock that may misbehave."""

import random

import pytest
from headgate.limiter.decision import Charge, Decision, DecisionPath
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Unit
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import ManualClock
from tests.support.properties import examples

NOW_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
TEN = Limit(10, Unit.MINUTE)
ONE = Limit(1, Unit.MINUTE)


def engine(max_cells: int = 1000) -> tuple[Engine, ManualClock]:
    clock = ManualClock(NOW_MS)
    return Engine(clock, max_cells=max_cells), clock


def charge(key: str, limit: Limit, cost: int = 1, *, shadow: bool = False) -> Charge:
    return Charge(key.encode(), limit, cost, shadow=shadow)


def remaining_of(decider: Engine, key: str, limit: Limit) -> int:
    """Looks without charging."""
    return decider.decide((charge(key, limit, 0),)).verdicts[0][1]


def test_an_allowance_says_what_remains_and_when_the_window_ends() -> None:
    decider, clock = engine()
    clock.advance(15_000)
    assert decider.decide((charge("a", TEN),)) == Decision(True, DecisionPath.LOCAL, [(False, 9, 45_000)])


def test_a_denied_request_charges_nothing_anywhere() -> None:
    decider, _ = engine()
    decider.decide((charge("full", ONE),))
    decision = decider.decide((charge("a", TEN, 3), charge("full", ONE), charge("b", TEN, 2)))
    assert not decision.admitted
    assert [over for over, _, _ in decision.verdicts] == [False, True, False]
    assert [left for _, left, _ in decision.verdicts] == [10, 0, 10], "statuses show what is really left"
    assert remaining_of(decider, "a", TEN) == 10
    assert remaining_of(decider, "b", TEN) == 10


def test_a_cost_above_the_limit_is_denied_and_charges_nothing() -> None:
    decider, _ = engine()
    assert decider.decide((charge("a", TEN, 100),)) == Decision(False, DecisionPath.LOCAL, [(True, 0, 60_000)])
    assert remaining_of(decider, "a", TEN) == 10


def test_a_key_that_stands_in_a_request_twice_pays_twice() -> None:
    decider, _ = engine()
    assert decider.decide((charge("a", TEN, 4), charge("a", TEN, 4))).admitted
    assert not decider.decide((charge("a", TEN, 1), charge("a", TEN, 2))).admitted
    # Neither part alone was too much, so neither may be remembered as denied.
    assert decider.decide((charge("a", TEN, 2),)).admitted


def test_a_denial_is_answered_from_memory_until_the_exact_time() -> None:
    decider, clock = engine()
    decider.decide((charge("a", ONE),))
    first = decider.decide((charge("a", ONE),))
    assert first == Decision(False, DecisionPath.LOCAL, [(True, 0, 60_001)])
    clock.advance(60_000)
    assert decider.decide((charge("a", ONE),)) == Decision(False, DecisionPath.DENY_CACHE, [(True, 0, 1)])
    clock.advance(1)
    assert decider.decide((charge("a", ONE),)).admitted


def test_a_remembered_denial_binds_larger_costs_only() -> None:
    decider, _ = engine()
    decider.decide((charge("a", TEN, 8),))
    assert not decider.decide((charge("a", TEN, 3),)).admitted
    larger = decider.decide((charge("a", TEN, 5),))
    assert larger.path is DecisionPath.DENY_CACHE
    assert larger.verdicts[0][2] > decider.decide((charge("a", TEN, 3),)).verdicts[0][2], "its own time, exactly"
    assert decider.decide((charge("a", TEN, 2),)).admitted


def test_a_raised_limit_admits_at_once_and_a_lowered_one_denies_at_once() -> None:
    decider, _ = engine()
    decider.decide((charge("a", ONE),))
    assert not decider.decide((charge("a", ONE),)).admitted
    assert decider.decide((charge("a", TEN),)).verdicts == [(False, 8, 60_000)]
    assert not decider.decide((charge("a", ONE, 0),)).admitted


def test_looking_costs_nothing_even_at_the_limit() -> None:
    decider, _ = engine()
    decider.decide((charge("a", TEN, 10),))
    assert decider.decide((charge("a", TEN, 0),)) == Decision(True, DecisionPath.LOCAL, [(False, 0, 60_000)])


def test_a_shadow_rule_decides_and_records_but_never_denies() -> None:
    decider, _ = engine()
    decider.decide((charge("a", ONE, shadow=True),))
    decision = decider.decide((charge("a", ONE, shadow=True), charge("b", TEN)))
    assert (decision.admitted, decision.path) == (True, DecisionPath.SHADOW)
    assert [over for over, _, _ in decision.verdicts] == [True, False]
    assert remaining_of(decider, "b", TEN) == 9, "the request passed, so the others are charged"


def test_a_shadow_rule_does_not_save_a_request_from_another_rule() -> None:
    decider, _ = engine()
    decider.decide((charge("a", ONE), charge("b", ONE)))
    decision = decider.decide((charge("a", ONE, shadow=True), charge("b", ONE), charge("c", TEN)))
    assert not decision.admitted
    assert remaining_of(decider, "c", TEN) == 10


QUOTA = Limit(1, Unit.MINUTE, quota=True)


@pytest.mark.parametrize(
    ("full", "admitted", "charged"),
    [
        ((), True, ("q1", "q2", "plain")),
        (("q1",), True, ("q2", "plain")),
        (("q1", "q2"), False, ()),
        (("plain",), False, ()),
        (("q1", "plain"), False, ()),
    ],
)
def test_quota_descriptors_deny_only_together(full: tuple[str, ...], admitted: bool, charged: tuple[str, ...]) -> None:
    decider, _ = engine()
    limits = {"q1": QUOTA, "q2": QUOTA, "plain": ONE}
    for key in full:
        decider.decide((charge(key, limits[key]),))
    decision = decider.decide(tuple(charge(key, limit) for key, limit in limits.items()))
    assert decision.admitted is admitted
    assert [over for over, _, _ in decision.verdicts] == [key in full for key in limits]
    for key in set(limits) - set(full):
        assert remaining_of(decider, key, limits[key]) == (0 if key in charged else 1)


@pytest.mark.parametrize(
    ("full", "admitted"),
    [((), True), (("a tenant",), True), (("a tenant", "b all"), False), (("a tenant", "a all"), True)],
)
def test_quotas_of_one_model_are_over_if_any_of_them_is(full: tuple[str, ...], admitted: bool) -> None:
    """A request is denied when no model is left to which it may go."""
    decider, _ = engine()
    budgets = {
        name: Charge(
            name.encode(), QUOTA, 1, entries=(("backend_name", name[0]), ("model_name_override", "m"), ("x", "y"))
        )
        for name in ("a tenant", "a all", "b tenant", "b all")
    }
    for name in full:
        decider.decide((budgets[name],))
    assert decider.decide(tuple(budgets.values())).admitted is admitted


def test_a_clock_that_is_set_back_reopens_no_window() -> None:
    decider, clock = engine()
    decider.decide((charge("a", TEN, 10),))
    clock.step(-3_600_000)
    assert not decider.decide((charge("a", TEN),)).admitted
    clock.step(3_600_000)
    assert not decider.decide((charge("a", TEN),)).admitted


def test_a_clock_that_jumps_ahead_starts_a_new_window() -> None:
    decider, clock = engine()
    decider.decide((charge("a", TEN, 10),))
    clock.step(3_600_000)
    assert decider.decide((charge("a", TEN, 10),)).admitted


class MeasuredLog:
    """What was admitted, and the sliding window's own measure of it at any time."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.counts: dict[int, int] = {}

    def admit(self, now_ms: int, cost: int) -> int:
        sequence, elapsed_ms = divmod(now_ms, self.window_ms)
        self.counts[sequence] = self.counts.get(sequence, 0) + cost
        previous = self.counts.get(sequence - 1, 0)
        return self.counts[sequence] + previous * (self.window_ms - elapsed_ms) // self.window_ms


@given(
    limit=st.integers(1, 40),
    steps=st.lists(st.tuples(st.integers(0, 1_500), st.integers(0, 12)), max_size=120),
)
def test_never_more_than_the_limit_by_the_algorithms_own_measure(limit: int, steps: list[tuple[int, int]]) -> None:
    decider, clock = engine()
    rule = Limit(limit, Unit.SECOND)
    log = MeasuredLog(1_000)
    for pause_ms, cost in steps:
        clock.advance(pause_ms)
        decision = decider.decide((charge("a", rule, cost),))
        if decision.admitted and cost:
            assert log.admit(clock.now_ms(), cost) <= limit
        over, _, retry_ms = decision.verdicts[0]
        if over and cost <= limit:
            assert _would_admit(decider, clock, rule, cost, retry_ms)
            assert not _would_admit(decider, clock, rule, cost, retry_ms - 1), "the retry time is exact"


def _would_admit(decider: Engine, clock: ManualClock, rule: Limit, cost: int, after_ms: int) -> bool:
    """Ask a copy of the engine's cell, later."""
    original = decider.counters.find(b"a")
    later = ManualClock(clock.now_ms() + after_ms)
    copy = Engine(later, max_cells=10)
    twin = Charge(b"a", rule, cost)
    cell = twin.algorithm.new_counter(b"a", rule, clock.now_ms())
    for name in ("sequence", "current", "previous"):
        setattr(cell, name, getattr(original, name))
    copy.counters.add(cell, clock.now_ms())
    return copy.decide((twin,)).admitted


ALGORITHMS = st.sampled_from(list(Algorithm))


@examples(200)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_all_or_nothing_under_any_interleaving(data: st.DataObject, seed: int) -> None:
    """Whatever requests come, each key's count is exactly the cost of the admitted ones."""
    chooser = random.Random(seed)
    decider, _ = engine()
    limits = {
        key: Limit(data.draw(st.integers(1, 15)), Unit.YEAR, algorithm=algorithm, burst=burst)
        for key, (algorithm, burst) in {
            "a": (data.draw(ALGORITHMS), 9),
            "b": (data.draw(ALGORITHMS), 5),
            "c": (data.draw(ALGORITHMS), 3),
        }.items()
    }
    spent = dict.fromkeys(limits, 0)
    for _ in range(40):
        keys = [chooser.choice("abc") for _ in range(chooser.randint(1, 4))]
        charges = tuple(charge(key, limits[key], chooser.randint(0, 4)) for key in keys)
        if decider.decide(charges).admitted:
            for part in charges:
                spent[part.key.decode()] += part.cost
    for key, limit in limits.items():
        capacity = limit.burst if limit.algorithm is Algorithm.GCRA else limit.requests_per_unit
        assert spent[key] <= capacity
        assert remaining_of(decider, key, limit) == capacity - spent[key]
