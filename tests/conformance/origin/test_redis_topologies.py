"""Cluster and Sentinel: slots that move, masters that stall, primaries that change."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from headgate.clock import Clock, SystemClock
from headgate.origin.interface import Origin, OriginError, OriginTimeout
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.protocol import CellReport, Count, WindowAnswer, WindowReport
from headgate.origin.redis_origin import sentinel as sentinel_module
from headgate.origin.redis_origin.cluster import GROUP_SLOTS, GROUPS, TAGS
from headgate.origin.select import open_origin

from tests.conformance.origin.cases import said
from tests.conformance.origin.conftest import RedisSetup
from tests.support.clock import ManualClock
from tests.support.redis_servers import (
    RedisServer,
    SentinelSetup,
    redis_sentinel,
    redis_services,
    refused_address,
    wait_until,
)
from tests.support.waiting import PATIENCE_S, until

TIMEOUT_S = PATIENCE_S
YEAR_MS = 365 * 86_400_000
"""A window that does not end during a test."""
SHORT_S = 0.1
"""To see a timeout."""


@contextlib.asynccontextmanager
async def opened(url: str, clock: Clock | None = None) -> AsyncIterator[Any]:
    origin = open_origin(url, clock=clock or SystemClock())
    try:
        await origin.open()
        yield origin
    finally:
        await origin.close()


def charge(number: int, total: int, *keys: bytes, sent: int = 0) -> Call:
    sequence = int(time.time() * 1000) // YEAR_MS
    reports = [
        WindowReport(
            key, b"run", number, 0, 0, 100, YEAR_MS, 0, True, False, (CellReport(sequence, total, 0, 0, sent),)
        )
        for key in keys or (b"k",)
    ]
    return said(*reports, wants=((1,) * len(reports),))


async def counted(origin: Origin, shard: int, call: Call) -> list[Count]:
    answers = (await origin.run(shard, call, TIMEOUT_S)).answers
    return [answer.current for answer in answers if isinstance(answer, WindowAnswer)]


# Cluster


class Slot:
    """The slot of one group, and the two masters that it moves between."""

    def __init__(self, group: int, servers: list[RedisServer]) -> None:
        self.number = GROUP_SLOTS[group]
        self.source = servers[self.number * len(servers) // 16384]
        self.target = next(server for server in servers if server is not self.source)
        self.servers = servers

    def begin_to_move(self) -> None:
        self.target.command("CLUSTER SETSLOT", self.number, "IMPORTING", self._id(self.source))
        self.source.command("CLUSTER SETSLOT", self.number, "MIGRATING", self._id(self.target))

    def move(self, key: str) -> None:
        self.source.command("MIGRATE", "127.0.0.1", self.target.port, key, 0, 60_000)

    def give(self, owner: RedisServer) -> None:
        """For good: by a newer word than any claim of the former owner's that is still on its way."""
        for server in (owner, *self.servers):
            server.command("CLUSTER SETSLOT", self.number, "NODE", self._id(owner))
            owner.command("CLUSTER BUMPEPOCH")
        wait_until(
            lambda: {self._owner_for(server) for server in self.servers} == {owner.port}, "all to know the owner"
        )

    def _owner_for(self, server: RedisServer) -> int:
        """The port of the master that this server believes to have the slot."""
        ranges = server.command("CLUSTER SLOTS")
        found = [master[1] for first, last, master, *_ in ranges if first <= self.number <= last]
        return int(found[0]) if found else 0

    def tries(self) -> int:
        """How often somebody has said TRYAGAIN: the source, or, before Redis 7, the target."""
        stats = [server.client.info("errorstats") for server in (self.source, self.target)]
        return sum(stat.get("errorstat_TRYAGAIN", {"count": 0})["count"] for stat in stats)

    async def try_again(self) -> None:
        """Until it was said a few times more."""
        before = self.tries()
        await until(lambda: self.tries() > before + 2, "the call to try again")

    @staticmethod
    def _id(server: RedisServer) -> str:
        return str(server.command("CLUSTER MYID").decode())


