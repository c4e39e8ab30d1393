"""A shard that answers every call, and too late for those who wait: its breaker opens, and closes when it is well."""

import asyncio
from typing import Final

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Unit
from headgate.region.breaker import BreakerState
from headgate.region.node import RegionNode

from tests.simulation import mutations
from tests.support.region import RegionWorld, virtually

LIMIT: Final = Limit(1_000, Unit.HOUR)
DEADLINE_S: Final = 0.005
WELL_MS: Final = (0.3, 0.9)


async def new_keys(world: RegionWorld, node: RegionNode, first: int, seconds: float, per_s: float = 200) -> None:
    """Ask for keys that the node has not seen: each of them must ask the shard."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    while loop.time() < end_s:
        first += 1
        world.ask_soon(node, Charge(b"%d" % first, LIMIT, 1))
        await asyncio.sleep(world.random.expovariate(per_s))


async def slowed(delay_ms: float) -> tuple[RegionWorld, RegionNode]:
    """A node whose shard is well for a second, and then answers so late."""
    world = RegionWorld(1, deadline_s=DEADLINE_S)
    node = await world.start_node(delay_ms=WELL_MS)
    await new_keys(world, node, 0, 1)
    assert node.links[0].breaker.closed
    world.networks[0].delay_ms = (delay_ms, delay_ms)
    await new_keys(world, node, 1_000_000, 3)
    return world, node


@pytest.mark.parametrize("delay_ms", [10.0, 20.0, 50.0])
def test_a_shard_that_is_late_for_most_is_not_waited_for(delay_ms: float) -> None:
    async def history() -> None:
        world, node = await slowed(delay_ms)
        link, waits = node.links[0], world.waits
        assert link.breaker.state is not BreakerState.CLOSED
        assert "missed their deadline" in link.last_error or "a call took" in link.last_error
        await new_keys(world, node, 2_000_000, 5)
        assert world.waits == waits, "while it is slow no probe closes the breaker, and nobody waits"
        world.networks[0].delay_ms = WELL_MS
        await asyncio.sleep(3)
        assert link.breaker.closed

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled class")
def test_if_late_answers_were_answers_everybody_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.late_answers_are_answers(monkeypatch)

    async def history() -> None:
        world, node = await slowed(20.0)
        waits = world.waits
        await new_keys(world, node, 2_000_000, 5)
        assert world.waits - waits > 900
        assert not node.links[0].breaker.trips

    virtually(history())


def test_a_tenth_of_slow_calls_opens_nothing() -> None:
    async def history() -> None:
        world = RegionWorld(2, deadline_s=DEADLINE_S)
        node = await world.start_node(delay_ms=WELL_MS)
        load = asyncio.get_running_loop().create_task(new_keys(world, node, 0, 10))
        while not load.done():
            world.networks[0].delay_ms = (20.0, 20.0) if world.random.random() < 0.1 else WELL_MS
            await asyncio.sleep(0.01)
        assert node.links[0].breaker.trips == 0

    virtually(history())


def test_one_that_flaps_is_waited_for_while_it_is_well() -> None:
    """Slow, well, slow: the breaker opens in each bad spell, and is closed at the end of each good one."""

    async def history() -> None:
        world = RegionWorld(3, deadline_s=DEADLINE_S)
        node = await world.start_node(delay_ms=WELL_MS)
        for spell in range(3):
            world.networks[0].delay_ms = (20.0, 20.0)
            await new_keys(world, node, spell * 10_000, 2.5)
            assert not node.links[0].breaker.closed
            world.networks[0].delay_ms = WELL_MS
            await new_keys(world, node, spell * 10_000 + 5_000, 3)
            assert node.links[0].breaker.closed
        assert node.links[0].breaker.trips >= 3

    virtually(history())
