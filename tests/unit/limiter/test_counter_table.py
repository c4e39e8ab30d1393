"""The table of counters is bounded: the expired go first, then the lightest of the least recently used; and no addition
has more to do than any other."""

import sys
from collections.abc import Iterator
from typing import Any

from headgate.limiter.by_key import MOST_WARM, PART_KEYS
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.counters import KeyCounter, WindowCounter
from headgate.limiter.decision import Charge
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Unit
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import ManualClock

SECOND = Limit(5, Unit.SECOND)
YEAR = Limit(5, Unit.YEAR)
NOW_MS = 1_700_000_000_000


def fill(engine: Engine, limit: Limit, *keys: str) -> None:
    for key in keys:
        engine.decide((Charge(key.encode(), limit, 1),))


def live(engine: Engine, *keys: str) -> str:
    return "".join(key for key in keys if engine.counters.find(key.encode()) is not None)


def filed(table: CounterTable[Any]) -> Iterator[KeyCounter]:
    """Every counter in the wheel, by walking all its rings."""
    for end in table._wheel._ends.values():
        link = end.wheel_after
        while link is not end:
            assert isinstance(link, KeyCounter)
            yield link
            link = link.wheel_after


def test_the_least_recently_used_cell_goes_when_the_table_is_full() -> None:
    engine = Engine(ManualClock(NOW_MS), max_cells=3)
    fill(engine, YEAR, "a", "b", "c", "a", "d")
    assert live(engine, "a", "b", "c", "d") == "acd"
    assert (engine.counters.stats.evicted, engine.counters.stats.expired) == (1, 0)


WIDE = Limit(1_000, Unit.YEAR)


def test_a_flood_of_new_keys_does_not_reset_who_is_over_a_limit_or_uses_much_of_it() -> None:
    """Somebody denied, and somebody at 40% of a limit: both least recently used when the flood comes."""
    engine = Engine(ManualClock(NOW_MS), max_cells=50)
    for _ in range(7):
        fill(engine, YEAR, "denied")
    engine.decide((Charge(b"heavy", WIDE, 400),))
    for number in range(5_000):
        fill(engine, WIDE, f"flood{number}")
    assert live(engine, "denied", "heavy") == "deniedheavy"
    assert not engine.decide((Charge(b"denied", YEAR, 1),)).admitted
    stats = engine.counters.stats
    assert stats.evicted == 5_002 - 50
    assert stats.evicted_denying == 0


def test_a_bucket_is_as_heavy_as_the_part_of_its_burst_that_is_used() -> None:
    """And lighter as time passes: half of one is used, and the flood's hundredths are not enough to push it out."""
    bucket = Limit(100, Unit.HOUR, algorithm=Algorithm.GCRA, burst=100)
    clock = ManualClock(NOW_MS)
    engine = Engine(clock, max_cells=50)
    engine.decide((Charge(b"heavy", bucket, 50),))
    for number in range(500):
        engine.decide((Charge(b"flood%d" % number, bucket, 1),))
    assert live(engine, "heavy") == "heavy"
    clock.advance(30 * 60 * 1000)
    for number in range(500):
        engine.decide((Charge(b"later%d" % number, bucket, 1),))
    assert live(engine, "heavy") == ""


def test_no_room_is_made_where_no_counter_may_go() -> None:
    table: CounterTable[WindowCounter] = CounterTable(2, evictable=lambda counter: counter.current == 0)
    held = [WindowCounter(key, YEAR, 0) for key in (b"a", b"b")]
    for counter in held:
        counter.current = 1
        assert table.add(counter, NOW_MS)
    assert not table.add(WindowCounter(b"c", YEAR, 0), 0)
    assert [counter.key for counter in table] == [b"a", b"b"]
    held[1].current = 0
    assert table.add(WindowCounter(b"c", YEAR, 0), 0)
    assert sorted(counter.key for counter in table) == [b"a", b"c"]


def test_where_all_deny_one_of_them_goes_and_that_is_said() -> None:
    engine = Engine(ManualClock(NOW_MS), max_cells=20)
    once = Limit(1, Unit.YEAR)
    for number in range(30):
        fill(engine, once, f"k{number}", f"k{number}")
    assert len(engine.counters) == 20
    assert engine.counters.stats.evicted_denying == 10


def test_an_expired_cell_goes_before_a_live_one_that_was_used_longer_ago() -> None:
    clock = ManualClock(NOW_MS)
    engine = Engine(clock, max_cells=3)
    fill(engine, YEAR, "a", "b")
    fill(engine, SECOND, "c")
    clock.advance(4_000)
    fill(engine, YEAR, "d")
    assert live(engine, "a", "b", "c", "d") == "abd"
    assert (engine.counters.stats.evicted, engine.counters.stats.expired) == (0, 1)


