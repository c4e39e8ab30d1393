"""The table of counters is bounded: the expired go first, then the lightest of the least recently used."""

from headgate.limiter.counters import CounterTable, WindowCounter
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
    assert sum(len(bucket) for bucket in table._wheel.values()) == 10


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
        filed = [cell for bucket in cells._wheel.values() for cell in bucket]
        assert sorted(cell.key for cell in filed) == sorted(cells._counters)
        assert cells.stats.created == cells.stats.expired + cells.stats.evicted + len(cells)
