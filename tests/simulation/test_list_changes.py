"""The list of shards changes while nodes count: nobody restarts, and no count is lost."""

import asyncio
from typing import Any

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Unit
from headgate.origin.interface import OriginTimeout
from headgate.origin.operation import Operation
from headgate.origin.operations.move_records import DropRecords, PutRecords, TakeRecords, WalkRecords
from headgate.origin.window_record import WindowRecord
from headgate.region.node import RegionNode

from tests.support.region import RegionWorld, virtually

TWO, THREE = ("0", "1"), ("0", "1", "2")
KEYS = [b"key-%02d" % number for number in range(12)]


def charges(limit: Limit) -> list[Charge]:
    return [Charge(key, limit, 1) for key in KEYS]


async def change(world: RegionWorld, listed: tuple[str, ...], *nodes: RegionNode) -> None:
    for node in nodes or world.nodes:
        node.lists.want(listed)
        await asyncio.sleep(0.5)


async def in_force(world: RegionWorld, listed: tuple[str, ...]) -> None:
    async with asyncio.timeout(60):
        while any(node.lists.changing or node.lists.placed_by != listed for node in world.nodes):  # noqa: ASYNC110 - virtual
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(3))
def test_two_three_two_under_load_with_exact_counts(seed: int) -> None:
    limit = Limit(100_000, Unit.DAY)

    async def history() -> None:
        world = RegionWorld(seed, shards=3)
        for _ in range(3):
            await world.start_node(listed=TWO)
        load = [asyncio.create_task(world.load(20, 40, charge)) for charge in charges(limit)]
        await asyncio.sleep(3)
        await change(world, THREE)
        await in_force(world, THREE)
        assert [len(node.links_in_use) for node in world.nodes] == [3, 3, 3]
        await asyncio.sleep(3)
        await change(world, TWO)
        await in_force(world, TWO)
        assert [len(node.links_in_use) for node in world.nodes] == [2, 2, 2]
        assert not world.shards[2].memory.records, "nothing is left behind"
        await asyncio.gather(*load)
        await world.quiet()
        for key in KEYS:
            records = [shard.record(key) for shard in world.shards if shard.record(key) is not None]
            assert len(records) == 1
            assert isinstance(records[0], WindowRecord)
            assert records[0].current.region_total == sum(cost for _, cost in world.admitted[key])
        assert {path for path, _ in world.outcomes} <= {"local", "origin", "exact", "deny_cache"}, world.outcomes

    virtually(history())


@pytest.mark.parametrize("failing", [None, WalkRecords, TakeRecords, PutRecords, DropRecords])
def test_a_key_that_nobody_has_a_counter_of_keeps_its_counts_whatever_step_fails(failing: type | None) -> None:
    """Each step is tried again, by the same node or another one, and is carried out once."""
    limit = Limit(5, Unit.DAY)

    async def history() -> None:
        world = RegionWorld(1, shards=3)
        gone = await world.start_node(listed=TWO)
        for charge in charges(limit):
            for _ in range(limit.requests_per_unit):
                assert (await world.ask(gone, charge)).admitted
        await world.quiet()
        await world.kill(gone)
        node = await world.start_node(listed=TWO)
        fail_once(node, failing)
        await change(world, THREE)
        await in_force(world, THREE)
        assert world.shards[2].memory.records
        assert not any([(await world.ask(node, charge)).admitted for charge in charges(limit)])

    virtually(history())


def fail_once(node: RegionNode, failing: type | None) -> None:
    """Have the first operation of a kind carried out and its answer lost, and the second not even carried out."""
    run, left = node._origin.run, 2

    async def unreliable(shard: int, operation: Operation[Any], timeout_s: float) -> Any:
        nonlocal left
        if failing is None or not isinstance(operation, failing) or not left:
            return await run(shard, operation, timeout_s)
        left -= 1
        if left:
            await run(shard, operation, timeout_s)
        raise OriginTimeout("no answer")

    node._origin.run = unreliable  # type: ignore[method-assign]


def test_a_reset_is_made_where_the_record_is_while_it_moves() -> None:
    limit = Limit(5, Unit.DAY)

    async def history() -> None:
        world = RegionWorld(1, shards=3)
        nodes = [await world.start_node(listed=TWO) for _ in range(2)]
        for charge in charges(limit):
            for _ in range(limit.requests_per_unit):
                assert (await world.ask(nodes[0], charge)).admitted
        await change(world, THREE)
        for charge in charges(limit):
            await nodes[1].reset(charge.key, limit)
            assert (await world.ask(nodes[1], charge)).admitted
        await in_force(world, THREE)
        assert [world.record(key).current.region_total for key in KEYS] == [1] * len(KEYS)

    virtually(history())


def test_a_shard_that_is_gone_for_good_is_given_up_after_half_a_minute() -> None:
    """What nodes know of its keys comes back where they belong now."""
    limit = Limit(5, Unit.DAY)

    async def history() -> None:
        world = RegionWorld(1, shards=3, deadline_s=0.05)
        nodes = [await world.start_node(listed=TWO) for _ in range(2)]
        for charge in charges(limit):
            for _ in range(limit.requests_per_unit):
                assert (await world.ask(nodes[0], charge)).admitted
        await world.quiet()
        world.shards[1].up = False
        await change(world, ("0", "2"))
        await asyncio.sleep(20)
        assert all(node.lists.placed_by == TWO for node in nodes), "it may come back"
        assert "no answer from 1" in str(nodes[0].describe()["list"]["waits_for"])
        await in_force(world, ("0", "2"))
        await world.quiet()
        assert not any([(await world.ask(node, charge)).admitted for node in nodes for charge in charges(limit)])

    virtually(history())


def test_a_node_that_starts_beside_a_region_goes_by_its_list() -> None:
    limit = Limit(10, Unit.DAY, precision_millionths=0)

    async def history() -> None:
        world = RegionWorld(1, shards=3)
        first = await world.start_node(listed=TWO)
        other = await world.start_node(listed=THREE)
        for charge in charges(limit):
            admitted = [(await world.ask(node, charge)).admitted for _ in range(10) for node in (first, other)]
            assert sum(admitted) == 10
        assert other.lists.placed_by == TWO
        assert other.lists.changing

    virtually(history())