@pytest.fixture
def slot(cluster: RedisSetup) -> Iterator[Slot]:
    """Of group 0; empty, and given back to its first owner."""
    for server in cluster.servers:
        server.client.flushall()
    moving = Slot(0, cluster.servers)
    yield moving
    for server in cluster.servers:
        server.client.flushall()
    moving.give(moving.source)


def name(key: str) -> str:
    return f"headgate:local/{{{TAGS[0].decode()}}}:k:{key}"


async def test_every_group_is_counted_on_its_own_master(cluster: RedisSetup) -> None:
    for server in cluster.servers:
        server.client.flushall()
    async with opened(cluster.url) as origin:
        assert origin.shards == GROUPS
        pulses = await asyncio.gather(*(origin.run(group, Heartbeat(b"run"), TIMEOUT_S) for group in range(GROUPS)))
        assert {pulse.epoch.decode() for pulse in pulses} == {server.run_id() for server in cluster.servers}
        assert [state.connected for state in origin.describe()] == [True] * 3
    sizes = [server.client.dbsize() for server in cluster.servers]
    assert sum(sizes) == 3 * GROUPS, "each group keeps who lives, by two versions, and the name of its memory"
    assert max(sizes) - min(sizes) <= 3


async def test_keys_of_one_group_are_one_call_whatever_they_hold(cluster: RedisSetup) -> None:
    keys = [b"plain", b"{other}tag", b"{}", b"}{", b"\x00\xff", b""]
    async with opened(cluster.url) as origin:
        assert await counted(origin, 5, charge(1, 0, *keys)) == [(1, 1, 0)] * len(keys)
        assert {origin.shard_of(b"%d" % number) for number in range(2_000)} == set(range(GROUPS))


async def test_a_slot_that_has_moved_is_followed(cluster: RedisSetup, slot: Slot) -> None:
    async with opened(cluster.url) as origin:
        assert await counted(origin, 0, charge(1, 0)) == [(1, 1, 0)]
        before = await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        slot.begin_to_move()
        slot.move(name("k"))
        slot.move(name("k").replace("k:k", "live"))
        slot.give(slot.target)
        assert await counted(origin, 0, charge(2, 1, sent=1)) == [(2, 2, 0)]
        after = await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        assert (after.epoch.decode(), after.epoch != before.epoch) == (slot.target.run_id(), True)


async def test_a_slot_that_is_moving_is_asked_where_its_keys_are(cluster: RedisSetup, slot: Slot) -> None:
    async with opened(cluster.url) as origin:
        assert await counted(origin, 0, charge(1, 0)) == [(1, 1, 0)]
        slot.begin_to_move()
        assert await counted(origin, 0, charge(2, 1, sent=1)) == [(2, 2, 0)], "still at its source"
        slot.move(name("k"))
        assert await counted(origin, 0, charge(3, 2, sent=2)) == [(3, 3, 0)], "at its target, asked there"
        assert await counted(origin, 0, charge(1, 0, b"new")) == [(1, 1, 0)], "begins at the target"


async def test_keys_on_both_sides_of_a_move_wait_for_it(cluster: RedisSetup, slot: Slot) -> None:
    clock = ManualClock()
    async with opened(cluster.url, clock) as origin:
        await counted(origin, 0, charge(1, 0, b"a", b"b"))
        slot.begin_to_move()
        slot.move(name("a"))
        in_vain = asyncio.create_task(origin.run(0, charge(2, 1, b"a", b"b"), TIMEOUT_S))
        await slot.try_again()
        clock.advance(int(TIMEOUT_S * 1000))
        with pytest.raises(OriginError, match="its keys are on two nodes"):
            await in_vain
        waiting = asyncio.create_task(origin.run(0, charge(3, 1, b"a", b"b", sent=1), TIMEOUT_S))
        await slot.try_again()
        slot.move(name("b"))
        slot.give(slot.target)
        answers = (await waiting).answers
        assert [answer.current for answer in answers if isinstance(answer, WindowAnswer)] == [(2, 2, 0)] * 2


