"""Keys without room in a full table: one shared count per limit, never unlimited."""

import pytest
from headgate.limiter.decision import Charge, DecisionPath
from headgate.limiter.limit import Limit, OnError, Unit
from headgate.region.overflow import MAX_LIMITS, Overflow

NOW_MS = 1_700_000_040_000


def limit(on_error: OnError = OnError.LOCAL, amount: int = 5) -> Limit:
    return Limit(amount, Unit.MINUTE, on_error=on_error)


def ask(overflow: Overflow, *charges: Charge, over: tuple[bool, ...] | None = None) -> bool:
    return overflow.decide(charges, over or (False,) * len(charges), NOW_MS).admitted


@pytest.mark.parametrize("on_error", [OnError.LOCAL, OnError.OPEN])
def test_a_flood_of_new_keys_gets_one_limit_together(on_error: OnError) -> None:
    overflow, rule = Overflow(), limit(on_error)
    admitted = sum(ask(overflow, Charge(b"key%d" % number, rule, 1)) for number in range(100))
    assert admitted == 5


def test_closed_admits_nothing_and_says_so() -> None:
    decision = Overflow().decide((Charge(b"k", limit(OnError.CLOSED), 1),), (False,), NOW_MS)
    assert (decision.admitted, decision.path) == (False, DecisionPath.DEGRADED_CLOSED)


def test_a_denied_request_charges_no_shared_count() -> None:
    overflow, wide, narrow = Overflow(), limit(amount=10), limit(amount=1)
    for _ in range(50):
        ask(overflow, Charge(b"a", wide, 1), Charge(b"b", narrow, 1))
    assert sum(ask(overflow, Charge(b"c", wide, 1)) for _ in range(50)) == 9


def test_what_its_own_counter_denies_stays_denied() -> None:
    assert not ask(Overflow(), Charge(b"a", limit(), 1), Charge(b"b", limit(), 1), over=(True, False))


def test_shared_counts_are_bounded() -> None:
    overflow = Overflow()
    for _ in range(MAX_LIMITS + 100):
        ask(overflow, Charge(b"k", limit(), 1))
    assert len(overflow._counters) == MAX_LIMITS
