"""Exchangers of one region that share the work by leases: what each of them knows and says."""

import random

from headgate.clock import SystemClock
from headgate.exchange.messages import Ack, Batch
from headgate.exchange.peers import PeerStatus
from headgate.exchange.sender import PeerSender
from headgate.origin.memory import MemoryOrigin
from headgate.origin.protocol import Lane

WALK = b"everything"


class Peer:
    """Acknowledges all that it is sent."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    async def send(self, batch: Batch, timeout_s: float) -> Ack:
        self.batches.append(batch)
        return Ack(batch.number, 0)

    async def close(self) -> None:
        pass


def exchanger(origin: MemoryOrigin, owner: bytes, peer: Peer) -> tuple[PeerSender, PeerStatus]:
    status = PeerStatus("us", "127.0.0.1:1")
    sender = PeerSender(origin, peer, status=status, owner=owner, clock=SystemClock(), random=random.Random(1))
    return sender, status


async def test_a_peer_is_told_that_it_has_everything_though_each_lane_is_served_by_another_exchanger() -> None:
    origin = MemoryOrigin(SystemClock(), region=b"eu", exclusive=False)
    peer = Peer()
    (one, status_of_one), (other, status_of_other) = exchanger(origin, b"one", peer), exchanger(origin, b"other", peer)
    await one.exchange(Lane.NORMAL)
    await other.exchange(Lane.URGENT)
    await origin.begin_walk(0, b"us", WALK, 1)
    for _ in range(2):
        for sender in (one, other):
            for lane in Lane:
                await sender.exchange(lane)
    assert peer.batches[-1].filled == WALK
    assert status_of_one.serving
    assert status_of_other.serving


async def test_who_serves_nothing_knows_all_the_same_whether_something_is_missing() -> None:
    origin = MemoryOrigin(SystemClock(), region=b"eu", exclusive=False)
    peer = Peer()
    (one, _), (other, status) = exchanger(origin, b"one", peer), exchanger(origin, b"other", peer)
    for sender in (one, other):
        for lane in Lane:
            await sender.exchange(lane)
    assert status.filling
    assert not status.serving
    await origin.mark_filled(0, b"us", peer.batches[-1].fill_wanted, 1)
    await other.exchange(Lane.NORMAL)
    assert not status.filling
