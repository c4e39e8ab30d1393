"""Fixed window and GCRA, by exact values; GCRA against a token bucket that keeps fractions."""

from fractions import Fraction

import pytest
from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import BucketCounter
from headgate.limiter.fixed_window import FixedWindow, FixedWindowCounter
from headgate.limiter.gcra import Gcra
from headgate.limiter.limit import Algorithm, Limit, Unit
from hypothesis import given
from hypothesis import strategies as st

GCRA = Gcra()
FIXED = FixedWindow()
NOW_MS = 1_700_000_000_000


def bucket_limit(rate: int, unit: Unit, burst: int) -> Limit:
    return Limit(rate, unit, algorithm=Algorithm.GCRA, burst=burst)


def test_fixed_window_forgets_the_previous_one() -> None:
    limit = Limit(3, Unit.SECOND, algorithm=Algorithm.FIXED_WINDOW)
    cell = FIXED.new_counter(b"k", limit, NOW_MS)
    assert [FIXED.take(cell, limit, NOW_MS + 900, 1) for _ in range(4)] == [2, 1, 0, OVER]
    assert FIXED.retry_ms(cell, limit, NOW_MS + 900, 1) == 100
    assert FIXED.take(cell, limit, NOW_MS + 1_000, 3) == 0
    assert FIXED.remaining(cell, limit, NOW_MS + 1_000) == 0


def test_fixed_window_release_gives_back() -> None:
    limit = Limit(3, Unit.SECOND, algorithm=Algorithm.FIXED_WINDOW)
    cell = FIXED.new_counter(b"k", limit, NOW_MS)
    FIXED.take(cell, limit, NOW_MS, 2)
    FIXED.release(cell, limit, 2)
    assert FIXED.remaining(cell, limit, NOW_MS) == 3


@pytest.mark.parametrize("cost", [0, 1])
def test_a_limit_of_zero_denies_always(cost: int) -> None:
    limit = Limit(0, Unit.SECOND, algorithm=Algorithm.FIXED_WINDOW)
    assert FIXED.take(FixedWindowCounter(b"k", limit, NOW_MS // 1000), limit, NOW_MS, cost) == OVER
    nothing = bucket_limit(0, Unit.SECOND, 0)
    cell = GCRA.new_counter(b"k", nothing, NOW_MS)
    assert GCRA.take(cell, nothing, NOW_MS, cost) == OVER
    assert GCRA.retry_ms(cell, nothing, NOW_MS, cost) == 1000
    assert GCRA.remaining(cell, nothing, NOW_MS) == 0


def test_gcra_spends_its_burst_then_keeps_its_rate() -> None:
    limit = bucket_limit(10, Unit.SECOND, burst=3)  # one more every 100 ms
    cell = GCRA.new_counter(b"k", limit, NOW_MS)
    assert [GCRA.take(cell, limit, NOW_MS, 1) for _ in range(4)] == [2, 1, 0, OVER]
    assert GCRA.retry_ms(cell, limit, NOW_MS, 1) == 100
    assert GCRA.retry_ms(cell, limit, NOW_MS, 3) == 300
    assert GCRA.retry_ms(cell, limit, NOW_MS, 4) == 1000, "never fits"
    assert GCRA.reset_ms(cell, limit, NOW_MS) == 300
    assert GCRA.take(cell, limit, NOW_MS + 99, 1) == OVER
    assert GCRA.take(cell, limit, NOW_MS + 100, 1) == 0
    assert GCRA.take(cell, limit, NOW_MS + 100, 0) == 0


def test_gcra_is_exact_at_rates_that_do_not_divide_a_millisecond() -> None:
    limit = bucket_limit(3, Unit.SECOND, burst=1)  # one every 333⅓ ms
    cell = GCRA.new_counter(b"k", limit, NOW_MS)
    admitted = [ms for ms in range(1_000 * 3) if GCRA.take(cell, limit, NOW_MS + ms, 1) != OVER]
    assert admitted == [0, 334, 668, 1002, 1336, 1670, 2004, 2338, 2672]


def test_gcra_restates_its_time_when_the_rate_changes() -> None:
    slow, fast = bucket_limit(1, Unit.SECOND, burst=1), bucket_limit(10, Unit.SECOND, burst=1)
    cell = GCRA.new_counter(b"k", slow, NOW_MS)
    assert GCRA.take(cell, slow, NOW_MS, 1) == 0
    assert GCRA.take(cell, fast, NOW_MS + 999, 1) == OVER, "what was taken stays taken"
    assert GCRA.take(cell, fast, NOW_MS + 1_000, 1) == 0
    assert GCRA.retry_ms(cell, fast, NOW_MS + 1_000, 1) == 100


class TokenBucket:
    """The reference: tokens as a fraction, refilled as time passes."""

    def __init__(self, rate: int, window_ms: int, burst: int, now_ms: int) -> None:
        self.per_ms = Fraction(rate, window_ms)
        self.burst = burst
        self.tokens = Fraction(burst)
        self.now_ms = now_ms

    def take(self, now_ms: int, cost: int) -> int:
        self.tokens = min(Fraction(self.burst), self.tokens + (now_ms - self.now_ms) * self.per_ms)
        self.now_ms = now_ms
        if cost > self.tokens:
            return OVER
        self.tokens -= cost
        return int(self.tokens)


@given(
    rate=st.integers(1, 5_000),
    unit=st.sampled_from([Unit.SECOND, Unit.MINUTE, Unit.DAY]),
    burst=st.integers(1, 50),
    steps=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 60)), max_size=60),
)
def test_gcra_is_a_token_bucket(rate: int, unit: Unit, burst: int, steps: list[tuple[int, int]]) -> None:
    limit = bucket_limit(rate, unit, burst)
    cell = GCRA.new_counter(b"k", limit, NOW_MS)
    reference = TokenBucket(rate, limit.window_ms, burst, NOW_MS)
    now_ms = NOW_MS
    for pause_ms, cost in steps:
        now_ms += pause_ms
        expected = reference.take(now_ms, cost)
        assert GCRA.take(cell, limit, now_ms, cost) == expected
        if expected == OVER and cost <= burst:
            wait_ms = GCRA.retry_ms(cell, limit, now_ms, cost)
            assert _fits(cell, limit, now_ms + wait_ms, cost)
            assert not _fits(cell, limit, now_ms + wait_ms - 1, cost), "the retry time is exact"


def _fits(cell: BucketCounter, limit: Limit, now_ms: int, cost: int) -> bool:
    copy = BucketCounter(cell.key, cell.limit)
    copy.tat = cell.tat
    return GCRA.take(copy, limit, now_ms, cost) != OVER
