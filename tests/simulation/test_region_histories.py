"""Histories that miscount under simpler rules, each with the rule that keeps it right.

The production engine, replay and origin run on virtual time. Where a simpler rule is easy
to put in, the test does so and shows that the history would find it.
"""

import asyncio
from collections import Counter

import pytest
from headgate.limiter.decision import Charge, DecisionPath
from headgate.limiter.limit import Algorithm, Limit, OnError, Unit
from headgate.region.counters import NEXT_TO_NOTHING, SharedCounter
from headgate.region.session import USABLE_S
from headgate.region.shard_clock import ShardClock
from headgate.region.window_counter import SharedWindow

from tests.support.region import RegionWorld, virtually

THOUSAND = Limit(1000, Unit.SECOND, 10)
HUNDRED = Limit(100, Unit.SECOND, 2)
TEN = Limit(10, Unit.SECOND, 2)
KEY = b"k"


def one(limit: Limit, key: bytes = KEY, cost: int = 1) -> Charge:
    return Charge(key, limit, cost)


async def overload(world: RegionWorld, limit: Limit, *, windows: float, times: float = 3.0, nodes: int = 4) -> int:
    """Load at a multiple of the limit; what was admitted at worst."""
    for _ in range(nodes):
        await world.start_node()
    window_s = limit.window_ms / 1000
    await world.load(limit.requests_per_unit / window_s * times, windows * window_s, one(limit))
    return world.worst(KEY, limit)


@pytest.mark.parametrize("algorithm", [Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW])
@pytest.mark.parametrize("base", [TEN, HUNDRED, THOUSAND], ids=lambda limit: str(limit.requests_per_unit))
def test_over_admission_is_within_the_budget_and_what_fits_is_admitted(base: Limit, algorithm: Algorithm) -> None:
    limit = Limit(base.requests_per_unit, base.unit, base.unit_multiplier, algorithm=algorithm)

    async def history() -> None:
        world = RegionWorld(1)
        assert await overload(world, limit, windows=4) <= limit.requests_per_unit + limit.precision
        total = sum(cost for _, cost in world.admitted[KEY])
        perfect = 4 if algorithm is Algorithm.SLIDING_WINDOW else 5
        assert total >= 0.96 * perfect * limit.requests_per_unit * (4 / perfect)

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled class")
def test_without_allowances_the_budget_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedCounter, "spendable", lambda self, now_s: 10**9)

    async def history() -> None:
        assert await overload(RegionWorld(1), THOUSAND, windows=0.05, times=200) > 1000 + THOUSAND.precision

    virtually(history())


def test_far_from_the_limit_next_to_nothing_waits() -> None:
    async def history() -> None:
        world = RegionWorld(2)
        await overload(world, THOUSAND, windows=5, times=0.8)
        assert sum(world.outcomes.values()) > 3900
        assert world.waits <= 0.005 * sum(world.outcomes.values())
        assert all(admitted for _, admitted in world.outcomes)

    virtually(history())


def test_a_nodes_own_clock_does_not_matter() -> None:
    """One of four nodes is 200 ms fast: deciding by node clocks let 100 of 500 too many in."""
    limit = Limit(500, Unit.SECOND)

    async def history() -> None:
        world = RegionWorld(3)
        for offset_ms in (0, 0, 0, 200):
            await world.start_node(offset_ms=offset_ms)
        await world.load(1500, 5, one(limit))
        assert world.worst(KEY, limit) <= 500 + limit.precision

    virtually(history())


async def bursts_at_boundaries(seed: int) -> dict[int, int]:
    """Bursts around every window's end, over a slow network; what the nodes committed in each cell."""
    limit = Limit(200, Unit.SECOND, algorithm=Algorithm.FIXED_WINDOW)
    world = RegionWorld(seed)
    for _ in range(3):
        await world.start_node(delay_ms=(0.2, 60.0))
    committed: Counter[int] = Counter()
    for _ in range(8):
        to_end_s = (1000 - world.clock.now_ms() % 1000) / 1000
        await asyncio.sleep(max(0.0, to_end_s - 0.05))
        for _ in range(400):
            world.ask_soon(world.random.choice(world.nodes), one(limit))
            await asyncio.sleep(world.random.uniform(0, 0.0005))
        await asyncio.sleep(0.3)
        for node in world.nodes:
            counter = node.engine.counters.find(KEY)
            assert isinstance(counter, SharedWindow)
            committed[counter.previous_cell.sequence] += counter.previous_cell.total
    return committed


