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
from headgate.simulation.regions.world import RegionsWorld, Site
from headgate.simulation.trace import Tracer

AGREED_S = 5.0
LIMIT = Limit(1_000, Unit.HOUR, scope=Scope.GLOBAL, regions=3)
USED = {b"everywhere": (100, 100, 100), b"by one": (100, 20, 0)}
"""What each region admits of a key. Below the threshold (67) a region tells what it has when it hears of another's."""


async def use(world: RegionsWorld, site: Site) -> None:
    node = next(world.nodes(site))
    for key, used in USED.items():
        if used[site.index]:
            decided = node.decide((Charge(key, LIMIT, used[site.index]),))
            if isinstance(decided, asyncio.Future):
                await decided


@pytest.mark.parametrize("apart_s", [1.0 + phase / 4 for phase in range(4)] + [20.0 + phase / 4 for phase in range(20)])
def test_regions_agree_within_five_seconds_of_a_healed_network(apart_s: float) -> None:
    """Whenever it heals: early, late and in the middle of an attempt, at the cadence that is the default."""

    async def history() -> None:
        played = replace(
            generate(0),
            seed=round(apart_s * 100),
            regions=3,
            offsets_ms=(0, 0, 0),
            link_ms=(80.0, 160.0),
            keys=tuple(Key(key, LIMIT) for key in USED),
            asks=(),
            faults=(),
        )
        world = RegionsWorld(played, Tracer())
        await world.start()
        await asyncio.sleep(5)
        for path in world.links.values():
            path.connected = False
        for site in world.sites:
            await use(world, site)
        await asyncio.sleep(apart_s)
        for path in world.links.values():
            path.connected = True
        await asyncio.sleep(AGREED_S)
        for site in world.sites:
            for key, used in USED.items():
                record = site.shards[world.shard_of(key)].record(key)
                assert isinstance(record, WindowRecord)
                own = used[site.index]
                assert (record.current.region_total, record.current.foreign) == (own, sum(used) - own), (site.name, key)
        for site in world.sites:
            for number in range(len(site.exchangers)):
                await world.kill_exchanger(site, number)
            for number in range(len(site.nodes)):
                await world.kill_node(site, number)

    run_virtually(history())
