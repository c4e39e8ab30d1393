"""What a region takes in from a peer, and what it refuses."""

from typing import Any

import pytest
from headgate.exchange.fill import AGAIN, UNKNOWN, join_fill, mark_of, marks_in, walk_of, wanted_of
from headgate.exchange.judging import FUTURE_MS, LONGEST_KEY_BYTES, LONGEST_WINDOW_MS, MOST
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.origin import told_resets
from headgate.origin.exchange_protocol import Priority
from headgate.origin.interface import OriginError
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operation import Operation
from headgate.origin.operations.acknowledge import Acknowledge
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_map import ReadMap
from headgate.origin.operations.write_map import WriteMap
from headgate.origin.placement import Placement
from headgate.origin.region_map import MapEntry

from tests.unit.exchange.two_origins import SEQUENCE, START_MS, WINDOW_MS, Region

GOOD = Entry(b":k", WINDOW_MS, SEQUENCE, 5, 3)


def batch(*entries: Entry, number: int = 1, time_ms: int = START_MS, **other: object) -> Batch:
    return Batch(number, time_ms, entries)._replace(**other)  # type: ignore[arg-type]


async def test_both_cells_are_merged_by_max() -> None:
    us = Region("us", "eu")
    for current in (5, 9, 7):
        await us.receiver.receive("eu", batch(GOOD._replace(current=current)))
    assert us.known().foreign == 9
    us.clock.step(WINDOW_MS)
    assert us.known().foreign == 0


@pytest.mark.parametrize(
    "entry",
    [
        GOOD._replace(current=MOST + 1),
        GOOD._replace(current=-1),
        GOOD._replace(previous=MOST + 1),
        GOOD._replace(current_refunded=6),
        GOOD._replace(previous_refunded=4),
        GOOD._replace(window_ms=0),
        GOOD._replace(window_ms=1_500),
        GOOD._replace(window_ms=LONGEST_WINDOW_MS + 1_000),
        GOOD._replace(sequence=-1),
        GOOD._replace(sequence=SEQUENCE + FUTURE_MS // WINDOW_MS + 2),
        GOOD._replace(key=b"no length"),
        GOOD._replace(key=b"zz:k"),
        GOOD._replace(key=b"9:short"),
        GOOD._replace(key=b":" + b"x" * LONGEST_KEY_BYTES),
        GOOD._replace(key=b""),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_left_out_and_counted(entry: Entry) -> None:
    us = Region("us", "eu")
    other = GOOD._replace(key=b":other")
    assert await us.receiver.receive("eu", batch(entry, other, number=4)) == Ack(4, 1)
    assert (us.known().foreign, us.known(b"other").foreign) == (0, 5)
    assert us.peers["eu"].refused_entries == 1


async def test_without_its_origin_nothing_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    us = Region("us", "eu")

    async def away(*args: object) -> None:
        raise OriginError("away")

    monkeypatch.setattr(MemoryOrigin, "run", away)
    with pytest.raises(OriginError):
        await us.receiver.receive("eu", batch(GOOD))


async def test_own_counts_that_come_back_only_raise_the_floor() -> None:
    us = Region("us", "eu")
    us.count(6)
    await us.origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"g", 9), 1.0)  # whoever reads asks for a fill
    for returned, total in ((4, 6), (9, 9)):
        await us.receiver.receive("eu", batch(returned=(GOOD._replace(current=returned),)))
        assert (us.known().region_total, us.known().foreign) == (total, 0)


async def test_a_peer_that_lost_something_is_told_everything_once() -> None:
    us = Region("us", "eu")
    us.count(6)
    changes = await us.origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"g", 9), 1.0)
    await us.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, changes), 1.0)
    for _ in range(2):
        await us.receiver.receive("eu", batch(fill_wanted=b"marks"))
    again = await us.origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"g", 9), 1.0)
    assert (again.walk, again.since, len(again.names)) == (b"marks", 0, 1)


async def test_filled_marks_the_shards_that_were_asked_for() -> None:
    us = Region("us", "eu")
    found = await us.origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"g", 9), 1.0)
    mark = mark_of(found.generation, found.epoch)
    await us.receiver.receive("eu", batch(filled=join_fill([mark])))
    assert (await us.origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"g", 9), 1.0)).mark == mark