def test_a_charged_request_commits_in_the_cell_that_was_charged() -> None:
    async def history() -> None:
        for seed in range(6):
            committed = await bursts_at_boundaries(seed)
            assert max(committed.values()) <= 200 + 10, f"seed {seed}"
            assert max(committed.values()) >= 190

    virtually(history())


def test_a_key_that_was_evicted_and_comes_back_loses_nothing() -> None:
    """Otherwise it starts at 0 under a component of 37, and 37 hits vanish."""

    async def history() -> None:
        world = RegionWorld(4, max_cells=4)
        node = await world.start_node()
        limit = Limit(10_000, Unit.HOUR)
        for _ in range(37):
            await world.ask(node, one(limit))
        await world.quiet()
        for other in range(10):
            await world.ask(node, one(limit, b"other%d" % other))
            await world.quiet(0.3)
        assert node.engine.counters.find(KEY) is None
        for _ in range(5):
            await world.ask(node, one(limit))
        await world.quiet()
        assert world.record(KEY).current.region_total == 42

    virtually(history())


def test_cells_with_something_unacknowledged_are_not_evicted_and_new_keys_go_by_policy() -> None:
    async def history() -> None:
        world = RegionWorld(4, max_cells=2, deadline_s=0.005)
        node = await world.start_node()
        limit = Limit(10_000, Unit.HOUR)
        await world.ask(node, one(limit, b"a"))
        await world.ask(node, one(limit, b"b"))
        world.networks[0].connected = False
        await world.ask(node, one(limit, b"a"))
        await world.ask(node, one(limit, b"b"))
        decision = await world.ask(node, one(limit, b"c"))
        assert (decision.path, decision.admitted) == (DecisionPath.DEGRADED_LOCAL, True)
        closed = Limit(10_000, Unit.HOUR, on_error=OnError.CLOSED)
        assert not (await world.ask(node, one(closed, b"d"))).admitted
        assert node.engine.stats.unplaced == 2
        world.networks[0].connected = True
        await world.quiet(3)
        assert world.record(b"a").current.region_total == 2
        assert (await world.ask(node, one(limit, b"c"))).path is DecisionPath.ORIGIN

    virtually(history())


def test_lost_replies_leave_nothing_charged_in_vain() -> None:
    """With "add 1 if it fits", 5% lost replies left about 1,000 of 20,000 hits charged and never admitted."""

    async def history() -> None:
        world = RegionWorld(5, deadline_s=0.005)
        for _ in range(4):
            await world.start_node(lose_reply=0.05)
        limit = Limit(4_000, Unit.HOUR, precision_millionths=0)  # every admission is decided at the origin
        await world.load(400, 20, one(limit))
        for network in world.networks:
            network.lose_reply = 0.0
        await world.quiet(3)
        admitted = sum(cost for _, cost in world.admitted[KEY])
        assert admitted > 3_900
        unspent = world.record(KEY).current.region_total - admitted
        assert 0 <= unspent <= 40, "credit is at most what was in flight"

    virtually(history())


def test_nothing_is_read_again_at_a_windows_end() -> None:
    """With cold cells a quarter of all requests waited after each boundary."""

    async def history() -> None:
        world = RegionWorld(6)
        node = await world.start_node()
        limit = Limit(1000, Unit.SECOND)
        keys = [b"key%d" % number for number in range(50)]
        for _ in range(40):
            for key in keys:
                await world.ask(node, one(limit, key))
            await asyncio.sleep(0.1)
        assert world.waits == len(keys), "the first request on each key, and no other, in four windows"

    virtually(history())


