"""Late costs are known soon: on every node within a second, and what decides a look is half a second old."""

import asyncio

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.region import refunds
from headgate.region.node import RegionNode

from tests.simulation import mutations
from tests.support.region import RegionWorld, virtually

KEY = b"k"
KNOWN_S = 1.0
"""After so long every node decides by a late cost."""
LIMITS = [
    Limit(1_000, Unit.MINUTE, overdraft=True),
    Limit(1_000, Unit.HOUR, overdraft=True, algorithm=Algorithm.FIXED_WINDOW),
    Limit(1_000, Unit.MINUTE, overdraft=True, algorithm=Algorithm.GCRA, burst=1_000),
    Limit(1_000, Unit.MINUTE, overdraft=True, refund=True),
]
SLIDING = LIMITS[0]


async def look(world: RegionWorld, node: RegionNode, limit: Limit) -> bool:
    return (await world.ask(node, Charge(KEY, limit, 0))).admitted


async def last_let_in_s(limit: Limit, every_s: float) -> float:
    """Have everything used on two nodes; return for how long nodes that had looked before let somebody in after that.

    Each has an allowance of the key, because estimates are charged on it too.
    """
    world = RegionWorld(1)
    nodes = [await world.start_node() for _ in range(3)]
    for _ in range(4):
        for node in nodes:
            assert (await world.ask(node, Charge(KEY, limit, 1, late=False))).admitted
            assert await look(world, node, limit)
        await asyncio.sleep(0.2)
    for node in nodes[:2]:
        await world.ask(node, Charge(KEY, limit, 700))
    began_s = last_s = world.clock.monotonic()
    while world.clock.monotonic() < began_s + 6:
        for node in nodes:
            asked_s = world.clock.monotonic()
            if await look(world, node, limit):
                last_s = asked_s
        await asyncio.sleep(every_s)
    return last_s - began_s


@pytest.mark.parametrize("every_s", [0.01, 0.3, 0.7], ids=lambda every_s: f"a look every {every_s} s")
@pytest.mark.parametrize("limit", LIMITS, ids=["sliding", "fixed", "gcra", "with refunds"])
def test_nobody_is_let_in_a_second_after_everything_was_used(limit: Limit, every_s: float) -> None:
    async def history() -> None:
        assert await last_let_in_s(limit, every_s) <= KNOWN_S

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled module")
def test_by_old_views_callers_are_let_in_for_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.looks_by_old_views(monkeypatch)

    async def history() -> None:
        assert await last_let_in_s(SLIDING, 0.01) > 2 * KNOWN_S

    virtually(history())


GIVING_BACK = [
    Limit(1_000, Unit.HOUR, refund=True),
    Limit(1_000, Unit.HOUR, refund=True, algorithm=Algorithm.FIXED_WINDOW),
    Limit(1_000, Unit.HOUR, refund=True, algorithm=Algorithm.GCRA, burst=1_000),
]


async def known_after_s(limit: Limit, every_s: float) -> list[float]:
    """Have everything used, on nodes that go on denying, and some given back at the first of them; return after how
    long each node admits again, by when the request came that it admits.
    """
    world = RegionWorld(1)
    nodes = [await world.start_node() for _ in range(3)]
    unit = Charge(KEY, limit, 1)
    for node in nodes:
        while (await world.ask(node, unit)).admitted:
            pass
    for _ in range(10):
        assert not [node for node in nodes if (await world.ask(node, unit)).admitted]
        await asyncio.sleep(every_s)
    await world.ask(nodes[0], Charge(KEY, limit, 300, refund=True))
    began_s = world.clock.monotonic()
    known: dict[RegionNode, float] = {}
    while len(known) < len(nodes) and world.clock.monotonic() < began_s + 6:
        for node in nodes:
            asked_s = world.clock.monotonic()
            if node not in known and (await world.ask(node, unit)).admitted:
                known[node] = asked_s - began_s
        await asyncio.sleep(every_s)
    assert len(known) == len(nodes)
    return [known[node] for node in nodes]


@pytest.mark.parametrize("every_s", [0.01, 0.3], ids=lambda every_s: f"a request every {every_s} s")
@pytest.mark.parametrize("limit", GIVING_BACK, ids=["sliding", "fixed", "gcra"])
def test_what_is_given_back_is_there_for_every_node_within_a_second(limit: Limit, every_s: float) -> None:
    async def history() -> None:
        assert max(await known_after_s(limit, every_s)) <= KNOWN_S

    virtually(history())


TRICKLE_S = 0.05
"""Time between the refunds of one, before and after the one that counts."""


async def known_among_others_after_s(limit: Limit, before: int, at: int) -> float:
    """Have most given back at one node while small refunds follow each other; return after how long the node at that
    place knows of it."""
    world = RegionWorld(1)
    nodes = [await world.start_node() for _ in range(3)]
    one, many = Charge(KEY, limit, 1), Charge(KEY, limit, 500)
    for node in nodes:
        while (await world.ask(node, one)).admitted:
            pass
    await asyncio.sleep(0.3)

    async def trickle(times: int) -> None:
        for _ in range(times):
            await world.ask(nodes[0], Charge(KEY, limit, 1, refund=True))
            await asyncio.sleep(TRICKLE_S)

    await trickle(before)
    await world.ask(nodes[0], Charge(KEY, limit, 700, refund=True))
    began_s = asked_s = world.clock.monotonic()
    others = asyncio.create_task(trickle(60))
    while not (await world.ask(nodes[at], many)).admitted:
        await asyncio.sleep(0.01)
        asked_s = world.clock.monotonic()
        assert asked_s < began_s + 6
    await others
    return asked_s - began_s


@pytest.mark.parametrize("before", range(1, 12, 2), ids=lambda before: f"{before} before it")
@pytest.mark.parametrize("limit", GIVING_BACK, ids=["sliding", "fixed", "gcra"])
def test_what_is_given_back_among_other_refunds_of_the_key_is_known_as_soon(limit: Limit, before: int) -> None:
    async def history() -> None:
        assert max([await known_among_others_after_s(limit, before, at) for at in range(3)]) <= KNOWN_S

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled module")
def test_where_all_refunds_wait_for_the_last_one_none_is_known_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refunds, "GATHERED_S", 10.0)

    async def history() -> None:
        assert await known_among_others_after_s(GIVING_BACK[0], 1, 0) > 2 * KNOWN_S

    virtually(history())


@pytest.mark.parametrize(("per_s", "most_per_s"), [(1, 1), (5, 2.3), (50, 2.3)])
def test_looks_far_from_the_limit_cost_two_calls_a_second_at_most(per_s: int, most_per_s: float) -> None:
    async def history() -> None:
        world = RegionWorld(1)
        node = await world.start_node()
        await world.ask(node, Charge(KEY, SLIDING, 1))
        await world.quiet()
        calls, began_s = node.links[0].stats.calls, world.clock.monotonic()
        while world.clock.monotonic() < began_s + 20:
            assert await look(world, node, SLIDING)
            await asyncio.sleep(1 / per_s)
        assert node.links[0].stats.calls - calls <= 20 * most_per_s

    virtually(history())
