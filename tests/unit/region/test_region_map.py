"""A node's copy of its region's book: it keeps up, teaches a shard that forgot, and goes on alone."""

import asyncio
import base64
import json
import stat
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from headgate.origin.region_map import NEW, MapEntry, RegionMap
from headgate.region import region_map
from headgate.region.node import RegionNode
from headgate.region.region_map import FILE_NAME, PAGE, RegionMapReplica, read_map_file, write_map_file
from headgate.simulation.network import NetworkedOrigin

from tests.support.region import LOGGER, RegionWorld, virtually

NEVER = 0


def entry(name: bytes, value: bytes = b"value", expires_ms: int = NEVER) -> MapEntry:
    return MapEntry(name, value, expires_ms, NEW)


def known(node: RegionNode) -> dict[bytes, bytes]:
    return {name: value for name in (b"a", b"b", b"c") if (value := node.region_map.get(name)) is not None}


def test_what_one_node_writes_all_know_within_about_a_second() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        one, two = [await world.start_node() for _ in range(2)]
        await one.region_map.write([entry(b"a", b"1")])
        assert known(one) == {b"a": b"1"}, "at once, where it was written"
        await asyncio.sleep(1.2)
        assert known(two) == {b"a": b"1"}
        await two.region_map.write([entry(b"a", b""), entry(b"b", b"2")])
        await asyncio.sleep(1.2)
        assert known(one) == known(two) == {b"b": b"2"}

    virtually(history())


def test_what_could_not_be_written_is_in_force_here_and_the_shard_is_taught_it() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        one, two = [await world.start_node() for _ in range(2)]
        await one.region_map.write([entry(b"a", b"1"), entry(b"b", b"1")])
        await asyncio.sleep(1.2)
        for network in world.networks:
            network.connected = False
        for kept in (entry(b"a", b"2"), entry(b"b", b""), entry(b"c", b"3"), entry(b"d", b"")):
            await one.region_map.keep(kept)
        assert known(one) == {b"a": b"2", b"c": b"3"}
        await asyncio.sleep(5)
        assert known(two) == {b"a": b"1", b"b": b"1"}
        for network in world.networks:
            network.connected = True
        await asyncio.sleep(5)
        assert known(one) == known(two) == {b"a": b"2", b"c": b"3"}

    virtually(history())


def test_nothing_is_fetched_while_nothing_changes() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        one, two = [await world.start_node() for _ in range(2)]
        await one.region_map.write([entry(b"a")])
        await asyncio.sleep(2)
        syncs = two.region_map.stats.syncs
        assert syncs == 1
        await asyncio.sleep(60)
        assert two.region_map.stats.syncs == syncs

    virtually(history())


def test_a_shard_that_forgot_is_taught_again_and_what_was_removed_stays_removed() -> None:
    async def history() -> None:
        world = RegionWorld(2)
        one, two = [await world.start_node() for _ in range(2)]
        await one.region_map.write([entry(b"a"), entry(b"b"), entry(b"c")])
        await asyncio.sleep(1.2)
        world.networks[1].connected = False
        await one.region_map.write([entry(b"a", b"")])
        for shard in world.shards:
            shard.restart()
        await asyncio.sleep(3)
        world.networks[1].connected = True
        await asyncio.sleep(5)
        assert known(one) == known(two) == {b"b": b"value", b"c": b"value"}
        assert one.region_map.stats.taught
        three = await world.start_node()
        await asyncio.sleep(1.2)
        assert known(three) == known(one)

    virtually(history())