def test_marks_are_told_apart_by_memory_and_server() -> None:
    assert len({mark_of(b"g", b"e"), mark_of(b"h", b"e"), mark_of(b"g", b"f"), mark_of(b"ge", b"")}) == 4
    assert marks_in(join_fill([mark_of(b"g", b"e"), UNKNOWN])) == {mark_of(b"g", b"e")}


def test_a_fill_is_named_the_same_in_whatever_order_shards_are_known() -> None:
    marks, again = [mark_of(b"g", b"1"), mark_of(b"g", b"2")], [AGAIN + b"1", AGAIN + b"2"]
    assert join_fill(marks, again) == join_fill(marks[::-1], again[::-1])


def test_a_walk_is_over_only_by_the_list_that_it_began_with() -> None:
    first, moving, second = Placement(1, ("a",)), Placement(2, ("a", "b"), ("a",)), Placement(2, ("a", "b"))
    assert walk_of(b"marks", first) == b"marks", "as versions have it that know of no list"
    assert wanted_of(b"marks", first) == b"marks"
    assert wanted_of(walk_of(b"marks", second), second) == b"marks"
    walks = [(walk_of(b"marks", first), second), (walk_of(b"marks", moving), moving), (walk_of(b"m", moving), second)]
    assert [wanted_of(*walk) for walk in walks] == [b""] * 3


@pytest.mark.parametrize(("ahead_ms", "skewed"), [(0, False), (4_000, False), (6_000, True), (-6_000, True)])
async def test_a_clock_that_is_off_is_noticed(ahead_ms: int, skewed: bool) -> None:
    us = Region("us", "eu")
    await us.receiver.receive("eu", batch(GOOD, time_ms=START_MS + ahead_ms))
    status = us.peers["eu"]
    assert (status.skew_ms, status.skewed, us.known().foreign) == (ahead_ms, skewed, 5)


async def test_a_clock_is_off_by_half_a_short_window() -> None:
    us = Region("us", "eu")
    short = GOOD._replace(window_ms=4_000, sequence=START_MS // 4_000)
    await us.receiver.receive("eu", batch(short, time_ms=START_MS + 2_500))
    assert us.peers["eu"].skewed


async def test_the_region_s_nodes_are_told_of_a_reset_once_and_only_while_it_is_new() -> None:
    """Those that deny from memory ask nobody, so they would never hear of it."""
    us = Region("us", "eu")

    def told() -> list[MapEntry]:
        return [entry for entry in us.origin.apply(ReadMap(0, 100)).entries if entry.value]

    await us.receiver.receive("eu", batch(GOOD))
    assert told() == []
    await us.receiver.receive("eu", batch(GOOD._replace(reset=START_MS - 1_000)))
    (first,) = told()
    assert told_resets.read(first) == (b"k", START_MS - 1_000)
    for reset in (START_MS - 1_000, START_MS - 2_000):
        await us.receiver.receive("eu", batch(GOOD._replace(reset=reset, current=9)))
    assert told() == [first]
    us.clock.advance(10_000)
    await us.receiver.receive("eu", batch(GOOD._replace(reset=START_MS - 500)))
    assert [told_resets.read(entry) for entry in told()] == [(b"k", START_MS - 500)]
    await us.receiver.receive("eu", batch(GOOD._replace(key=b":old", reset=START_MS - 2 * told_resets.RECENT_MS)))
    assert len(told()) == 1


async def test_a_map_that_cant_be_written_holds_no_batch_up_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    us = Region("us", "eu")
    run = us.origin.run

    async def away(shard: int, operation: Operation[Any], timeout_s: float) -> Any:
        if isinstance(operation, WriteMap):
            raise OriginError("away")
        return await run(shard, operation, timeout_s)

    monkeypatch.setattr(us.origin, "run", away)
    assert (await us.receiver.receive("eu", batch(GOOD._replace(reset=START_MS)))).refused == 0
    monkeypatch.setattr(us.origin, "run", run)
    await us.receiver.receive("eu", batch(number=2))
    entries = us.origin.apply(ReadMap(0, 100)).entries
    assert [told_resets.read(entry) for entry in entries] == [(b"k", START_MS)]
