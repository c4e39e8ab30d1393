"""More histories that miscount, or wait, under simpler rules: reports, allowances, refills, and when to flush.

Each is played by the rule that is in force, and by the simpler one, which it must find wanting.
"""

import asyncio

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.operations.call import Call, Reply
from headgate.origin.window_cells import CellRecord
from headgate.region import flush_queues
from headgate.region.breaker import BreakerState
from headgate.region.node import RegionNode
from headgate.region.urgency import DELAYS_S, Urgency
from headgate.region.window_counter import SharedWindow
from headgate.simulation.loop import LoopClock
from headgate.simulation.shard import SimulatedShard

from tests.simulation import mutations
from tests.support.region import UNIX_MS, RegionWorld, virtually

KEY = b"k"
THOUSAND = Limit(1000, Unit.SECOND, 10)
EXACT = Limit(100, Unit.HOUR, precision_millionths=0)


def one(limit: Limit, key: bytes = KEY, cost: int = 1) -> Charge:
    return Charge(key, limit, cost)


def admitted(world: RegionWorld) -> int:
    return sum(cost for _, cost in world.admitted[KEY])


# A retry is a new call


@pytest.mark.parametrize("identical", [False, True], ids=["a_new_call", "the_same_bytes"])
def test_a_retry_across_a_wipe_counts_once(identical: bool) -> None:
    """The same bytes again, after a wipe that somebody else has refilled: 10 admitted, 20 counted."""

    async def history() -> None:
        world = RegionWorld(1, deadline_s=30)
        node, other = await world.start_node(), await world.start_node()
        calls: list[Call] = []
        world.shards[0].on_reply = lambda call, reply: calls.append(call)
        world.networks[0].lose_reply = 1.0
        world.ask_soon(node, one(EXACT, cost=10))
        await asyncio.sleep(0.1)
        first = calls[0]
        await world.ask(other, one(EXACT, cost=0))  # and so knows of the ten
        world.shards[0].wipe()
        await world.ask(other, one(EXACT, cost=2))  # more than it may hold
        assert world.record(KEY).current.region_total == 12, "the ten are back, and nobody's"
        world.networks[0].lose_reply = 0.0
        if identical:
            world.shards[0].apply(first)
        await world.quiet(3)
        assert admitted(world) == 12
        assert world.record(KEY).current.region_total == (22 if identical else 12)

    virtually(history())


# One wait


def test_no_request_waits_twice() -> None:
    """Checking again after the wait made healthy requests wait twice.

    A request waits for the call under way and for its own: two round trips at most, on
    however many shards its keys are, and however many others ask for the same ones.
    """
    round_trip_ms = 20.0

    async def history() -> None:
        world = RegionWorld(2, shards=2)
        nodes = [await world.start_node(delay_ms=(round_trip_ms, round_trip_ms)) for _ in range(3)]
        limits = (Limit(200, Unit.SECOND), Limit(300, Unit.SECOND, precision_millionths=0))
        charges = (one(limits[0], b"\x00"), one(limits[1], b"\x01"))
        loop = asyncio.get_running_loop()
        waits_ms: list[float] = []

        async def ask(node: RegionNode) -> None:
            began_s = loop.time()
            await world.ask(node, *charges)
            waits_ms.append((loop.time() - began_s) * 1000)

        async with asyncio.TaskGroup() as group:
            for _ in range(3_000):
                group.create_task(ask(world.random.choice(nodes)))
                await asyncio.sleep(world.random.expovariate(1_000))
        assert len(waits_ms) == 3_000
        assert max(waits_ms) > 1.5 * round_trip_ms, "some came while a call was under way"
        assert max(waits_ms) <= 2 * round_trip_ms + 0.001

    virtually(history())


# The cell that was charged


CHARGED = Limit(50, Unit.SECOND, algorithm=Algorithm.FIXED_WINDOW, precision_millionths=0)


