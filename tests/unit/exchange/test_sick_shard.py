"""A shard that hangs: keys of the others are told, taken in and kept as ever. The code that serves, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from headgate.exchange import sender
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Limit, Scope, Unit
from headgate.limiter.scopes import charges_of
from headgate.origin.window_record import WindowRecord
from headgate.quota.store import QuotaStore
from headgate.simulation.awaiting import future_of
from headgate.simulation.history import Key
from headgate.simulation.network import shard_of
from headgate.simulation.regions.generate import generate
from headgate.simulation.regions.world import RegionsWorld, Site
from headgate.simulation.trace import Tracer

from tests.support.region import virtually

pytestmark = pytest.mark.slow

SHARDS = 6
MANY = 16
"""As on a Cluster: asked one after the other, those that hang would take longer than slices hold."""
LIMIT = Limit(1_000_000, Unit.HOUR, scope=Scope.GLOBAL, regions=2)
QUOTA = Limit(1_000, Unit.SECOND, 10, scope=Scope.QUOTA, regions=2)
HITS = 100_000
"""At the threshold (a fifth of the limit ÷ regions)."""
SICK_S = 24.0
STUCK_S = 12.0
"""Some attempts, each of which waits for its answer in vain."""
TOLD_S = 4.0
"""An interval, the way, and what a batch waits at most for a shard that hangs. (One after the other, three shards would
take 6 s for every batch.)"""


@asynccontextmanager
async def two_regions(*keys: Key, shards: int = SHARDS) -> AsyncIterator[RegionsWorld]:
    history = replace(
        generate(0), regions=2, shards=shards, exchangers=1, offsets_ms=(0, 0), keys=keys, asks=(), faults=()
    )
    world = RegionsWorld(history, Tracer())
    await world.start()
    await asyncio.sleep(18)  # all have heard each other, and been connected for 10 s
    yield world
    for site in world.sites:
        await world.kill_exchanger(site, 0)
        for number in range(len(site.nodes)):
            await world.kill_node(site, number)


def key_on(shard: int) -> bytes:
    return next(key for key in (b"key%d" % number for number in range(1_000)) if shard_of(key, SHARDS) == shard)


async def count(world: RegionsWorld, site: Site, key: bytes) -> None:
    decided = next(world.nodes(site)).decide((Charge(key, LIMIT, HITS),))
    if not isinstance(decided, Decision):
        decided = await future_of(decided)
    assert decided.admitted


def known_abroad(world: RegionsWorld, site: Site, key: bytes) -> int:
    record = site.shards[world.shard_of(key)].record(key)
    return record.current.foreign if isinstance(record, WindowRecord) else 0


@pytest.mark.parametrize("sick", [0, 1])
def test_what_the_other_shards_have_counted_is_known_in_the_other_region(sick: int) -> None:
    """Whether the shard hangs where it is counted, or where it is told."""

    async def history() -> None:
        keys = [Key(key_on(shard), LIMIT) for shard in range(SHARDS)]
        async with two_regions(*keys) as world:
            counting, told = world.sites
            for shard in range(1, 4):
                world.sites[sick].shards[shard].stall()
            well = (key_on(0), key_on(4), key_on(5))
            began_s, hits = world.loop.time(), 0
            while world.loop.time() < began_s + SICK_S:
                for key in well:
                    await count(world, counting, key)
                hits += HITS
                await asyncio.sleep(TOLD_S)
                assert [known_abroad(world, told, key) for key in well] == [hits] * len(well)

    virtually(history())


def test_what_is_new_is_told_though_a_shard_there_keeps_everything_before_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More has changed than one batch has room for, and the first of it can't be taken in: its cursor stays."""
    monkeypatch.setattr(sender, "PAGE", 3)

    async def history() -> None:
        keys = [b"a%d" % number for number in range(60)]
        hot = key_on(0)
        async with two_regions(*(Key(key, LIMIT) for key in (*keys, hot))) as world:
            counting, told = world.sites
            for shard in range(1, SHARDS):
                told.shards[shard].stall()
            for key in keys:
                await count(world, counting, key)
            for round_ in range(1, 4):
                for key in keys[10 * round_ : 10 * round_ + 20]:
                    await count(world, counting, key)
                await count(world, counting, hot)
                await asyncio.sleep(STUCK_S)
                assert known_abroad(world, told, hot) == round_ * HITS

    virtually(history())


def test_slices_of_the_other_shards_stay_in_force() -> None:
    async def history() -> None:
        async with two_regions(Key(b"quota", QUOTA), shards=MANY) as world:
            site = world.sites[0]
            place = world.shard_of(b"quota")
            for number in range(MANY):
                if number not in (0, place):
                    site.shards[number].stall()
            began_s, shard = world.loop.time(), site.shards[place]
            charges = charges_of([Charge(b"quota", QUOTA, 1)])
            while world.loop.time() < began_s + 40:
                for node in world.nodes(site):
                    node.decide(charges)
                await asyncio.sleep(0.02)
                assert shard.time_ms() < shard.memory.part(QuotaStore).until_ms, "its deadline is renewed"
            shares = shard.memory.part(QuotaStore).shares.values()
            written_ms = {round(known.until_ms - shard.time_ms(), -4) for known in shares}
            assert written_ms == {20_000}, "and so is its own share"

    virtually(history())
