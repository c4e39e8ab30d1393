"""Bulletins as a process posts and reads them: brief until somebody looks, and as last read while the shard is away."""

from collections.abc import Iterable
from typing import Any, cast

import pytest
from headgate.errors import BadRequest
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operation import Operation
from headgate.origin.operations.bulletins import WANTED_MS, ReadBulletins
from headgate.origin.shard_memory import ShardMemory
from headgate.runtime.board import READ_KEPT_S, RegionBoard
from headgate.runtime.bulletin import BulletinWriter

from tests.support.clock import ManualClock


class Shard:
    """One shard in memory, which may be away."""

    def __init__(self, clock: ManualClock) -> None:
        self.memory = ShardMemory(clock, region=b"eu", epoch=b"e")
        self.away = False
        self.reads = 0

    async def run(self, shard: int, operation: Operation[Any], timeout_s: float) -> Any:
        if self.away:
            raise OriginError("gone")
        self.reads += isinstance(operation, ReadBulletins)
        return operation.apply(self.memory)


class Writer:
    """Says who it is, and what is looked for."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.looks = 0

    async def look(self) -> None:
        self.looks += 1

    def write(self, grains: Iterable[str]) -> dict[str, Any]:
        known = {"format": 1, "node": self.node, "run": self.node, "state": "serving", "rules": {}, "shards": []}
        return {**known, "trend": dict.fromkeys(grains)}


class Node:
    def __init__(self, name: str, shard: Shard | None, clock: ManualClock) -> None:
        self.writer = Writer(name)
        writer, origin = cast(BulletinWriter, self.writer), cast(Origin | None, shard)
        self.board = RegionBoard(writer, name.encode(), origin, lambda: 0, clock)

    async def trends(self, grain_s: int = 2) -> dict[str, list[str]]:
        told = await self.board.tell({"grain_s": str(grain_s)})
        return {said["node"]: list(said["trend"]) for said in told["bulletins"]}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def shard(clock: ManualClock) -> Shard:
    return Shard(clock)


async def test_a_node_says_what_goes_on_while_somebody_looks_at_any_node(shard: Shard, clock: ManualClock) -> None:
    one, two = Node("one", shard, clock), Node("two", shard, clock)
    await two.board.post()
    assert await one.trends() == {"one": ["2"], "two": []}, "it has not heard yet"
    await two.board.post()  # is told what is wanted
    await two.board.post()
    clock.advance(int(READ_KEPT_S * 1000))
    assert await one.trends(20) == {"one": ["20"], "two": ["2"]}
    assert two.writer.looks == 1
    clock.advance(WANTED_MS)
    await two.board.post()
    await two.board.post()
    assert (await one.trends())["two"] == [], "nobody looked for long"


async def test_a_node_that_was_looked_at_reads_its_counters_no_longer_than_that(clock: ManualClock) -> None:
    alone = Node("alone", None, clock)
    await alone.board.post()
    assert alone.writer.looks == 0
    await alone.trends()
    await alone.board.post()
    clock.advance(WANTED_MS)
    await alone.board.post()
    assert alone.writer.looks == 1


async def test_many_who_look_cost_one_read_a_second(shard: Shard, clock: ManualClock) -> None:
    one = Node("one", shard, clock)
    for _ in range(5):
        await one.trends()
    assert shard.reads == 1
    clock.advance(int(READ_KEPT_S * 1000))
    await one.trends()
    assert shard.reads == 2


async def test_while_the_shard_is_away_the_others_are_told_with_their_ages(shard: Shard, clock: ManualClock) -> None:
    one, two = Node("one", shard, clock), Node("two", shard, clock)
    await two.board.post()
    clock.advance(500)
    await one.trends()
    shard.away = True
    clock.advance(3_000)
    told = await one.board.tell({})
    assert told["error"] == "gone"
    assert {said["node"]: said["age_ms"] for said in told["bulletins"]} == {"one": 0, "two": 3_500}
    await one.board.post()
    await one.board.leave()
    assert one.board.failures == 3
    shard.away = False
    clock.advance(int(READ_KEPT_S * 1000))
    assert (await one.board.tell({}))["error"] == ""


async def test_what_a_newer_version_looks_for_is_left_out(shard: Shard, clock: ManualClock) -> None:
    one = Node("one", shard, clock)
    for wanted in (b"7", b"\xff", b"20"):
        await shard.run(0, ReadBulletins(wanted), 1)
    await one.board.post()
    await one.board.post()
    assert await Node("two", shard, clock).trends() == {"two": ["2"], "one": ["20"]}


async def test_who_has_left_posts_no_more(shard: Shard, clock: ManualClock) -> None:
    one, two = Node("one", shard, clock), Node("two", shard, clock)
    await one.board.post()
    await one.board.leave()
    await one.board.post()
    assert await two.trends() == {"two": ["2"]}


async def test_one_process_is_told_alone_if_asked_so_or_without_others(shard: Shard, clock: ManualClock) -> None:
    one, two, alone = Node("one", shard, clock), Node("two", shard, clock), Node("alone", None, clock)
    await two.board.post()
    assert [said["node"] for said in (await one.board.tell({"own": "true"}))["bulletins"]] == ["one"]
    assert [said["node"] for said in (await alone.board.tell({}))["bulletins"]] == ["alone"]
    with pytest.raises(BadRequest):
        await one.board.tell({"grain_s": "3"})