async def over_the_boundary(*, expected: tuple[int, int]) -> None:
    """Charged just before a window ends, answered after; what the origin has of both windows."""
    world = RegionWorld(3)
    node = await world.start_node(delay_ms=(0.2, 0.2))
    await world.ask(node, one(CHARGED))
    world.networks[0].delay_ms = (60.0, 60.0)  # it knows the time well, and then has to wait
    sequence = world.clock.now_ms() // 1000 + 1
    await asyncio.sleep(((sequence + 1) * 1000 - world.clock.now_ms() - 40) / 1000)
    world.ask_soon(node, one(CHARGED, cost=30))
    await asyncio.sleep(0.05)
    assert world.clock.now_ms() // 1000 == sequence + 1
    world.ask_soon(node, one(CHARGED, cost=0))  # and so the node's own counter is the next one
    await world.quiet(0.4)
    await world.ask(node, one(CHARGED, cost=0))
    record = world.record(KEY)
    counts = {record.sequence: record.current.region_total, record.sequence - 1: record.previous.region_total}
    assert (counts[sequence], counts.get(sequence + 1, 0)) == expected


def test_hits_of_a_slow_reply_belong_to_the_cell_that_was_charged() -> None:
    virtually(over_the_boundary(expected=(30, 0)))


@pytest.mark.pure("it plants a bug in a compiled class")
def test_in_the_current_cell_what_was_charged_in_the_old_one_is_charged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.the_cell_of_now(monkeypatch)
    virtually(over_the_boundary(expected=(30, 30)))


async def away_while_the_window_ends(*, admitted: bool) -> None:
    """The shard's clock is a little slow; whether 30 more are admitted where 40 of 50 are gone."""
    world = RegionWorld(4)
    world.shards[0] = shard = SimulatedShard(LoopClock(UNIX_MS, drift_ppm=-5_000))
    node = await world.start_node()
    link = node.links[0]
    await asyncio.sleep(0.05)
    assert (await world.ask(node, one(CHARGED, cost=40))).admitted
    # So that nothing corrects the node's notion of the time.
    world.networks[0].connected = False
    await asyncio.sleep(1.001 - world.clock.now_ms() % 1000 / 1000)
    assert shard.time_ms() // 1000 == link.session.now_ms() // 1000 - 1
    world.networks[0].connected = True
    assert (await world.ask(node, one(CHARGED, cost=30))).admitted is admitted


def test_a_shard_that_is_still_in_the_last_window_is_told_what_was_spent_there() -> None:
    virtually(away_while_the_window_ends(admitted=False))


@pytest.mark.pure("it plants a bug in a compiled class")
def test_told_of_the_new_window_alone_it_takes_all_that_was_charged_for_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.the_new_window_alone(monkeypatch)
    virtually(away_while_the_window_ends(admitted=True))


# Allowances


async def most_beyond(world: RegionWorld, limit: Limit) -> int:
    """Under load, with replies that are lost: by how much nodes may spend more than is set aside, at any instant."""
    for _ in range(8):
        await world.start_node(lose_reply=0.2)
    most = 0
    load = asyncio.get_running_loop().create_task(world.load(60, 15, one(limit)))
    while not load.done():
        cells = [counter for node in world.nodes for counter in node.engine.counters]
        spendable = sum(counter.spendable(world.clock.monotonic()) for counter in cells)
        if spendable:
            most = max(most, spendable - world.record(KEY).allowances.held)
        await asyncio.sleep(0.002)
    return most


