"""After a connection has silently died and come back, regions agree within 5 s: whatever was under way when it did."""

import asyncio
from dataclasses import replace

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Scope, Unit
from headgate.origin.window_record import WindowRecord
from headgate.simulation.history import Key
from headgate.simulation.loop import run_virtually
from headgate.simulation.regions.generate import generate
from headgate.simulation.regions.world import RegionsWorld
from headgate.simulation.trace import Silence

AGREED_S = 5.0
LIMIT = Limit(1_000, Unit.HOUR, scope=Scope.GLOBAL, regions=3)


@pytest.mark.parametrize("phase", range(12))
def test_regions_agree_within_five_seconds_of_a_healed_network(phase: int) -> None:
    async def history() -> None:
        played = replace(
            generate(0), seed=phase, regions=3, offsets_ms=(0, 0, 0), keys=(Key(b"key", LIMIT),), asks=(), faults=()
        )
        world = RegionsWorld(played, Silence())
        await world.start()
        await asyncio.sleep(5)
        for path in world.links.values():
            path.connected = False
        for site in world.sites:
            node = next(world.nodes(site))
            decided = node.decide((Charge(b"key", LIMIT, 100),))
            if isinstance(decided, asyncio.Future):
                await decided
        await asyncio.sleep(20 + phase * 0.4)
        for path in world.links.values():
            path.connected = True
        await asyncio.sleep(AGREED_S)
        for site in world.sites:
            record = site.shards[world.shard_of(b"key")].record(b"key")
            assert isinstance(record, WindowRecord)
            assert (record.current.region_total, record.current.foreign) == (100, 200), site.name
        for site in world.sites:
            for number in range(len(site.exchangers)):
                await world.kill_exchanger(site, number)
            for number in range(len(site.nodes)):
                await world.kill_node(site, number)

    run_virtually(history())
