"""A region's slices as its nodes, its keeper and its peers keep them, on virtual time: the code that serves."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from headgate.exchange.messages import Batch
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Algorithm, Limit, Scope, Unit
from headgate.limiter.scopes import charges_of
from headgate.limiter.shares import WHOLE, cost_within
from headgate.origin.names import exchange_name
from headgate.quota import shard_shares
from headgate.quota.codec import pack_quota, unpack_mark
from headgate.quota.keeper import QuotaKeeper
from headgate.quota.membership import Mark
from headgate.quota.message import QuotaEntry
from headgate.quota.store import QuotaStore
from headgate.region.waiting import WaitingRequest
from headgate.simulation.awaiting import future_of
from headgate.simulation.history import Key
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.regions.world import RegionsWorld, Site
from headgate.simulation.trace import Tracer

from tests.support.region import virtually

pytestmark = pytest.mark.slow

LIMIT = Limit(1_000, Unit.SECOND, 10, scope=Scope.QUOTA, regions=3)
KEY = b"key"
NAME = exchange_name(KEY, KEY, LIMIT.window_ms)
HISTORY = RegionsHistory(
    seed=1,
    name="keepers",
    regions=3,
    nodes=2,
    shards=2,
    exchangers=2,
    deadline_ms=50,
    link_ms=(20.0, 40.0),
    unix_ms=1_700_000_000_000,
    offsets_ms=(0, 0, 0),
    keys=(Key(KEY, LIMIT),),
    asks=(),
    faults=(),
)


class Traffic:
    """Three regions that are offered a key's cost, evenly over time and their nodes."""

    def __init__(self, history: RegionsHistory = HISTORY) -> None:
        self.world = RegionsWorld(history, Tracer())
        self.limit = history.keys[0].limit
        self.admitted = [0] * history.regions
        self._charges = charges_of([Charge(KEY, self.limit, 1)])
        self._turn = 0

    async def offer(self, per_s: tuple[int, ...], seconds: int) -> None:
        """So many requests per second in each region."""
        for _ in range(seconds * 50):
            for region, rate in enumerate(per_s):
                for _ in range(rate // 50):
                    self._ask(region)
            await asyncio.sleep(0.02)

    def _ask(self, region: int) -> None:
        self._turn += 1
        nodes = list(self.world.nodes(self.world.sites[region]))
        decision = nodes[self._turn % len(nodes)].decide(self._charges)
        if isinstance(decision, Decision):
            self.admitted[region] += decision.admitted
        else:
            future_of(decision).add_done_callback(lambda done: self._decided(region, done))

    def _decided(self, region: int, done: "asyncio.Future[Decision]") -> None:
        if not done.cancelled():
            self.admitted[region] += done.result().admitted

    def keeper(self, region: int) -> QuotaKeeper:
        found = [each.quotas for each in self.world.sites[region].exchangers if each is not None]
        (keeper,) = [quotas for quotas in found if quotas.is_keeper]
        return keeper

    def enforced(self, region: int) -> int:
        """What the shard says is in force."""
        site = self.world.sites[region]
        shard = site.shards[self.world.shard_of(KEY)]
        own = shard.memory.part(QuotaStore).shares.get(NAME)
        if own is None:
            return shard.memory.part(QuotaStore).share
        return own.lasting if shard.time_ms() < shard.memory.part(QuotaStore).until_ms else 100_000

    def shares(self) -> list[int]:
        return [round(self.enforced(region) * 100 / WHOLE) for region in range(len(self.admitted))]

    async def stop(self) -> None:
        for site in self.world.sites:
            for number in range(len(site.exchangers)):
                await self.world.kill_exchanger(site, number)
            for number in range(len(site.nodes)):
                await self.world.kill_node(site, number)
        assert self.world.violations == []


def run(history: Coroutine[Any, Any, None]) -> None:
    virtually(history)


async def started(history: RegionsHistory = HISTORY) -> Traffic:
    traffic = Traffic(history)
    await traffic.world.start()
    await asyncio.sleep(18)  # all have heard each other, and been connected for 10 s
    return traffic


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_slices_follow_the_traffic_and_settle_within_thirty_seconds(algorithm: Algorithm) -> None:
    async def history() -> None:
        limit = replace(LIMIT, algorithm=algorithm, burst=1_000 if algorithm is Algorithm.GCRA else 0)
        traffic = await started(replace(HISTORY, keys=(Key(KEY, limit),)))
        assert traffic.shares() == [33, 33, 33], "a key that nobody has used yet"
        await traffic.offer((250, 50, 0), 30)
        assert traffic.shares()[0] > 60
        assert traffic.shares()[2] == 10, "the floor"
        await traffic.offer((50, 200, 50), 30)
        first, second, third = traffic.shares()
        assert 12 <= first <= 25
        assert 55 <= second <= 70
        assert 12 <= third <= 25
        traffic.admitted = [0, 0, 0]
        await traffic.offer((50, 200, 50), 20)
        # Two windows, and what may be over the limit in each; a fixed window or a bucket that was full adds one.
        assert 1_800 <= sum(traffic.admitted) <= 3_100
        await traffic.stop()

    run(history())


def test_all_regions_together_never_enforce_more_than_the_limit() -> None:
    async def history() -> None:
        traffic = await started()
        for per_s in ((250, 50, 0), (0, 250, 50), (100, 100, 100), (50, 0, 250)):
            for _ in range(12):
                await traffic.offer(per_s, 1)
                together = [traffic.enforced(region) for region in range(3)]
                assert sum(together) <= WHOLE, together
                assert min(together) >= 100_000
        await traffic.stop()

    run(history())


def test_denials_from_memory_count_as_offered() -> None:
    """A key that only denies is still reported, about once a second; else its need would be forgotten."""

    async def history() -> None:
        traffic = await started()
        await traffic.offer((250, 0, 0), 4)
        node = next(traffic.world.nodes(traffic.world.sites[0]))
        before = node.links[traffic.world.shard_of(KEY)].stats.reports
        shard = traffic.world.sites[0].shards[traffic.world.shard_of(KEY)]
        offered = shard.memory.part(QuotaStore).quotas[KEY].offered
        counted = offered.current + offered.previous
        charges = charges_of([Charge(KEY, traffic.limit, 2_000)])  # never fits
        for _ in range(500):
            assert not (await _decided(node.decide(charges))).admitted
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        told = offered.current + offered.previous - counted
        assert 375 * 2_000 <= told <= 500 * 2_000, "but for what came last: it is told every 1.25 s"
        assert node.links[traffic.world.shard_of(KEY)].stats.reports - before <= 12
        await traffic.stop()

    run(history())


async def _decided(decision: Decision | WaitingRequest) -> Decision:
    return decision if isinstance(decision, Decision) else await future_of(decision)


def test_nodes_fall_to_the_floor_by_themselves_when_nobody_keeps_the_slices() -> None:
    async def history() -> None:
        traffic = await started()
        await traffic.offer((250, 50, 0), 25)
        site = traffic.world.sites[0]
        for number in range(2):
            await traffic.world.kill_exchanger(site, number)
        await traffic.offer((250, 50, 0), 40)
        traffic.admitted = [0, 0, 0]
        await traffic.offer((250, 50, 0), 10)
        floor = cost_within(traffic.limit.requests_per_unit, 100_000)
        assert floor * 0.8 <= traffic.admitted[0] <= floor + 2 * traffic.limit.precision
        await traffic.stop()

    run(history())


def test_another_exchanger_keeps_the_slices_when_the_keeper_dies() -> None:
    async def history() -> None:
        traffic = await started()
        await traffic.offer((250, 50, 0), 20)
        before = traffic.shares()
        site = traffic.world.sites[0]
        await traffic.world.kill_exchanger(site, _keeper_number(site))
        await traffic.offer((250, 50, 0), 10)
        assert traffic.keeper(0).goes_by_slice, "it goes on with what the other one knew: not at its floor"
        assert traffic.shares() == before
        await traffic.stop()

    run(history())


def test_a_keeper_that_leaves_gives_its_lease_back_at_once() -> None:
    async def history() -> None:
        traffic = await started()
        site = traffic.world.sites[0]
        number = _keeper_number(site)
        leaving, site.exchangers[number] = site.exchangers[number], None
        assert leaving is not None
        await leaving.stop()
        await asyncio.sleep(1.5)
        assert traffic.keeper(0).goes_by_slice
        await traffic.stop()

    run(history())


def _keeper_number(site: Site) -> int:
    return next(n for n, each in enumerate(site.exchangers) if each is not None and each.quotas.is_keeper)


@pytest.mark.parametrize("shard", [0, 1])
def test_a_shard_that_was_lost_is_at_its_floors_until_it_has_its_shares_again(shard: int) -> None:
    async def history() -> None:
        traffic = await started()
        await traffic.offer((250, 50, 0), 25)
        before = traffic.shares()
        lost = traffic.world.sites[0].shards[shard]
        lost.restart()
        assert lost.memory.part(QuotaStore).until_ms == 0
        await traffic.offer((250, 50, 0), 15)
        assert traffic.keeper(0).goes_by_slice
        assert sum(traffic.shares()) <= 100
        assert abs(traffic.shares()[0] - before[0]) <= 5, "what was given is still given"
        await traffic.stop()

    run(history())


def test_a_message_that_came_at_another_process_reaches_the_keeper() -> None:
    async def history() -> None:
        traffic = await started()
        posted = [each.quotas.counts.posted for site in traffic.world.sites for each in site.exchangers if each]
        assert sum(posted) > 10, "half of all messages arrive at the exchanger that is not the keeper"
        assert all(traffic.keeper(region).goes_by_slice for region in range(3))
        await traffic.stop()

    run(history())


def test_a_key_that_is_not_used_costs_no_entry_and_no_row() -> None:
    async def history() -> None:
        traffic = await started()
        await traffic.offer((50, 0, 0), 2)  # less than a third of an even slice
        await asyncio.sleep(30)
        assert [traffic.keeper(region).keys for region in range(3)] == [0, 0, 0]
        for site in traffic.world.sites:
            assert site.shards[0].memory.part(QuotaStore).stored == {}
            assert all(not shard.memory.part(QuotaStore).shares for shard in site.shards)
        await traffic.stop()

    run(history())


def test_what_names_no_key_is_refused_and_counted() -> None:
    async def history() -> None:
        traffic = await started()
        keeper = traffic.keeper(0)
        ledger = traffic.keeper(1)._ledger
        assert ledger is not None
        message = ledger.outgoing("region-0", traffic.keeper(1)._now_ms())
        wrong = (
            QuotaEntry(b"no name", 10_000, 500_000, 0, ()),
            QuotaEntry(NAME, 60_000, 500_000, 0, ()),
            QuotaEntry(b"", 10_000, 500_000, 0, ()),
            QuotaEntry(b"2710:" + b"k" * 70_000, 10_000, 500_000, 0, ()),
        )
        message = message._replace(entries=wrong, mark=Mark(message.mark.run, message.mark.number + 1_000))
        exchanger = traffic.world.sites[0].exchangers[_keeper_number(traffic.world.sites[0])]
        assert exchanger is not None
        ack = await exchanger.receiver.receive("region-1", Batch(1, 1, quota=pack_quota(message)))
        assert unpack_mark(ack.quota) == message.mark
        assert (keeper.counts.refused, keeper.keys) == (4, 0)
        await traffic.stop()

    run(history())


def test_more_busy_keys_than_a_turn_has_room_for_have_theirs_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def history() -> None:
        monkeypatch.setattr(shard_shares, "MOST_PER_TICK", 3)
        monkeypatch.setattr(shard_shares, "SHARES_PER_STEP", 2)
        names = [b"key%d" % number for number in range(8)]
        keys = tuple(Key(name, LIMIT) for name in names)
        traffic = await started(replace(HISTORY, keys=keys, shards=1))
        node = next(traffic.world.nodes(traffic.world.sites[0]))
        for _ in range(10):
            for name in names:
                charges = charges_of([Charge(name, LIMIT, 100)])
                await _decided(node.decide(charges))
            await asyncio.sleep(1)
        assert traffic.keeper(0).counts.waiting > 0
        assert traffic.keeper(0).keys == len(names), "each of them was looked at"
        await traffic.stop()

    run(history())


def test_what_people_are_shown() -> None:
    async def history() -> None:
        traffic = await started()
        await traffic.offer((250, 50, 0), 25)
        shown = traffic.keeper(0).describe()
        (slices,) = shown["slices"]
        assert (shown["keeper"], shown["filled"], shown["by_slice"], shown["floor"]) == (True, True, True, 100_000)
        assert slices["window_ms"] == 10_000
        assert sum(slices["slices"].values()) == 999_999
        assert slices["enforced"] == traffic.enforced(0)
        other = next(each.quotas for each in traffic.world.sites[0].exchangers if each and not each.quotas.is_keeper)
        assert other.describe() == {"keeper": False}
        await traffic.stop()

    run(history())


def test_a_region_that_leaves_and_comes_back_never_makes_slices_more_than_the_limit() -> None:
    """All begin anew in each set: at their floors first, and then with even slices. (One that left has none.)"""

    async def history() -> None:
        traffic = await started()
        await traffic.offer((250, 50, 0), 20)
        gone = traffic.world.sites[2]
        await traffic.world.remove(gone, tries=True)
        most = await most_enforced(traffic, (0, 1), 70)
        assert 2 * 100_000 < most <= WHOLE
        assert {len(traffic.keeper(region).describe()["slices"][0]["slices"]) for region in (0, 1)} == {2}
        await traffic.world.add(gone)
        assert await most_enforced(traffic, (0, 1, 2), 70) <= WHOLE
        assert all(traffic.keeper(region).goes_by_slice for region in range(3))
        await traffic.stop()

    run(history())


async def most_enforced(traffic: Traffic, regions: tuple[int, ...], seconds: int) -> int:
    """The most that these regions enforced together, from when all of them know the set they are in."""
    most = 0
    for second in range(seconds):
        await traffic.offer((100, 50, 0), 1)
        if second >= 3:
            most = max(most, sum(traffic.enforced(region) for region in regions))
    return most
