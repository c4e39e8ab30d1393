"""The region's map, over every origin: the latest write of a name wins, in whichever order writes come."""

import pytest
from headgate.origin import region_map as reference
from headgate.origin.operations import write_map
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.read_map import ReadMap
from headgate.origin.operations.write_map import WriteMap
from headgate.origin.region_map import FIRST, NEW, MapEntry, MapMark, MapPage, MapState

from tests.conformance.origin.cases import START_MS
from tests.conformance.origin.conftest import Harness
from tests.support.waiting import PATIENCE_S

LATER_MS = START_MS + 60_000


async def write(harness: Harness, *entries: MapEntry, generation: bytes = b"one") -> MapState:
    return await harness.origin.run(0, WriteMap(entries, generation), PATIENCE_S)


async def read(harness: Harness, since: int = 0, most: int = 100) -> MapPage:
    return await harness.origin.run(0, ReadMap(since, most), PATIENCE_S)


def entry(name: bytes, value: bytes = b"value", expires_ms: int = LATER_MS, stamp: int = NEW) -> MapEntry:
    return MapEntry(name, value, expires_ms, stamp)


async def test_an_empty_map_has_no_generation_and_reading_it_begins_none(harness: Harness) -> None:
    assert await read(harness) == MapPage(MapMark(), START_MS, 0, ())
    assert (await harness.origin.run(0, Heartbeat(b"run"), PATIENCE_S)).region_map == MapMark()


async def test_an_entry_is_read_as_it_was_written_whatever_its_bytes(harness: Harness) -> None:
    name, value = bytes(range(256)), b"\x00\xff\xc3(" * 10
    state = await write(harness, entry(name, value))
    assert state == MapState(MapMark(b"one", 1), START_MS, 1, 0)
    page = await read(harness)
    assert page == MapPage(MapMark(b"one", 1), START_MS, 1, (MapEntry(name, value, LATER_MS, START_MS),))
    assert (await harness.origin.run(0, Heartbeat(b"run"), PATIENCE_S)).region_map == page.mark


async def test_a_reader_is_told_what_changed_since_and_in_pages(harness: Harness) -> None:
    await write(harness, *(entry(b"%d" % number) for number in range(5)), generation=b"one")
    await write(harness, entry(b"1", b"changed"), generation=b"another")
    assert (await read(harness)).mark == MapMark(b"one", 6), "a book keeps the generation that it began with"
    first = await read(harness, most=3)
    assert [found.name for found in first.entries] == [b"0", b"2", b"3"]
    second = await read(harness, first.until)
    assert [(found.name, found.value) for found in second.entries] == [(b"4", b"value"), (b"1", b"changed")]
    assert second.until == second.mark.version
    assert not (await read(harness, second.until)).entries


async def test_stamps_rise_with_every_write_whatever_the_clock_does(harness: Harness) -> None:
    await write(harness, entry(b"a"), entry(b"b"))
    await harness.set_time(START_MS - 5_000)
    await write(harness, entry(b"c"))
    assert [found.stamp for found in (await read(harness)).entries] == [START_MS, START_MS + 1, START_MS + 2]


async def test_of_what_is_taught_the_later_write_wins_in_any_order(harness: Harness) -> None:
    await write(harness, entry(b"a", b"new", stamp=START_MS + 7), entry(b"a", b"old", stamp=START_MS + 3))
    await write(harness, entry(b"b", b"old", stamp=START_MS + 3), entry(b"b", b"new", stamp=START_MS + 7))
    assert [found.value for found in (await read(harness)).entries] == [b"new", b"new"]
    await write(harness, entry(b"a", b"newest"))
    assert (await read(harness)).entries[-1] == MapEntry(b"a", b"newest", LATER_MS, START_MS + 8)


