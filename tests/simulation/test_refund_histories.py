"""Refunds at another node than the one that charged: the shard hears of the charge first, and of all that it lost."""

import asyncio
from typing import Any

import pytest
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Limit, Unit
from headgate.origin.interface import HEARTBEAT_S
from headgate.region.node import RegionNode
from headgate.region.refunds import REFILL_S, TOGETHER_S, TOLD_AFTER_S

from tests.support.region import RegionWorld, virtually

LIMIT = Limit(10_000, Unit.HOUR, refund=True)
KEY = b"k"
COST = 30


async def charge(world: RegionWorld, node: RegionNode, cost: int) -> None:
    assert (await world.ask(node, Charge(KEY, LIMIT, cost))).admitted


def give_back(node: RegionNode, cost: int) -> None:
    assert isinstance(node.decide((Charge(KEY, LIMIT, cost, refund=True),)), Decision)


async def two_nodes(world: RegionWorld) -> tuple[RegionNode, RegionNode]:
    """Both have met the key, and hold allowances of it. The second one's heart beats half a beat later."""
    first = await world.start_node()
    await asyncio.sleep(HEARTBEAT_S / 2)
    second = await world.start_node()
    for node in (first, second):
        await charge(world, node, 1)
    await world.quiet()
    return first, second


def counts(world: RegionWorld) -> tuple[int, int]:
    """What the shard has counted, and what of that was given back."""
    cell = world.record(KEY).current
    return cell.region_total, cell.refunded


@pytest.mark.parametrize("busy", [False, True], ids=["at rest", "with a report of its own due"])
def test_what_one_node_has_just_charged_another_may_give_back(busy: bool) -> None:
    """The node that charged tells it a quarter of a second later. Whoever gives it back tells that later still, also
    if a report of its own, on the same key, goes out before."""

    async def history() -> None:
        world = RegionWorld(1)
        a, b = await two_nodes(world)
        if busy:
            await charge(world, b, 1)
            await asyncio.sleep(0.2)
        waits = world.waits
        await charge(world, a, COST)
        assert world.waits == waits, "admitted out of the allowance: the shard has yet to hear of it"
        give_back(b, COST)
        await world.quiet()
        assert counts(world) == (2 + busy + COST, COST)

    virtually(history())


@pytest.mark.pure("it writes down when a method of a compiled class is called")
@pytest.mark.parametrize("counted", [True, False], ids=["of what was counted", "of what was only just charged"])
@pytest.mark.parametrize("epoch", [None, b"second"], ids=["flushed", "restarted"])
def test_a_shard_that_lost_its_memory_is_refilled_before_it_is_asked_to_give_back(
    epoch: bytes | None, counted: bool
) -> None:
    """The node that gives back notices first, and knows nothing of what the other one charged."""

    async def history() -> None:
        world = RegionWorld(2)
        a, b = await two_nodes(world)
        noticed: list[Any] = []
        for node in (a, b):
            watch(node, noticed)
        if counted:
            await charge(world, a, COST)
            await world.quiet()
        await asyncio.sleep(0.85 * HEARTBEAT_S)  # the next heart to beat is the second one's
        if not counted:
            await charge(world, a, COST)
        give_back(b, COST)
        world.shards[0].wipe(epoch)
        await world.quiet(REFILL_S + 2)
        assert noticed[0] is b
        assert counts(world) == (2 + COST, COST)

    virtually(history())


@pytest.mark.parametrize(
    "simpler",
    [
        pytest.param(False, id="it knows better"),
        pytest.param(True, id="it tells them", marks=pytest.mark.pure("it plants a bug in a compiled class")),
    ],
)
def test_a_shard_that_did_not_answer_is_not_asked_to_give_back_before_it_is_known_to_remember(
    simpler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been started anew: the first answer says so."""

    async def history() -> None:
        world = RegionWorld(7)
        a, b = await two_nodes(world)
        (link,) = b.links
        if simpler:
            session = link.session
            monkeypatch.setattr(session, "remembers", lambda now_s: now_s >= session._refilled_s)
        await charge(world, a, COST)
        await world.quiet()
        give_back(b, COST)
        await asyncio.sleep(TOLD_AFTER_S - 0.1)
        (shard,) = world.shards
        shard.up = False
        await asyncio.sleep(0.11 + TOGETHER_S)
        assert link.stats.failures
        shard.restart()
        shard.up = True
        await world.quiet(REFILL_S + 2)
        total, refunded = counts(world)
        assert (total, refunded == COST) == (2 + COST, not simpler)

    virtually(history())


def watch(node: RegionNode, noticed: list[Any]) -> None:
    """Write down when a node notices that a shard lost its memory."""
    (link,) = node.links
    lost_memory = link.session.lost_memory

    def noticing(reason: str, now_s: float) -> None:
        noticed.append(node)
        lost_memory(reason, now_s)

    link.session.lost_memory = noticing  # type: ignore[method-assign]


def test_refunds_without_end_are_told_all_the_same() -> None:
    """Each waits for a second at most, none for the last of them."""

    async def history() -> None:
        world = RegionWorld(3)
        a, b = await two_nodes(world)
        await charge(world, a, 200)
        for _ in range(100):
            give_back(b, 1)
            await asyncio.sleep(0.05)
        assert counts(world)[1] >= 80 - 1, "what was given back up to a second ago"
        await world.quiet()
        assert counts(world) == (202, 100)

    virtually(history())


def test_where_a_shard_forgets_again_and_again_refunds_are_told_all_the_same() -> None:
    """One that evicts keys, say: it has something to be told again at any time."""

    async def history() -> None:
        world = RegionWorld(4)
        a, b = await two_nodes(world)
        await charge(world, a, COST)
        await world.quiet()
        give_back(b, COST)
        (link,) = b.links
        for _ in range(10 * int(REFILL_S + 1)):
            link.session.lost_memory("a test", world.clock.monotonic())
            await asyncio.sleep(0.1)
        assert counts(world) == (2 + COST, COST)

    virtually(history())


def test_a_node_that_leaves_tells_them_at_once() -> None:
    async def history() -> None:
        world = RegionWorld(5)
        a, b = await two_nodes(world)
        await charge(world, a, COST)
        await world.quiet()
        give_back(b, COST)
        await b.stop(1.0)
        assert counts(world) == (2 + COST, COST)

    virtually(history())


def test_one_that_waits_for_its_time_costs_no_calls() -> None:
    async def history() -> None:
        world = RegionWorld(6)
        _, b = await two_nodes(world)
        (link,) = b.links
        calls = link.stats.calls
        give_back(b, 1)
        await world.quiet()
        assert (counts(world)[1], link.stats.calls - calls) == (1, 1)

    virtually(history())
