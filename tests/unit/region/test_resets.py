"""Resetting a key: in force on its node and in its record at once, and nothing from before ever comes back."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from headgate.keys import resetting
from headgate.limiter.decision import Charge
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin import told_resets
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.interface import OriginError
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.operations.write_map import WriteMap
from headgate.region.node import RegionNode
from headgate.region.resets import MOST_RESETS, Resets

from tests.support.clock import ManualClock
from tests.support.region import RegionWorld, virtually

LIMIT = Limit(10, Unit.HOUR)
BUCKET = Limit(10, Unit.HOUR, algorithm=Algorithm.GCRA, burst=10)
LIMITS = (LIMIT, Limit(10, Unit.HOUR, algorithm=Algorithm.FIXED_WINDOW), BUCKET)
FLUSH_S = 1.0
NO_NAMES: Any = None
"""Nobody in these tests is told of a key by its descriptor."""


async def used_up(nodes: int, limit: Limit = LIMIT) -> tuple[RegionWorld, list[RegionNode]]:
    """A region in which the key is full, and every node knows."""
    world = RegionWorld(1)
    started = [await world.start_node() for _ in range(nodes)]
    assert (await world.ask(started[0], Charge(b"k", limit, 10))).admitted
    for node in started:
        assert not (await world.ask(node, Charge(b"k", limit, 1))).admitted
    return world, started


def play(history: Coroutine[Any, Any, None]) -> None:
    virtually(history)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.algorithm.value)
def test_a_reset_is_in_force_here_and_with_the_next_call_everywhere(limit: Limit) -> None:
    async def history() -> None:
        world, (first, second) = await used_up(2, limit)
        number = await first.reset(b"k", limit)
        assert number > 0
        assert (await world.ask(first, Charge(b"k", limit, 4))).admitted
        second.learn_reset(b"k", limit, number)
        assert (await world.ask(second, Charge(b"k", limit, 6))).admitted
        assert not (await world.ask(second, Charge(b"k", limit, 1))).admitted
        assert not (await world.ask(first, Charge(b"k", limit, 1))).admitted

    play(history())


def test_what_a_node_that_did_not_hear_of_it_reports_counts_nothing() -> None:
    """It hears of it with the answer, and a request that waits is asked again, once."""

    async def history() -> None:
        world = RegionWorld(1)
        first, second = [await world.start_node() for _ in range(2)]
        assert (await world.ask(second, Charge(b"k", LIMIT, 6))).admitted
        await first.reset(b"k", LIMIT)
        assert (await world.ask(second, Charge(b"k", LIMIT, 3))).admitted
        assert (await world.ask(second, Charge(b"k", LIMIT, 7))).admitted
        await asyncio.sleep(FLUSH_S)
        assert world.record(b"k").current.region_total == 10

    play(history())


def test_an_answer_from_before_it_is_not_taken_for_one_from_after() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        node = await world.start_node(delay_ms=(50.0, 50.0))
        other = await world.start_node()
        await world.ask(node, Charge(b"k", LIMIT, 3))
        world.ask_soon(node, Charge(b"k", LIMIT, 2))
        await asyncio.sleep(0.07)  # the shard has charged it; the answer is under way
        number = await other.reset(b"k", LIMIT)
        node.learn_reset(b"k", LIMIT, number)
        await asyncio.sleep(FLUSH_S)
        assert world.record(b"k").reset == number
        assert world.record(b"k").current.region_total <= 2, "at most the request that was under way"

    play(history())


def test_a_shard_that_lost_its_memory_is_taught_it_again_also_without_a_counter() -> None:
    async def history() -> None:
        world, (first, second) = await used_up(2)
        number = await first.reset(b"k", LIMIT)
        world.networks[1].connected = False  # the second has not heard, and holds what was
        first.engine.counters.drop(b"k")
        world.shards[0].wipe()
        await asyncio.sleep(3)
        assert world.record(b"k").reset == number
        world.networks[1].connected = True
        await asyncio.sleep(5)
        second.links[0].session.lost_memory("of the test", world.clock.monotonic())
        await asyncio.sleep(3)
        assert (world.record(b"k").reset, world.record(b"k").current.region_total) == (number, 0)
        assert (await world.ask(second, Charge(b"k", LIMIT, 10))).admitted

    play(history())


def test_each_reset_has_a_higher_number_also_where_a_clock_is_ahead() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        first, second = [await world.start_node() for _ in range(2)]
        ahead = await first.reset(b"k", LIMIT)
        world.record(b"k").reset = ahead + 3_600_000
        assert await second.reset(b"k", LIMIT) == ahead + 3_600_001
        assert await second.reset(b"k", LIMIT) == ahead + 3_600_002

    play(history())


def test_a_shard_that_is_away_is_an_error() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        node = await world.start_node()
        world.networks[0].connected = False
        with pytest.raises(OriginError):
            await node.reset(b"k", LIMIT)

    play(history())


def test_what_is_remembered_is_bounded_and_ends() -> None:
    resets = Resets()
    for number in range(1, MOST_RESETS + 11):
        assert resets.hear(b"%d" % number, b"", LIMIT, number, 0)
    assert len(resets) == MOST_RESETS
    assert resets.number_of(b"1") == 0
    assert not resets.hear(b"%d" % MOST_RESETS, b"", LIMIT, 5, 0), "a later one is known"
    assert len(list(resets.live(2 * LIMIT.window_ms - 1))) == MOST_RESETS
    assert list(resets.live(2 * LIMIT.window_ms)) == []


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.algorithm.value)
def test_on_one_node_a_reset_forgets_the_counter(limit: Limit) -> None:
    engine = Engine(ManualClock(1_700_000_000_000), max_cells=10)
    charge = (Charge(b"k", limit, 10),)
    assert engine.decide(charge).admitted
    assert not engine.decide(charge).admitted
    assert engine.reset(b"k")
    assert not engine.reset(b"k")
    assert engine.decide(charge).admitted


def test_a_node_that_denies_from_memory_hears_of_another_region_s_reset_within_about_a_second() -> None:
    async def history() -> None:
        world, (first, second) = await used_up(2)
        number = world.shards[0].time_ms()
        for node in (first, second):
            resetting.follow(node.region_map, NO_NAMES, node)
        shard = world.shards[0]
        shard.apply(
            ImportCounts([ForeignCount(b"k", LIMIT.window_ms, number // LIMIT.window_ms, b"eu", 0, b"", number)])
        )
        entry = told_resets.entry_of(b"k", number, number)
        assert entry is not None
        await shard.run(0, WriteMap([entry], b"drawn"), 1.0)
        await asyncio.sleep(1.2)
        for node in (first, second):
            assert (await world.ask(node, Charge(b"k", LIMIT, 5))).admitted

    play(history())
