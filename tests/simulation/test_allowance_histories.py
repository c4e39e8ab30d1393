"""Histories of allowances that chance seldom plays, and in which simpler rules admit too much.

Each is played by the rule that is in force, and by the simpler one, which it must find wanting.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.region.node import RegionNode
from headgate.region.window_counter import SharedWindow

from tests.simulation import mutations
from tests.support.region import RegionWorld, virtually

KEY: Final = b"key"
HOURLY: Final = Limit(400, Unit.HOUR, precision_millionths=0)
ASKED: Final = 60
SECONDLY: Final = Limit(400, Unit.SECOND, algorithm=Algorithm.FIXED_WINDOW, precision_millionths=0)

History = Callable[[], Coroutine[Any, Any, bool]]


def counter_of(node: RegionNode) -> SharedWindow:
    counter = node.engine.counters.find(KEY)
    assert isinstance(counter, SharedWindow)
    return counter


async def holding_node(world: RegionWorld, limit: Limit) -> RegionNode:
    """Return a node that is asked for often enough to hold ten units or more."""
    node = await world.start_node()
    for _ in range(ASKED):
        await world.ask(node, Charge(KEY, limit, 1))
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert counter_of(node).spendable(world.clock.monotonic()) >= 10
    return node


async def take_all(world: RegionWorld, node: RegionNode, limit: Limit) -> None:
    """Have a node take whatever it is given."""
    for _ in range(limit.requests_per_unit):
        await world.ask(node, Charge(KEY, limit, 1))


async def a_late_cost() -> bool:
    """A node knows of a cost late, as large as what it holds, after another took all the rest: whether it fits."""
    world = RegionWorld(1)
    node, other = await holding_node(world, HOURLY), await world.start_node()
    held = counter_of(node).spendable(world.clock.monotonic())
    await world.ask(other, Charge(KEY, HOURLY, HOURLY.requests_per_unit - ASKED - held))
    await world.ask(node, Charge(KEY, HOURLY, held, late=True))
    await take_all(world, node, HOURLY)
    return world.worst(KEY, HOURLY) <= HOURLY.requests_per_unit


async def a_window_that_the_shard_has_yet_to_reach() -> bool:
    """The shard's clock goes back by a little at the end of a window: whether all is set aside that nodes may spend."""
    world = RegionWorld(2)
    node = await holding_node(world, SECONDLY)
    shard, held = world.shards[0], counter_of(node).spendable(world.clock.monotonic())
    await asyncio.sleep(1.0 - world.clock.now_ms() % 1000 / 1000 + 0.005)
    shard.set_clock(-100)
    sequence = shard.time_ms() // 1000
    for _ in range(held // 2):
        await world.ask(node, Charge(KEY, SECONDLY, 1))
    await asyncio.sleep(0.03)  # half of it is spent: it is reported soon
    counter, record = counter_of(node), world.record(KEY)
    assert record.sequence == sequence == counter.sequence - 1
    assert counter.current_cell.total
    return counter.current_cell.total + counter.allowance <= record.allowances.held


async def a_limit_that_was_lowered() -> bool:
    """A node holds much of a limit that is lowered: whether it heeds what others have by now."""
    world = RegionWorld(3)
    node, other = await holding_node(world, HOURLY), await world.start_node()
    held = counter_of(node).spendable(world.clock.monotonic())
    await world.ask(other, Charge(KEY, HOURLY, 250))
    lower = Limit(ASKED + 250 + held // 2, Unit.HOUR, precision_millionths=0)
    await take_all(world, node, lower)
    return world.worst(KEY, lower) <= lower.requests_per_unit


async def a_shard_that_lost_its_memory() -> bool:
    """A shard forgets all; those who notice tell it again: whether no more than `P` is set aside until all have."""
    world, limit = RegionWorld(4), Limit(1_000, Unit.MINUTE, precision_millionths=10_000)
    for _ in range(4):
        await world.start_node()
    await world.load(80, 3, Charge(KEY, limit, 1))
    assert world.record(KEY).allowances.held > limit.precision
    world.shards[0].wipe(b"another run")
    most = 0
    for _ in range(20):
        await world.load(80, 0.1, Charge(KEY, limit, 1))
        most = max(most, world.record(KEY).allowances.held)
    await asyncio.sleep(2)
    await world.load(80, 1, Charge(KEY, limit, 1))
    assert world.record(KEY).allowances.held > limit.precision, "and beyond it afterwards"
    return most <= limit.precision


HISTORIES: Final[tuple[tuple[History, mutations.Planted], ...]] = (
    (a_late_cost, mutations.late_costs_beside_the_allowance),
    (a_window_that_the_shard_has_yet_to_reach, mutations.unmerged_is_free),
    (a_limit_that_was_lowered, mutations.allowances_of_another_limit),
    (a_shard_that_lost_its_memory, mutations.hold_on_after_a_loss),
)


def is_right(history: History) -> bool:
    outcomes: list[bool] = []

    async def played() -> None:
        outcomes.append(await history())

    virtually(played())
    return outcomes[0]


@pytest.mark.parametrize("history", [history for history, _ in HISTORIES])
def test_allowances_are_covered(history: History) -> None:
    assert is_right(history)


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize(("history", "planted"), HISTORIES)
def test_a_simpler_rule_is_found(history: History, planted: mutations.Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch)
    assert not is_right(history)


@pytest.mark.parametrize(
    ("most", "cost", "gap_s"), [(10, 1, 0.01), (10, 1, 0.5), (2, 1, 0.01), (20, 10, 0.01), (20, 10, 0.5)]
)
def test_a_small_limit_is_used_up_before_it_denies(most: int, cost: int, gap_s: float) -> None:
    """Whoever tries a limit of ten by hand, on nodes in turn, gets ten: no unit of it lies with a node in vain."""
    limit, admitted = Limit(most, Unit.MINUTE, precision_millionths=0), list[bool]()

    async def history() -> None:
        world = RegionWorld(5)
        nodes = [await world.start_node() for _ in range(2)]
        for number in range(most // cost + 2):
            admitted.append((await world.ask(nodes[number % 2], Charge(KEY, limit, cost))).admitted)
            await asyncio.sleep(gap_s)

    virtually(history())
    assert admitted == [True] * (most // cost) + [False] * 2