@pytest.mark.pure("it plants a bug in a compiled class")
def test_a_lost_reply_does_not_let_the_origin_hand_out_what_a_node_still_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counting what is given, and not what was left: a node whose reply is lost goes on with that."""

    async def history(*, within: bool) -> None:
        world = RegionWorld(4, deadline_s=0.005)
        most = await most_beyond(world, Limit(1000, Unit.MINUTE))
        assert (most <= 0) == within, f"{most} beyond what is set aside"

    virtually(history(within=True))
    mutations.count_the_offer(monkeypatch)
    virtually(history(within=False))


def test_ten_passers_by_leave_the_busy_node_what_it_needs() -> None:
    """Nodes that touched a key once, and live on, stop counting after two generations."""

    async def history() -> None:
        world = RegionWorld(5)
        limit = Limit(1000, Unit.DAY)
        for _ in range(10):
            await world.ask(await world.start_node(), one(limit))
        busy = await world.start_node()
        await world.ask(busy, one(limit))
        counter = busy.engine.counters.find(KEY)
        assert counter is not None
        allowances = world.record(KEY).allowances
        assert allowances.held > 100 > counter.allowance > 10
        for _ in range(22):
            await asyncio.sleep(1)
            await world.ask(busy, one(limit))
        assert allowances.held == counter.allowance + counter.unacked

    virtually(history())


def test_being_near_a_limit_needs_no_deadline_of_its_own() -> None:
    """It lasts while the shard says so. With fixed windows that is the end of each: 20 waits in 1,000 at most."""
    limit = Limit(1000, Unit.SECOND, 10, algorithm=Algorithm.FIXED_WINDOW)

    async def history() -> None:
        world = RegionWorld(6)
        for _ in range(4):
            await world.start_node()
        await world.load(300, 50, one(limit))
        requests = sum(world.outcomes.values())
        assert requests > 14_000
        assert world.worst(KEY, limit) <= limit.requests_per_unit + limit.precision
        assert world.waits / requests <= 0.020

    virtually(history())


@pytest.mark.pure("it sets constants that are compiled in")
def test_far_from_the_limit_flushes_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """At ten requests per second, key and node, at most a third of the calls that a flush after 25 ms would cost."""

    async def calls() -> int:
        world = RegionWorld(7)
        nodes = [await world.start_node() for _ in range(2)]
        for _ in range(2_000):
            world.ask_soon(
                world.random.choice(nodes), one(Limit(10_000, Unit.MINUTE), b"%d" % world.random.randrange(10))
            )
            await asyncio.sleep(world.random.expovariate(200))
        await world.quiet()
        assert sum(world.record(b"%d" % key).current.region_total for key in range(10)) == 2_000
        return sum(network.calls for network in world.networks)

    counted: list[int] = []

    async def history() -> None:
        counted.append(await calls())

    virtually(history())
    monkeypatch.setattr(flush_queues, "DELAYS_S", [DELAYS_S[Urgency.SOON]] * len(Urgency))
    virtually(history())
    assert counted[0] <= 0.4 * counted[1]


# Refill


def _plain_maximum(patch: pytest.MonkeyPatch) -> None:
    """What was seen as a floor beside the sum of the components: `unattributed` is that sum here."""

    def learn(count: CellRecord, seen: int) -> None:
        count.region_total = max(count.region_total, seen)

    def gain(count: CellRecord, n: int, m: int, sent: int) -> None:
        count.unattributed += m - n
        count.region_total = max(count.region_total, count.unattributed)

    patch.setattr(CellRecord, "restore", learn)
    patch.setattr(CellRecord, "raise_component", gain)


@pytest.fixture(params=["explained", "plain_maximum", "added"])
def rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain_maximum":
        _plain_maximum(monkeypatch)
    elif request.param == "added":
        mutations.count_the_lost_twice(monkeypatch)
    return str(request.param)


def test_after_a_wipe_new_hits_count_and_old_ones_count_once(rule: str) -> None:
    """A floor kept as a plain maximum swallows new hits, one added to the total doubles the old ones."""
    limit = Limit(100_000, Unit.HOUR)

    async def history() -> None:
        world = RegionWorld(8, deadline_s=0.005)
        nodes = [await world.start_node() for _ in range(4)]
        await world.load(1_000, 2, one(limit))
        await world.quiet()
        for node in nodes:
            await world.ask(node, one(limit))  # and so has read all but the last few
        await world.quiet()
        await world.kill(nodes[0])  # what it admitted, only the others can tell
        world.shards[0].wipe()
        await world.load(1_000, 2, one(limit))
        await world.quiet(3)
        miscounted = world.record(KEY).current.region_total - admitted(world)
        if rule == "explained":
            # Never over; of the dead node's hits the others can tell only those that they were told of.
            assert -4 <= miscounted <= 0
        elif rule == "plain_maximum":
            assert miscounted < -400
        else:
            assert miscounted > 1_000

    virtually(history())


def test_a_reply_to_a_call_that_was_given_up_brings_no_allowance() -> None:
    """The shard may have offered the same to others since."""

    async def history() -> None:
        world = RegionWorld(9)
        node = await world.start_node(delay_ms=(1.0, 1.0))
        await world.ask(node, one(THOUSAND))
        counter = node.engine.counters.find(KEY)
        assert isinstance(counter, SharedWindow)
        replies: list[Reply] = []
        world.shards[0].on_reply = lambda call, reply: replies.append(reply)
        usable_until_s = counter.usable_until_s
        world.networks[0].stall()
        for _ in range(30):
            await world.ask(node, one(THOUSAND))
        breaker = node.links[0].breaker
        while breaker.state is not BreakerState.OPEN:  # noqa: ASYNC110 - virtual time: until no call is under way
            await asyncio.sleep(0.001)
        assert not replies
        assert node.links[0].stats.failures > 0
        world.networks[0].lose_call = 1.0  # whatever arrives now was given up before
        world.networks[0].resume()
        await asyncio.sleep(0.3)
        assert replies, "it was carried out, and answered, all the same"
        assert counter.usable_until_s == usable_until_s

    virtually(history())


@pytest.mark.parametrize("offset_ms", [0, 3_600_000, -3_600_000], ids=["right", "fast", "slow"])
def test_what_was_said_of_another_window_is_not_taken_for_lost(offset_ms: int) -> None:
    """A node that starts without the shard goes by its own clock, which may be off, until the first answer."""
    limit = Limit(1_000, Unit.MINUTE)

    async def history() -> None:
        world = RegionWorld(10, deadline_s=0.005)
        nodes = [await world.start_node() for _ in range(2)]
        for node in nodes:
            for _ in range(20):
                await world.ask(node, one(limit))
        await world.quiet()
        await world.ask(nodes[0], one(limit))
        await world.quiet()
        await world.kill(nodes[1])
        world.shards[0].wipe()  # what the dead one admitted is known to the other alone
        late = await world.start_node(offset_ms=offset_ms, connected=False)
        await world.quiet(2)
        assert world.record(KEY).current.region_total == 41
        for _ in range(5):
            late.links[0].breaker.record(False)  # so that nobody is asked, and nothing sent
        for _ in range(3):
            await world.ask(late, one(limit))
        world.networks[-1].connected = True
        await world.quiet(4)
        assert admitted(world) == 44
        assert world.record(KEY).current.region_total == 44

    virtually(history())


async def lost_again_while_it_is_refilled() -> bool:
    """A shard loses its memory a second time while it is told what it had lost; whether it knows of a reset then."""
    world, limit = RegionWorld(6), Limit(10, Unit.HOUR)
    node = await world.start_node(delay_ms=(20, 20))
    for number in range(5_000):
        world.ask_soon(node, one(limit, b"%d" % number))
    await world.quiet()
    reset = await node.reset(KEY, limit)
    shard = world.shards[0]
    shard.wipe(b"2")
    for _ in range(400):
        if shard.record(KEY) is not None:
            break
        await asyncio.sleep(0.005)
    assert node.links[0].session.busy(), "what was lost takes longer than a heartbeat"
    shard.wipe(b"3")
    await world.quiet()
    record = shard.record(KEY)
    return record is not None and record.reset == reset


def test_a_shard_that_loses_its_memory_again_is_taught_resets_again() -> None:
    async def history() -> None:
        assert await lost_again_while_it_is_refilled()

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled class")
def test_taught_once_it_forgets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def history() -> None:
        assert not await lost_again_while_it_is_refilled()

    mutations.teach_resets_once(monkeypatch)
    virtually(history())
