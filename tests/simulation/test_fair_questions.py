"""A flood of new keys from one caller: what another one asks is sent within a bound, on virtual time.

What the flood waits for in vain says nothing about the shard: its breaker stays closed.
"""

import asyncio
from typing import Final

import pytest
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Limit, OnError, Unit
from headgate.region.node import RegionNode
from headgate.simulation.awaiting import future_of

from tests.simulation import mutations
from tests.support.region import RegionWorld, virtually

LIMIT: Final = Limit(1_000, Unit.HOUR, on_error=OnError.CLOSED)
KEYS: Final = 32
"""New keys of one request of the flood: a call to the shard takes two such requests."""
DEADLINE_S: Final = 0.02
WELL_MS: Final = (8.0, 8.0)
SLOW_MS: Final = (40.0, 40.0)
ROUND_TRIPS: Final = 2.1
"""The call that is under way when a question comes, and the next one, which has it."""


class Flood:
    """One caller with more new keys than a shard can be asked for, and others who ask for one now and then."""

    def __init__(self, world: RegionWorld, node: RegionNode, requests: int = 10) -> None:
        self.world = world
        self.node = node
        self.requests = requests
        """Requests of the flood in a millisecond."""
        self.honest = 0
        self.denied = 0
        self.worst_s = 0.0

    async def play(self, seconds: float, callers: int) -> None:
        loop = asyncio.get_running_loop()
        end_s, number = loop.time() + seconds, 0
        async with asyncio.TaskGroup() as tasks:
            while loop.time() < end_s:
                number += 1
                for request in range(self.requests):
                    charges = [Charge(b"f%d.%d.%d" % (number, request, key), LIMIT, 1) for key in range(KEYS)]
                    self.node.decide(tuple(charges), "flood")
                if number % 5 == 0:
                    tasks.create_task(self._ask(number, f"honest {number // 5 % callers}"))
                await asyncio.sleep(0.001)

    async def _ask(self, number: int, caller: str) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        decided = self.node.decide((Charge(b"h%d" % number, LIMIT, 1),), caller)
        decision = decided if isinstance(decided, Decision) else await future_of(decided)
        self.honest += 1
        self.denied += not decision.admitted
        self.worst_s = max(self.worst_s, loop.time() - began_s)


async def flooded(callers: int) -> Flood:
    world = RegionWorld(1, deadline_s=DEADLINE_S, max_cells=1_000_000)
    flood = Flood(world, await world.start_node(delay_ms=(1.0, 1.0)))
    await flood.play(0.25, callers)
    return flood


@pytest.mark.parametrize("callers", [pytest.param(1, marks=pytest.mark.long), 7])
def test_who_asks_beside_a_flood_waits_for_the_next_call(callers: int) -> None:
    async def history() -> None:
        flood = await flooded(callers)
        round_trip_s = 2 * 0.001
        assert flood.honest > 40
        assert flood.denied == 0
        assert flood.worst_s <= ROUND_TRIPS * round_trip_s
        assert flood.node.engine.stats.deadline_missed > 500, "the flood itself waits in vain"

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled class")
def test_in_one_line_the_flood_would_leave_nobody_else_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.one_line_for_all(monkeypatch)

    async def history() -> None:
        flood = await flooded(1)
        assert flood.denied > flood.honest / 2

    virtually(history())


async def flooded_beside_slow_calls() -> Flood:
    """A flood of two seconds, the shard being slow for a tenth of the time."""
    world = RegionWorld(7, deadline_s=DEADLINE_S, max_cells=1_000_000)
    node = await world.start_node(delay_ms=WELL_MS)
    flood = Flood(world, node, requests=3)
    load = asyncio.get_running_loop().create_task(flood.play(2, 1))
    while not load.done():
        world.networks[0].delay_ms = SLOW_MS if world.random.random() < 0.1 else WELL_MS
        await asyncio.sleep(0.01)
    await load
    return flood


def test_what_a_flood_waits_for_in_vain_opens_no_breaker() -> None:
    async def history() -> None:
        flood = await flooded_beside_slow_calls()
        assert flood.node.engine.stats.deadline_missed > 3_000, "most of the flood was never sent"
        assert flood.node.links[0].breaker.trips == 0
        assert flood.honest > 350
        assert flood.denied < flood.honest / 4, "those who asked while the shard was slow"

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled class")
def test_if_what_was_not_sent_counted_a_flood_would_open_the_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.count_what_was_not_sent(monkeypatch)

    async def history() -> None:
        flood = await flooded_beside_slow_calls()
        assert flood.node.links[0].breaker.trips > 0
        assert flood.denied > flood.honest / 3

    virtually(history())
