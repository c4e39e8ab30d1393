"""Exchangers of one region that share the work by leases: what each of them knows and says."""

import random
from collections.abc import Callable
from typing import Any

from headgate.exchange.messages import Ack, Batch
from headgate.exchange.peers import PeerStatus
from headgate.exchange.sender import PeerSender
from headgate.exchange.site import ExchangeSite
from headgate.origin.exchange_protocol import Priority
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operations.begin_walk import BeginWalk
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.placement import NO_PLACEMENT
from structlog import get_logger

from tests.support.clock import ManualClock
from tests.unit.exchange.two_origins import START_MS, ChosenKeys

WALK = b"everything"
CLOCK = ManualClock(START_MS)


class TwoShards:
    """An origin of two shards, as far as a sender calls it."""

    shards = 2
    placed_on = (0, 1)
    placement = NO_PLACEMENT

    def __init__(self) -> None:
        self._shards = [MemoryOrigin(CLOCK, region=b"eu") for _ in range(self.shards)]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda shard, *rest: getattr(self._shards[shard], name)(0, *rest)


class Peer:
    """Acknowledges all that it is sent."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    is_renewed = False

    async def send(self, batch: Batch, timeout_s: float) -> Ack:
        self.batches.append(batch)
        return Ack(batch.number, 0)

    async def close(self) -> None:
        pass


class Exchanger:
    def __init__(self, name: bytes, origin: Any, peer: Peer) -> None:
        self.name = name
        self.status = PeerStatus("us", "")
        site = ExchangeSite("eu", origin, name, CLOCK, random.Random(1), get_logger(), ChosenKeys())
        self._sender = PeerSender(site, peer, self.status)

    async def exchange(self) -> None:
        for priority in Priority:
            await self._sender.exchange(priority)


async def test_a_peer_is_told_that_it_has_everything_though_each_shard_is_served_by_another_exchanger() -> None:
    origin: Any = TwoShards()
    peer = Peer()
    one, other = Exchanger(b"one", origin, peer), Exchanger(b"other", origin, peer)
    for shard, exchanger in enumerate((one, other)):
        await origin.run(shard, ReadChanges(b"us", Priority.NORMAL, exchanger.name, b"drawn", 1), 1.0)
        await origin.run(shard, BeginWalk(b"us", WALK), 1.0)
    for _ in range(2):
        await one.exchange()
        await other.exchange()
    assert one.status.serving
    assert other.status.serving
    assert peer.batches[-1].filled == WALK


async def test_who_serves_nothing_knows_all_the_same_whether_something_is_missing() -> None:
    origin = MemoryOrigin(CLOCK, region=b"eu")
    peer = Peer()
    one, other = Exchanger(b"one", origin, peer), Exchanger(b"other", origin, peer)
    await one.exchange()
    await other.exchange()
    assert (one.status.serving, other.status.serving) == (True, False)
    assert other.status.filling
    await origin.run(0, MarkFilled(b"us", peer.batches[-1].fill_wanted), 1.0)
    await other.exchange()
    assert not other.status.filling