def test_a_shard_that_lost_the_latest_change_alone_is_taught_it() -> None:
    """A replica took over that had not heard of it, and another write has hidden that since."""

    async def history() -> None:
        world = RegionWorld(3)
        one, two = [await world.start_node() for _ in range(2)]
        shard = world.shards[one.region_map.shard]
        await one.region_map.write([entry(b"a")])
        lagging = shard.memory.part(RegionMap).read(0, PAGE, shard.time_ms())
        await one.region_map.write([entry(b"b")])
        await asyncio.sleep(1.2)
        shard.restart()
        shard.memory.part(RegionMap).write(lagging.entries, lagging.mark.generation, shard.time_ms())
        await two.region_map.write([entry(b"c")])
        await asyncio.sleep(3)
        assert known(one) == known(two) == {b"a": b"value", b"b": b"value", b"c": b"value"}

    virtually(history())


def test_more_than_a_page_is_fetched_whole() -> None:
    async def history() -> None:
        world = RegionWorld(4)
        one, two = [await world.start_node() for _ in range(2)]
        for first in range(0, 3 * PAGE, PAGE):
            await one.region_map.write([entry(b"%d" % number) for number in range(first, first + PAGE)])
        await asyncio.sleep(1.5)
        assert len(two.region_map) == 3 * PAGE

    virtually(history())


def test_an_entry_ends_by_the_shards_time_also_while_the_shard_is_away() -> None:
    async def history() -> None:
        world = RegionWorld(5)
        one = await world.start_node()
        told: list[Sequence[MapEntry]] = []
        await one.region_map.write([entry(b"a", expires_ms=one.region_map.now_ms() + 5_000), entry(b"b")])
        one.region_map.listen(told.append)
        world.networks[0].connected = False
        await asyncio.sleep(4.9)
        one.region_map.expire()
        assert set(known(one)) == {b"a", b"b"}
        await asyncio.sleep(0.2)
        one.region_map.expire()
        assert set(known(one)) == {b"b"}
        assert [(gone.name, gone.value) for gone in told[-1]] == [(b"a", b"")]

    virtually(history())


def test_what_is_kept_in_the_data_directory_is_known_before_any_shard_answers(tmp_path: Path) -> None:
    write_map_file(tmp_path, [MapEntry(b"a\xff", b"\x00value", 0, 5)])
    assert read_map_file(tmp_path) == [MapEntry(b"a\xff", b"\x00value", 0, 5)]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    for torn in ("", "[", "{}", "[[1]]", json.dumps([["YQ==", "YQ==", 0, -1]])):
        (tmp_path / FILE_NAME).write_text(torn)
        assert read_map_file(tmp_path) == []
    assert read_map_file(None) == []


@pytest.mark.pure("it looks into a compiled module")
def test_of_thousands_of_entries_only_those_are_written_anew_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[bytes] = []

    def encode(data: bytes) -> bytes:
        encoded.append(data)
        return base64.b64encode(data)

    monkeypatch.setattr(region_map, "base64", SimpleNamespace(b64encode=encode, b64decode=base64.b64decode))
    entries = [MapEntry(b"often written %d" % number, b"v", 0, 1 + number) for number in range(3_000)]
    write_map_file(tmp_path, entries)
    encoded.clear()
    entries[7] = entries[7]._replace(value=b"w", stamp=5_000)
    write_map_file(tmp_path, entries)
    assert encoded == [b"often written 7", b"w"]
    assert read_map_file(tmp_path) == entries


def test_a_node_that_starts_brings_what_it_kept_to_a_shard_that_has_nothing(tmp_path: Path) -> None:
    async def history() -> None:
        world = RegionWorld(6)
        one = await world.start_node()
        link = one.links[one.region_map.shard]
        write_map_file(tmp_path, [MapEntry(b"a", b"kept", 0, 5)])
        origin = NetworkedOrigin(world.shards, world.networks, world.random)
        replica = RegionMapReplica(
            origin, now_ms=link.session.now_ms, random=world.random, logger=LOGGER, data_dir=tmp_path
        )
        assert replica.get(b"a") == b"kept"
        await replica.refresh()
        await asyncio.sleep(1.2)
        assert known(one) == {b"a": b"kept"}

    virtually(history())
