"""What a reservation gives back: never more than was charged, and spent once."""

import asyncio

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Unit

from tests.support.clock import ManualClock
from tests.support.region import RegionWorld, virtually

SLIDING = Limit(10, Unit.HOUR)
LIMITS = [
    SLIDING,
    Limit(10, Unit.HOUR, algorithm=Algorithm.FIXED_WINDOW),
    Limit(10, Unit.HOUR, algorithm=Algorithm.GCRA, burst=10),
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.algorithm.value)
def test_a_node_on_its_own_has_the_room_again_and_never_more_than_the_limit(limit: Limit) -> None:
    engine = Engine(ManualClock(1_700_000_000_000), max_cells=1_000)
    assert engine.decide((Charge(b"k", limit, 10),)).admitted
    assert not engine.decide((Charge(b"k", limit, 1),)).admitted
    engine.uncharge((Charge(b"k", limit, 4), Charge(b"unknown", limit, 4)))
    assert engine.decide((Charge(b"k", limit, 4),)).admitted
    assert not engine.decide((Charge(b"k", limit, 1),)).admitted
    engine.uncharge((Charge(b"k", limit, 1_000),))
    assert engine.decide((Charge(b"k", limit, 10),)).admitted
    assert not engine.decide((Charge(b"k", limit, 1),)).admitted


@pytest.mark.parametrize("limit", LIMITS[:2], ids=lambda limit: limit.algorithm.value)
def test_a_node_of_a_region_has_it_as_credit_and_the_region_stays_within_the_limit(limit: Limit) -> None:
    async def history() -> None:
        world = RegionWorld(1)
        one, two = [await world.start_node() for _ in range(2)]
        assert (await world.ask(one, Charge(b"k", limit, 8))).admitted
        assert (await world.ask(two, Charge(b"k", limit, 2))).admitted
        await world.quiet()
        assert not (await world.ask(one, Charge(b"k", limit, 1))).admitted
        one.uncharge((Charge(b"k", limit, 3),))
        assert not (await world.ask(one, Charge(b"k", limit, 4))).admitted
        assert (await world.ask(one, Charge(b"k", limit, 3))).admitted
        assert not (await world.ask(one, Charge(b"k", limit, 1))).admitted
        two.uncharge((Charge(b"k", limit, 1_000),))
        await world.quiet()
        assert (await world.ask(two, Charge(b"k", limit, 2))).admitted, "no more than it had charged"
        for node in (one, two):
            assert not (await world.ask(node, Charge(b"k", limit, 1))).admitted
        await asyncio.sleep(1)

    virtually(history())


def test_what_a_region_charged_to_a_bucket_drains_and_pays_for_nothing() -> None:
    async def history() -> None:
        world = RegionWorld(1)
        node = await world.start_node()
        limit = LIMITS[2]
        assert (await world.ask(node, Charge(b"k", limit, 10))).admitted
        await world.quiet()
        node.uncharge((Charge(b"k", limit, 3),))
        assert not (await world.ask(node, Charge(b"k", limit, 1))).admitted

    virtually(history())