async def test_a_master_that_stalls_does_not_touch_the_others(cluster: RedisSetup, slot: Slot) -> None:
    async with opened(cluster.url) as origin:
        slot.source.pause()
        try:
            sick = asyncio.create_task(origin.run(0, said(), 2 * TIMEOUT_S))
            await asyncio.gather(origin.run(30, said(), TIMEOUT_S), origin.run(60, said(), TIMEOUT_S))
            assert not sick.done()
            with pytest.raises(OriginTimeout, match=slot.source.address):
                await origin.run(0, said(), SHORT_S)
            with pytest.raises(OriginError, match="dropped after another call's timeout"):
                await sick
            await asyncio.gather(origin.run(30, said(), TIMEOUT_S), origin.run(60, said(), TIMEOUT_S))
        finally:
            slot.source.resume()
        await origin.run(0, said(), TIMEOUT_S)


async def test_any_node_of_the_cluster_is_enough_to_find_it(cluster: RedisSetup) -> None:
    with refused_address() as dead:
        async with opened(f"redis+cluster://{dead},{cluster.servers[2].address}") as origin:
            await asyncio.gather(*(origin.run(group, said(), TIMEOUT_S) for group in range(0, GROUPS, 9)))
            assert len(origin.describe()) == 3
        await nobody_knows_the_cluster(dead)


async def nobody_knows_the_cluster(dead: str) -> None:
    async with opened(f"redis+cluster://{dead}") as origin:
        with pytest.raises(OriginError, match="no map of the Cluster: connection refused"):
            await origin.run(0, said(), TIMEOUT_S)
        (state,) = origin.describe()
        assert (state.connected, state.error) == (False, "no map of the Cluster: connection refused")


# Sentinel


async def test_a_service_that_nobody_knows_is_named(sentinel: Any) -> None:
    address = sentinel.setup.sentinel.address
    async with opened(f"redis+sentinel://{address}/nothing") as origin:
        with pytest.raises(OriginError, match="the Sentinels know no service 'nothing'"):
            await origin.run(0, said(), TIMEOUT_S)
    with refused_address() as dead:
        async with opened(f"redis+sentinel://{dead}/headgate") as origin:
            with pytest.raises(OriginError, match="no Sentinel can be asked: connection refused"):
                await origin.run(0, said(), TIMEOUT_S)