@pytest.mark.parametrize("epoch", [None, b"second"], ids=["flushed", "restarted"])
def test_a_wiped_shard_is_refilled_by_the_living_the_deads_part_included(epoch: bytes | None) -> None:
    async def history() -> None:
        world = RegionWorld(7, shards=2)
        limit = Limit(100_000, Unit.HOUR)
        nodes = [await world.start_node() for _ in range(3)]
        await world.load(500, 4, one(limit))
        await world.quiet()
        dead = nodes[0]
        await asyncio.sleep(USABLE_S)
        for node in nodes[1:]:
            await world.ask(node, one(limit))  # so that it has heard of all that the dead one reported
        await world.quiet()
        await world.kill(dead)
        before = sum(cost for _, cost in world.admitted[KEY])
        assert world.record(KEY).current.region_total == before
        for shard in world.shards:
            shard.wipe(epoch)
        await world.load(200, 2, one(limit))
        await world.quiet()
        total = sum(cost for _, cost in world.admitted[KEY])
        assert total > before
        assert world.record(KEY).current.region_total == total, "never over, and nothing missing"

    virtually(history())


def test_a_full_key_without_traffic_is_refilled_too() -> None:
    """A key that is full and denies makes no calls of its own: the heartbeat notices."""

    async def history() -> None:
        world = RegionWorld(8)
        node = await world.start_node()
        limit = Limit(50, Unit.HOUR)
        for _ in range(60):
            await world.ask(node, one(limit))
        world.shards[0].wipe()
        await asyncio.sleep(2.1)
        assert world.record(KEY).current.region_total == 50
        assert node.links[0].stats.refills == 1

    virtually(history())


