"""What a node believes of its region while shards go and come back."""

import asyncio
from dataclasses import replace

from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Unit
from headgate.origin.operations.call import Call, Reply
from headgate.region.session import MAX_QUESTIONS, MAX_REPORTS
from headgate.region.shard_link import PROBE_CALLS

from tests.support.region import RegionWorld, virtually

LIMIT = Limit(1000, Unit.HOUR)


def test_the_first_one_back_after_an_outage_does_not_believe_itself_alone() -> None:
    """Else it would admit for all should the shard go away again."""

    async def history() -> None:
        world = RegionWorld(1)
        nodes = [await world.start_node() for _ in range(3)]
        await asyncio.sleep(2)
        assert [node.live_nodes for node in nodes] == [3, 3, 3]
        for network in world.networks:
            network.connected = False
        await asyncio.sleep(7)  # longer than a shard remembers who lives
        world.networks[0].connected = True
        for _ in range(40):
            await asyncio.sleep(0.1)
            assert nodes[0].live_nodes == 3
        for network in world.networks:
            network.connected = True
        await asyncio.sleep(8)
        assert [node.live_nodes for node in nodes] == [3, 3, 3]
        await world.kill(nodes[2])
        await asyncio.sleep(7)
        assert [node.live_nodes for node in nodes[:2]] == [2, 2]

    virtually(history())


def test_a_probe_is_not_timed_with_the_connecting_before_it() -> None:
    """A shard that is well again would be left alone for one more cooldown, the longest."""

    async def history() -> None:
        world = RegionWorld(2, deadline_s=0.005)
        node = await world.start_node()
        await world.ask(node, Charge(b"k", LIMIT, 1))
        link = node.links[0]
        network = world.networks[0]
        network.connected = False
        for _ in range(5):
            link.breaker.record(False)
        assert not link.breaker.closed
        network.connected, network.delay_ms = True, (50.0, 50.0)
        calls = network.calls
        while network.calls == calls:  # noqa: ASYNC110 - virtual time: until the probe is under way
            await asyncio.sleep(0.001)
        network.delay_ms = (1.0, 1.0)  # what came after the connection was made is quick
        await asyncio.sleep(0.1)
        assert link.breaker.closed
        assert link.breaker.trips == 1

    virtually(history())


def test_a_call_that_comes_back_in_time_is_the_end_of_a_probe() -> None:

    async def history() -> None:
        world = RegionWorld(3, deadline_s=0.005)
        node = await world.start_node(delay_ms=(1.0, 1.0))
        await world.ask(node, Charge(b"k", LIMIT, 1))
        link, network = node.links[0], world.networks[0]
        for _ in range(5):
            link.breaker.record(False)
        calls = network.calls
        while network.calls == calls:  # noqa: ASYNC110 - virtual time: until the probe is under way
            await asyncio.sleep(0.0001)
        await asyncio.sleep(0.0011)
        assert link.breaker.closed
        network.delay_ms = (50.0, 50.0)  # what comes after it is late, and is no probe any more
        await asyncio.sleep(0.2)
        assert (link.breaker.closed, link.breaker.trips) == (True, 1)

    virtually(history())


def test_a_probe_that_is_late_by_accident_costs_no_cooldown() -> None:
    async def history() -> None:
        world = RegionWorld(4, deadline_s=0.005)
        node = await world.start_node(delay_ms=(8.0, 8.0))
        link, network = node.links[0], world.networks[0]
        for _ in range(5):
            link.breaker.record(False)
        calls = network.calls
        while network.calls < calls + PROBE_CALLS:  # noqa: ASYNC110 - virtual time: until the last call is under way
            await asyncio.sleep(0.0001)
        network.delay_ms = (0.2, 0.2)  # its way back is short
        await asyncio.sleep(0.0049)
        assert (link.breaker.closed, link.breaker.trips) == (True, 1)

    virtually(history())


def test_a_shard_that_is_only_ever_late_is_not_taken_for_well() -> None:
    async def history() -> None:
        world = RegionWorld(5, deadline_s=0.005)
        node = await world.start_node(delay_ms=(8.0, 8.0))
        link, network = node.links[0], world.networks[0]
        for _ in range(5):
            link.breaker.record(False)
        calls = network.calls
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert not link.breaker.closed
        assert link.breaker.trips >= 4
        assert (network.calls - calls) / PROBE_CALLS == link.breaker.trips - 1, "and each probe is bounded"

    virtually(history())


def test_late_answers_alone_open_no_breaker_and_a_stalled_call_does() -> None:
    """A shard that answers late but steadily is asked on; one that has stopped answering is left alone."""

    async def history() -> None:
        world = RegionWorld(6, deadline_s=0.005)
        node = await world.start_node(delay_ms=(20.0, 20.0))
        link, network = node.links[0], world.networks[0]
        for number in range(100):
            await world.ask(node, Charge(b"k%d" % number, LIMIT, 1))
        assert node.engine.stats.deadline_missed == 100
        assert (link.breaker.closed, link.breaker.trips) == (True, 0)
        network.stall()
        for number in range(20):
            await world.ask(node, Charge(b"s%d" % number, LIMIT, 1))
        assert link.breaker.trips == 1

    virtually(history())


def test_no_call_is_larger_than_a_shard_should_be_asked_at_once() -> None:
    """Wide requests, as wide as may be, and many narrow ones, all at the same time."""

    async def history() -> None:
        world = RegionWorld(5)
        sizes: list[tuple[int, int]] = []

        def note(call: Call, _: Reply) -> None:
            sizes.append((len(call.reports), len(call.requests)))

        world.shards[0].on_reply = note
        node = await world.start_node()
        for number in range(20):
            world.ask_soon(node, *[Charge(b"wide %d %d" % (number, leg), LIMIT, 1) for leg in range(MAX_REPORTS)])
        exact = replace(LIMIT, precision_millionths=0)
        for number in range(2_000):
            world.ask_soon(node, Charge(b"narrow %d" % (number % 3), exact, 1))
        await asyncio.sleep(60)
        assert world.outcomes.total() == 2_020
        assert max(reports for reports, _ in sizes) == MAX_REPORTS
        assert max(wants for _, wants in sizes) == MAX_QUESTIONS

    virtually(history())