async def test_one_sentinel_that_answers_is_enough(sentinel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that stalls is waited for, but not for ever."""
    monkeypatch.setattr(sentinel_module, "ASK_TIMEOUT_S", 2.0)
    with RedisServer() as stalled, refused_address() as dead:
        stalled.pause()
        addresses = f"{stalled.address},{dead},{sentinel.setup.sentinel.address}"
        async with opened(f"redis+sentinel://{addresses}/headgate") as origin:
            await origin.run(0, said(), TIMEOUT_S)
            assert origin.describe()[0].address == sentinel.setup.primary.address
        stalled.resume()


@pytest.fixture
def small_sentinel() -> Iterator[SentinelSetup]:
    with redis_sentinel(down_after_ms=1_500) as setup:
        yield setup


async def beaten(origin: Origin, until_not: bytes, shard: int = 0) -> bytes:
    """Heartbeats until another run answers them; its epoch."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(OriginError):
                epoch = (await origin.run(shard, Heartbeat(b"run"), 2.0)).epoch
                if epoch != until_not:
                    return epoch
            await asyncio.sleep(0.02)


async def test_a_primary_that_dies_is_followed_by_its_replica(small_sentinel: SentinelSetup) -> None:
    async with opened(small_sentinel.url) as origin:
        await counted(origin, 0, charge(1, 0))
        before = await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        dead = small_sentinel.primary
        dead.stop()
        after = await beaten(origin, before.epoch)
        assert after.decode() == small_sentinel.primary.run_id()
        assert small_sentinel.primary is not dead
        assert await counted(origin, 0, charge(2, 1, sent=1)) == [(2, 2, 0)]


async def test_a_deposed_primary_that_still_takes_writes_is_left(sentinel: Any) -> None:
    """Until its Sentinels reach it it says that it is a primary: but they name another one."""
    sentinel.setup.settle()
    async with opened(sentinel.url) as origin:
        deposed = sentinel.setup.primary
        before = await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        sentinel.setup.fail_over()
        after = await beaten(origin, before.epoch)
        assert deposed.client.info("replication")["role"] == "master", "it was left before it knew"
        assert after.decode() == sentinel.setup.primary.run_id()
        reply = await origin.run(0, said(), TIMEOUT_S)
        assert reply.epoch == after, "calls follow as heartbeats do"


# Several services: each a shard


@pytest.fixture(scope="module")
def services() -> Iterator[list[SentinelSetup]]:
    with redis_services("limits-0", "limits-1", "limits-2") as setups:
        yield setups


def services_url(setups: list[SentinelSetup]) -> str:
    return f"redis+sentinel://{setups[0].sentinel.address}/{','.join(setup.service for setup in setups)}"


async def test_each_service_is_a_shard_with_a_primary_of_its_own(services: list[SentinelSetup]) -> None:
    async with opened(services_url(services)) as origin:
        assert origin.shards == 3
        assert {origin.shard_of(b"%d" % number) for number in range(100)} == {0, 1, 2}
        for shard in range(3):
            await counted(origin, shard, charge(1, 0, b"of %d" % shard))
        states = origin.describe()
        assert [state.name for state in states] == ["limits-0", "limits-1", "limits-2"]
        assert [state.address for state in states] == [setup.primary.address for setup in services]
    found = [setup.primary.client.keys("headgate:local/k:*") for setup in services]
    assert found == [[b"headgate:local/k:of %d" % shard] for shard in range(3)]


async def test_a_keys_shard_follows_from_the_names_of_the_services_and_not_from_their_order(
    services: list[SentinelSetup],
) -> None:
    keys = [b"%d" % number for number in range(100)]
    async with opened(services_url(services)) as one, opened(services_url(services[::-1])) as other:
        assert [one.shard_of(key) for key in keys] == [2 - other.shard_of(key) for key in keys]


async def test_a_failover_of_one_service_moves_no_other(services: list[SentinelSetup]) -> None:
    for setup in services:
        setup.settle()
    async with opened(services_url(services)) as origin:
        for shard in range(3):
            await counted(origin, shard, charge(1, 0, b"fails over"))
        before = [await origin.run(shard, Heartbeat(b"run"), TIMEOUT_S) for shard in range(3)]
        states = origin.describe()
        services[1].fail_over()
        after = await beaten(origin, before[1].epoch, shard=1)
        assert after.decode() == services[1].primary.run_id()
        assert await counted(origin, 1, charge(2, 1, b"fails over", sent=1)) == [(2, 2, 0)], "its replica had the count"
        for shard in (0, 2):
            assert (await origin.run(shard, Heartbeat(b"run"), TIMEOUT_S)).epoch == before[shard].epoch
            assert await counted(origin, shard, charge(2, 1, b"fails over", sent=1)) == [(2, 2, 0)]
        moved = origin.describe()
        assert [moved[shard] == states[shard] for shard in range(3)] == [True, False, True], "connected all the time"


async def test_one_service_that_nobody_knows_does_not_touch_the_others(services: list[SentinelSetup]) -> None:
    url = services_url(services[:1])
    async with opened(f"{url},nothing") as origin:
        with pytest.raises(OriginError, match="nothing: the Sentinels know no service 'nothing'"):
            await origin.run(1, Heartbeat(b"run"), TIMEOUT_S)
        await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        assert [state.connected for state in origin.describe()] == [True, False]


async def test_a_sentinel_is_asked_once_for_all_services(services: list[SentinelSetup]) -> None:
    def connections() -> int:
        number: int = services[0].sentinel.client.info("stats")["total_connections_received"]
        return number

    async with opened(services_url(services)) as origin:
        before = connections()
        for _ in range(10):
            for shard in range(3):
                await origin.run(shard, Heartbeat(b"run"), TIMEOUT_S)
                await asyncio.sleep(0.01)  # the Sentinel has answered long before: else it would not be asked again
    assert 2 <= connections() - before <= 10