@pytest.mark.parametrize("per_hour", [1_000_000, 20_000])
def test_a_node_killed_outright_takes_at_most_one_flush_interval_with_it(per_hour: int) -> None:
    """What it admitted in 250 ms; or in 2 s, while that is next to nothing of the limit."""

    async def history() -> None:
        world = RegionWorld(9)
        limit = Limit(per_hour, Unit.HOUR)
        victim, survivor = await world.start_node(), await world.start_node()
        await world.load(1_000, 3, one(limit))
        died_ms = world.clock.now_ms()
        await world.kill(victim)
        await world.quiet()
        total = sum(cost for _, cost in world.admitted[KEY])
        last = sum(cost for at_ms, cost in world.admitted[KEY] if at_ms > died_ms - 260)
        missing = total - world.record(KEY).current.region_total
        assert 0 < missing <= max(last, limit.requests_per_unit // NEXT_TO_NOTHING + 1)
        components = world.record(KEY).components
        counter = survivor.engine.counters.find(KEY)
        assert isinstance(counter, SharedWindow)
        assert components[counter.component].own == counter.current_cell.total, "all of the survivor's hits are there"

    virtually(history())


def test_restarts_and_passers_by_do_not_use_up_the_room() -> None:
    """Else restarts keep units for the rest of the day, and nodes that touched a key leave the busy one nothing."""

    async def history() -> None:
        world = RegionWorld(10)
        limit = Limit(1000, Unit.DAY)
        for _ in range(6):
            node = await world.start_node()
            await world.ask(node, one(limit))
            await world.quiet(0.5)
            await world.kill(node)
        await asyncio.sleep(21)
        busy = await world.start_node()
        await world.ask(busy, one(limit))
        await world.quiet(0.5)
        counter = busy.engine.counters.find(KEY)
        assert counter is not None
        assert world.record(KEY).allowances.held == counter.allowance + counter.unacked

    virtually(history())


def test_keys_on_two_shards_are_charged_together_or_become_credit() -> None:
    async def history() -> None:
        world = RegionWorld(11, shards=2)
        nodes = [await world.start_node() for _ in range(2)]
        wide, narrow = (Limit(most, Unit.HOUR, precision_millionths=0) for most in (30, 10))
        both = (one(wide, b"\x00wide"), one(narrow, b"\x01narrow"))
        assert nodes[0].shard_of(b"\x00wide") is not nodes[0].shard_of(b"\x01narrow")
        for number in range(40):
            world.ask_soon(nodes[number % 2], *both)
            await asyncio.sleep(0.0003)
        await world.quiet()
        assert sum(cost for _, cost in world.admitted[b"\x01narrow"]) == 10
        assert sum(cost for _, cost in world.admitted[b"\x00wide"]) == 10
        # What the wide key was charged in vain is credit: it pays for the next admissions there.
        for number in range(60):
            await world.ask(nodes[number % 2], both[0])
        await world.quiet()
        admitted = sum(cost for _, cost in world.admitted[b"\x00wide"])
        assert admitted == world.record(b"\x00wide").current.region_total == 30

    virtually(history())


@pytest.mark.parametrize(
    ("on_error", "path"),
    [
        (OnError.LOCAL, DecisionPath.DEGRADED_LOCAL),
        (OnError.OPEN, DecisionPath.DEGRADED_OPEN),
        (OnError.CLOSED, DecisionPath.DEGRADED_CLOSED),
    ],
)
@pytest.mark.parametrize("stalled", [False, True], ids=["refused", "stalled"])
def test_without_the_origin_every_rule_answers_by_its_policy_and_heals(
    on_error: OnError, path: DecisionPath, stalled: bool
) -> None:
    """All nodes together admit at most 1.5 times what they knew to be left (`open`: 1.5 times the limit).

    Then every hit is in the origin, once.
    """
    limit = Limit(300, Unit.HOUR, on_error=on_error)

    async def history() -> None:
        world = RegionWorld(12, deadline_s=0.005)
        for _ in range(3):
            await world.start_node()
        await world.load(100, 1.5, one(limit))
        await world.quiet(1.5)
        before = sum(cost for _, cost in world.admitted[KEY])
        known = [
            counter for node in world.nodes for counter in node.engine.counters if isinstance(counter, SharedWindow)
        ]
        left = sum(300 - counter.current for counter in known) / len(world.nodes)
        for network in world.networks:
            network.connected, network.lose_call = stalled, float(stalled)
        await asyncio.sleep(6)  # until nothing is fresh
        world.outcomes.clear()
        await world.load(400, 4, one(limit))
        assert {p for p, admitted in world.outcomes if admitted or on_error is OnError.CLOSED} == {path.value}
        during = sum(cost for _, cost in world.admitted[KEY]) - before
        if on_error is OnError.LOCAL:
            assert 0.9 * left <= during <= 1.5 * left
        elif on_error is OnError.OPEN:
            assert left < before + during <= 1.5 * 300, "each node up to its part"
        else:
            assert during == 0
        for network in world.networks:
            network.connected, network.lose_call = True, 0.0
        await world.quiet(4)
        assert world.record(KEY).current.region_total == before + during

    virtually(history())


def test_a_request_never_waits_past_its_deadline() -> None:
    async def history() -> None:
        world = RegionWorld(13, deadline_s=0.005)
        node = await world.start_node()
        world.networks[0].lose_call = 1.0
        began_s = asyncio.get_running_loop().time()
        await world.ask(node, one(THOUSAND))
        assert asyncio.get_running_loop().time() - began_s <= 0.0051
        assert node.engine.stats.deadline_missed == 1

    virtually(history())


def test_a_drain_reports_everything_and_gives_its_allowances_back() -> None:
    async def history() -> None:
        world = RegionWorld(14)
        node = await world.start_node()
        limit = Limit(1000, Unit.HOUR)
        for _ in range(20):
            await world.ask(node, one(limit))
        await node.stop(1.0)
        record = world.record(KEY)
        assert record.current.region_total == 20
        assert record.allowances.held == 0

    virtually(history())


def test_a_million_hits_on_one_key_cost_a_few_calls() -> None:
    async def history() -> None:
        world = RegionWorld(15)
        node = await world.start_node()
        limit = Limit(4_000_000_000, Unit.HOUR)
        charge = (one(limit),)
        await world.ask(node, *charge)
        calls = world.networks[0].calls
        for _ in range(100):
            for _ in range(200):
                node.engine.decide(charge)
            await asyncio.sleep(0.02)
        assert world.networks[0].calls - calls <= 2 * 40
        await world.quiet()
        assert world.record(KEY).current.region_total == 20_001

    virtually(history())


def test_a_raised_limit_admits_at_once_and_a_lowered_one_denies_at_once() -> None:
    async def history() -> None:
        world = RegionWorld(16)
        node = await world.start_node()
        small, large = Limit(5, Unit.HOUR), Limit(500, Unit.HOUR)
        for _ in range(6):
            await world.ask(node, one(small))
        assert (await world.ask(node, one(large))).admitted
        assert not (await world.ask(node, one(small))).admitted
        assert world.record(KEY).current.region_total == 6

    virtually(history())


def test_gcra_keeps_its_rate_over_all_nodes() -> None:
    """At most the burst, its precision and the rate over any stretch."""
    limit = Limit(100, Unit.SECOND, algorithm=Algorithm.GCRA, burst=100)

    async def history() -> None:
        world = RegionWorld(17)
        for _ in range(4):
            await world.start_node()
        await world.load(300, 10, one(limit))
        times = [at_ms for at_ms, _ in world.admitted[KEY]]
        for begin in range(0, len(times), 37):
            for end in range(begin + 1, len(times), 41):
                allowed = 100 + (times[end] - times[begin] + 1) * 100 / 1000
                assert end - begin <= allowed + limit.precision
        assert len(times) >= 0.98 * (100 + 10 * 100)

    virtually(history())


def test_gcra_outage_at_the_permitted_rate_leaves_no_debt() -> None:
    """Without `since` a minute's outage replays as 53 s of denials for a key that kept its rate."""
    limit = Limit(10, Unit.SECOND, algorithm=Algorithm.GCRA, burst=20, on_error=OnError.OPEN)

    async def history() -> None:
        world = RegionWorld(18, deadline_s=0.005)
        node = await world.start_node()
        await world.ask(node, one(limit))
        world.networks[0].connected = False
        for _ in range(15):
            await asyncio.sleep(1)
            await world.ask(node, one(limit))
        world.networks[0].connected = True
        await world.quiet(3)
        assert (await world.ask(node, one(limit, cost=15))).admitted

    virtually(history())


def test_the_bounds_of_a_shards_time_follow_its_answers() -> None:
    class Fixed:
        now_s = 100.0

        def now_ms(self) -> int:
            return 5

        def monotonic(self) -> float:
            return self.now_s

    clock = Fixed()
    shard = ShardClock(clock)
    assert shard.now_ms() == 5, "its own clock, before any answer"
    assert not shard.certain(1_000)
    clock.now_s = 100.010
    shard.learn(1_000_500, 100.0, 100.010)
    assert shard.now_ms() == 1_000_500
    assert shard.certain(1_000)
    clock.now_s = 100.505
    assert (shard.now_ms(), shard.certain(1_000)) == (1_000_995, False), "it may be in the next window already"
    shard.learn(1_000_600, 100.5, 100.505)
    assert shard.now_ms() == 1_000_995, "a little back: the node's notion stands still"
    shard.learn(900_000, 100.5, 100.505)
    assert shard.now_ms() == 900_000, "set: the node follows"


@pytest.mark.parametrize(("round_trip_ms", "opens"), [(340, True), (150, True), (90, False)])
def test_a_breaker_opens_for_a_slow_shard_though_few_ask_it(round_trip_ms: float, opens: bool) -> None:
    """Every call is answered in the end, and so few requests wait that no second has a share of failures."""
    exact = Limit(1_000_000, Unit.HOUR, precision_millionths=0)

    async def history() -> None:
        world = RegionWorld(8, deadline_s=0.1)
        node = await world.start_node(delay_ms=(round_trip_ms, round_trip_ms))
        for number in range(120):
            world.ask_soon(node, one(exact, b"%d" % number))
            await asyncio.sleep(world.random.expovariate(6))
        assert bool(node.links[0].breaker.trips) == opens

    virtually(history())