def test_a_sweep_drops_what_has_expired_and_keeps_what_was_used_since() -> None:
    clock = ManualClock(NOW_MS)
    engine = Engine(clock, max_cells=100)
    fill(engine, SECOND, "a", "b", "c")
    clock.advance(2_500)
    fill(engine, SECOND, "b")
    clock.advance(500)
    assert engine.sweep(100) is False
    assert live(engine, "a", "b", "c") == "b"
    clock.advance(4_000)
    assert engine.sweep(100) is False
    assert len(engine.counters) == 0


def test_a_sweep_is_bounded_and_says_when_more_is_due() -> None:
    clock = ManualClock(NOW_MS)
    engine = Engine(clock, max_cells=100)
    fill(engine, SECOND, *map(str, range(25)))
    clock.advance(10_000)
    assert engine.sweep(10) is True
    assert len(engine.counters) == 15
    assert engine.sweep(100) is False
    assert engine.counters.stats.expired == 25


def test_an_evicted_cell_leaves_nothing_behind() -> None:
    """Cells of long windows must not stay in the wheel until their time after they were evicted."""
    table: CounterTable[WindowCounter] = CounterTable(max_cells=10)
    for number in range(1_000):
        table.add(WindowCounter(b"%d" % number, YEAR, 50), NOW_MS)
    assert len(table) == 10
    assert len(list(filed(table))) == 10


def test_a_counter_that_went_keeps_no_other_one_in_memory() -> None:
    """Somebody may still hold it: a request that waits, say."""
    table: CounterTable[WindowCounter] = CounterTable(max_cells=2)
    first, second = WindowCounter(b"first", YEAR, 50), WindowCounter(b"second", YEAR, 50)
    for counter in (first, second):
        table.add(counter, NOW_MS)
    references = sys.getrefcount(second)
    table.drop(first.key)
    held = first
    table.drop(second.key)
    assert sys.getrefcount(second) == references - 5, "by key, and by its two neighbours in two rings"
    assert held.key == b"first"


LARGE = 8 * PART_KEYS
"""Counters of a table that is more than one dict."""


def test_no_addition_to_a_large_table_has_more_to_do_than_a_part_of_it() -> None:
    """A dict that doubles moves all that is in it: none has more than a part. All else is links."""
    table: CounterTable[WindowCounter] = CounterTable(LARGE)
    for number in range(LARGE):
        assert table.put(WindowCounter(b"user\x00%d" % number, YEAR, 50), NOW_MS)
    assert not table.put(WindowCounter(b"one more", YEAR, 50), NOW_MS)
    assert len(table) == LARGE
    keys = [len(part) for part in table._parts]
    assert sum(keys) == LARGE
    assert max(keys) < 1.1 * PART_KEYS
    assert len(table._wheel._ends) == 1, "all expire in the same second"


def test_keys_that_are_asked_for_again_are_a_bounded_number() -> None:
    table: CounterTable[WindowCounter] = CounterTable(2 * MOST_WARM)
    for number in range(2 * MOST_WARM):
        key = b"%d" % number
        table.put(WindowCounter(key, YEAR, 50), NOW_MS)
        assert table.find(key) is table.find(key)
        assert len(table._warm) <= MOST_WARM
    table.drop(b"7")
    assert table.find(b"7") is None


def test_a_large_table_is_in_one_order_of_use() -> None:
    """Not each of its parts in one of its own."""
    table: CounterTable[WindowCounter] = CounterTable(LARGE)
    counters = [WindowCounter(b"%d" % number, YEAR, 50) for number in range(LARGE)]
    for counter in counters:
        table.put(counter, NOW_MS)
    table.order.touch(counters[0])
    assert [counter.key for counter in table.recent(2)] == [b"0", counters[-1].key]
    for number in range(3):
        assert table.add(WindowCounter(b"new %d" % number, YEAR, 50), NOW_MS)
    gone = [counter.key for counter in counters[:10] if table.find(counter.key) is None]
    assert gone == [b"1", b"2", b"3"]


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.integers(0, 1_500)), max_size=200))
def test_the_bound_holds_and_every_cell_is_filed_once(steps: list[tuple[int, bool, int]]) -> None:
    clock = ManualClock(NOW_MS)
    engine = Engine(clock, max_cells=12)
    for key, long, pause_ms in steps:
        clock.advance(pause_ms)
        fill(engine, YEAR if long else SECOND, f"{long}{key}")
        if key % 7 == 0:
            engine.sweep(3)
        cells = engine.counters
        assert len(cells) <= 12
        live_keys = sorted(cell.key for cell in cells)
        assert sorted(cell.key for cell in filed(cells)) == live_keys
        assert sorted(cell.key for cell in cells.recent(1_000)) == live_keys
        assert len(cells) == len(live_keys)
        assert cells.stats.created == cells.stats.expired + cells.stats.evicted + len(cells)
