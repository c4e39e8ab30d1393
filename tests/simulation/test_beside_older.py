"""A node beside one of a version that leaves no room for allowances beyond `P`: it holds less, and says so."""

import asyncio

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Unit
from headgate.origin.operations.heartbeat import Presence
from structlog.testing import capture_logs

from tests.support.region import RegionWorld, virtually

LIMIT = Limit(1_000, Unit.HOUR, precision_millionths=0)
KEY = b"key"


def older_node_beats(world: RegionWorld) -> None:
    """Have a node of the version before say that it lives."""
    presence = world.shards[0].memory.part(Presence)
    presence.older.add(b"old")
    presence.beats[b"old"] = world.shards[0].memory.now_ms()


def held(world: RegionWorld) -> int:
    return world.record(KEY).allowances.held


def test_what_is_held_of_a_key_that_nobody_asks_for_is_given_back_within_a_heartbeat() -> None:
    """The older node can't read the key's record until then."""

    async def history() -> None:
        world = RegionWorld(1)
        node = await world.start_node()
        for _ in range(20):
            await world.ask(node, Charge(KEY, LIMIT, 1))
        await asyncio.sleep(1.0)
        assert held(world) > 0
        older_node_beats(world)
        await asyncio.sleep(1.1)
        assert held(world) == 0

    virtually(history())


def test_a_node_that_leaves_may_be_the_last_that_reads_what_is_pressed() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        node = await world.start_node()
        await world.ask(node, Charge(KEY, LIMIT, 1))
        world.record(KEY).allowances.press()
        await node.stop(1.0)
        assert (held(world), world.record(KEY).allowances.pressed) == (0, 0)

    virtually(history())


@pytest.mark.parametrize("there_first", [True, False])
def test_the_log_says_once_when_older_nodes_are_there_and_once_when_they_are_gone(there_first: bool) -> None:
    async def history() -> None:
        world = RegionWorld(1)
        if there_first:
            older_node_beats(world)
        await world.start_node()
        if not there_first:
            older_node_beats(world)
        await asyncio.sleep(10)

    with capture_logs() as lines:
        virtually(history())
    said = [line["older_nodes"] for line in lines if line["event"] == "allowances_within_precision"]
    assert said == [1, 0]