async def test_what_was_removed_is_not_brought_back_by_one_who_did_not_hear_of_it(harness: Harness) -> None:
    await write(harness, entry(b"a"))
    taught = (await read(harness)).entries[0]
    state = await write(harness, entry(b"a", b"", 0))
    assert state.entries == 0
    await write(harness, taught)
    page = await read(harness)
    assert page.entries == (MapEntry(b"a", b"", LATER_MS, START_MS + 1),)
    again = await write(harness, entry(b"a", b"", 0), entry(b"unknown", b"", 0))
    assert again.mark == page.mark, "removing what is not there changes nothing"


async def test_a_removal_is_remembered_for_a_day_at_most(harness: Harness) -> None:
    await write(harness, entry(b"a", expires_ms=START_MS + 10 * reference.REMOVED_FOR_MS), entry(b"b", expires_ms=0))
    await write(harness, entry(b"a", b"", 0), entry(b"b", b"", 0))
    assert {found.expires_ms for found in (await read(harness)).entries} == {START_MS + reference.REMOVED_FOR_MS}


async def test_what_expired_no_longer_counts_and_goes_with_the_next_write(harness: Harness) -> None:
    await write(harness, entry(b"a"), entry(b"stays", expires_ms=0))
    await harness.set_time(LATER_MS)
    state = await write(harness, entry(b"b", expires_ms=LATER_MS + 1))
    assert (state.entries, state.time_ms) == (1, LATER_MS)
    assert [found.name for found in (await read(harness)).entries] == [b"stays", b"b"]
    await write(harness, entry(b"a", stamp=START_MS))
    assert len((await read(harness)).entries) == 2, "nobody teaches what is over"


async def test_a_first_entry_is_written_once(harness: Harness) -> None:
    await write(harness, entry(b"secret", b"one", 0, FIRST))
    await write(harness, entry(b"secret", b"two", 0, FIRST))
    assert [(found.value, found.expires_ms) for found in (await read(harness)).entries] == [(b"one", 0)]


async def test_a_full_map_refuses_new_entries_and_says_how_many(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reference, write_map):
        monkeypatch.setattr(module, "MOST_ENTRIES", 2)
        monkeypatch.setattr(module, "MOST_NAMES", 4)
    state = await write(harness, entry(b"a"), entry(b"b"), entry(b"c"), entry(b"secret", expires_ms=0))
    assert (state.entries, state.refused) == (2, 1)
    assert (await write(harness, entry(b"b", b"changed"))).refused == 0
    assert (await write(harness, entry(b"b", b"", 0), entry(b"c"))).refused == 0
    state = await write(harness, entry(b"c", b"", 0), entry(b"d"))
    assert (state.entries, state.refused) == (1, 1), "what was removed takes a name until it is forgotten"


async def test_what_other_regions_tell_of_takes_no_place_of_the_operators(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reference, write_map):
        monkeypatch.setattr(module, "MOST_ENTRIES", 2)
        monkeypatch.setattr(module, "MOST_NAMES", 3)
        monkeypatch.setattr(module, "MOST_TOLD", 4)
    told = [entry(reference.TOLD + b"%d" % number, b"1", START_MS + 30_000) for number in range(9)]
    state = await write(harness, *told)
    assert (state.entries, state.refused) == (0, 5)
    state = await write(harness, entry(b"one"), entry(b"two"), entry(b"secret", expires_ms=0), entry(b"three"))
    assert (state.entries, state.refused) == (2, 1), "as many as without the others"
    assert (await write(harness, told[0]._replace(value=b"2"), told[8])).refused == 1, (
        "a full place takes a later one of a key"
    )
    await harness.set_time(START_MS + 30_001)
    state = await write(harness, told[8]._replace(expires_ms=START_MS + 60_001))
    assert (state.entries, state.refused) == (2, 0), "and heals"


async def test_a_wiped_shard_has_no_map_and_begins_another(harness: Harness) -> None:
    await write(harness, entry(b"a"))
    taught = (await read(harness)).entries
    await harness.wipe(restart=False)
    assert (await harness.origin.run(0, Heartbeat(b"run"), PATIENCE_S)).region_map == MapMark()
    await write(harness, *taught, generation=b"two")
    assert (await read(harness)) == MapPage(MapMark(b"two", 1), START_MS, 1, taught)
