"""Reserving and settling, with an origin that fails when it is told to."""

import asyncio
import random
from collections.abc import Sequence

import pytest
import structlog
from headgate.errors import BadRequest, NotFound, NotReady, TooLarge
from headgate.origin.interface import OriginTimeout
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operation import Operation, R
from headgate.origin.operations.take_claim import TakeClaim
from headgate.region.region_map import RegionMapReplica
from headgate.reservations import ids, service
from headgate.reservations.ids import Reservation
from headgate.reservations.service import ReservationService
from headgate.reservations.signing import SigningKey
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from headgate_client.wire.headgate.v1 import limits_pb2 as pb

from tests.support.clock import ManualClock

KEY, OTHER = b"k" * ids.KEY_BYTES, b"o" * ids.KEY_BYTES
RESERVATION = Reservation(b"n" * ids.NONCE_BYTES, 1_700_000_000_000, b"a request")


def test_an_id_says_what_was_put_into_it() -> None:
    assert ids.decode(ids.encode(RESERVATION, KEY), [OTHER, KEY]) == RESERVATION


def test_an_id_of_another_region_is_not_known_here() -> None:
    with pytest.raises(NotFound, match="another region"):
        ids.decode(ids.encode(RESERVATION, KEY), [OTHER])


def test_every_changed_character_is_noticed() -> None:
    real = ids.encode(RESERVATION, KEY)
    for position, sign in enumerate(real):
        forged = real[:position] + ("A" if sign != "A" else "B") + real[position + 1 :]
        with pytest.raises((BadRequest, NotFound)):
            ids.decode(forged, [KEY])


class FlakyOrigin(MemoryOrigin):
    """Loses answers to claims: carried out or not."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.lose_reply = self.lose_call = 0
        self.claimed = 0

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        claims = isinstance(operation, TakeClaim)
        self.claimed += claims
        if claims and self.lose_call:
            self.lose_call -= 1
            raise OriginTimeout("lost on the way")
        result = await super().run(shard, operation, timeout_s)
        if claims and self.lose_reply:
            self.lose_reply -= 1
            raise OriginTimeout("lost on the way back")
        return result


class Charged:
    """Admits everything up to a limit, and writes down what it is told."""

    def __init__(self) -> None:
        self.used = 0

    def reserve(self, payload: bytes) -> bytes:
        estimate = RateLimitRequest.FromString(payload).hits_addend
        fits = self.used + estimate <= 100
        self.used += estimate if fits else 0
        code = RateLimitResponse.OK if fits else RateLimitResponse.OVER_LIMIT
        return RateLimitResponse(overall_code=code).SerializeToString()

    def charge_late(self, payload: bytes) -> None:
        self.used += RateLimitRequest.FromString(payload).hits_addend

    def uncharge(self, payload: bytes) -> None:
        self.used -= RateLimitRequest.FromString(payload).hits_addend


class World:
    """Nodes of one region that share an origin; what they charge is counted together."""

    def __init__(self, nodes: int = 1) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.origin = FlakyOrigin(self.clock)
        self.charged = Charged()
        self.nodes = [self._node(number) for number in range(nodes)]

    def _node(self, number: int) -> ReservationService:
        chance = random.Random(number)
        book = RegionMapReplica(
            self.origin, now_ms=self.clock.now_ms, random=chance, logger=structlog.get_logger().bind()
        )
        return ReservationService(
            self.charged,
            self.origin,
            key=SigningKey(book, chance, asyncio.get_running_loop().time),
            run=b"run%d" % number,
            now_ms=lambda _: self.clock.now_ms(),
            random_bytes=chance.randbytes,
        )

    async def reserve(self, estimate: int, ttl_ms: int = 0, node: int = 0) -> str:
        request = RateLimitRequest(domain="edge", descriptors=[RateLimitDescriptor()], hits_addend=estimate)
        payload = pb.ReserveRequest(request=request, ttl_ms=ttl_ms).SerializeToString()
        return pb.ReserveResponse.FromString(await self._call(node, "Reserve", payload)).id

    async def settle(self, reservation: str, actual: int, node: int = 0) -> tuple[bool, int]:
        payload = pb.SettleRequest(id=reservation, actual=actual).SerializeToString()
        response = pb.SettleResponse.FromString(await self._call(node, "Settle", payload))
        return response.settled, response.actual

    async def _call(self, node: int, method: str, payload: bytes) -> bytes:
        return await self.nodes[node].methods()[f"/headgate.v1.Limits/{method}"](payload)


async def test_the_difference_is_made_up_once_whoever_is_asked_and_whatever_is_said_later() -> None:
    world = World(3)
    reservation = await world.reserve(40)
    assert world.charged.used == 40
    outcomes = await asyncio.gather(*(world.settle(reservation, 10 + node, node) for node in (0, 1, 2, 1, 0)))
    assert sum(settled for settled, _ in outcomes) == 1
    assert len({actual for _, actual in outcomes}) == 1
    assert world.charged.used == outcomes[0][1]
    more = await world.reserve(40)
    assert await world.settle(more, 75, 2) == (True, 75)
    assert world.charged.used == outcomes[0][1] + 75


async def test_an_answer_that_was_lost_settles_once_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    world = World(2)
    first, second = await world.reserve(20), await world.reserve(20)
    world.origin.lose_reply = 2
    assert await world.settle(first, 50) == (True, 50)
    world.origin.lose_call = 2
    assert await world.settle(second, 5) == (True, 5)
    assert await world.settle(first, 50, 1) == (False, 50)
    assert world.charged.used == 55


async def test_while_the_origin_is_away_a_settlement_goes_on_and_its_caller_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    monkeypatch.setattr(service, "ANSWER_S", 0.05)
    world = World()
    reservation = await world.reserve(20)
    world.origin.lose_call = 1_000_000
    with pytest.raises(NotReady, match="goes on trying"):
        await world.settle(reservation, 50)
    assert (world.charged.used, world.nodes[0].waiting) == (20, 1)
    world.origin.lose_call = 0
    while world.nodes[0].waiting:  # noqa: ASYNC110 - turns of the loop, not time
        await asyncio.sleep(0)
    assert world.charged.used == 50
    assert await world.settle(reservation, 50) == (False, 50)


async def test_one_that_expires_unsettled_counts_as_its_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    world = World()
    one, two = await world.reserve(20, ttl_ms=1_000), await world.reserve(20, ttl_ms=1_000)
    world.origin.lose_call = 1
    waiting = asyncio.create_task(world.settle(two, 50))
    while not world.origin.claimed:  # noqa: ASYNC110 - turns of the loop, not time
        await asyncio.sleep(0)
    world.clock.advance(1_000)
    for late in (world.settle(one, 0), waiting):
        with pytest.raises(NotFound, match="its estimate stands"):
            await late
    assert world.charged.used == 40
    assert world.nodes[0].stats.expired == 2


async def test_a_node_has_so_many_open_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_OPEN", 2)
    world = World()
    await world.reserve(1, ttl_ms=1_000)
    await world.reserve(1, ttl_ms=60_000)
    with pytest.raises(TooLarge, match="2 reservations"):
        await world.reserve(1)
    world.clock.advance(2_001)
    assert await world.reserve(1)
    assert world.nodes[0].stats.refused_open == 1
    assert world.charged.used == 3, "who was refused was not charged"


async def test_settlements_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_WAITING", 1)
    monkeypatch.setattr(service, "ANSWER_S", 0.01)
    world = World()
    reservations = [await world.reserve(1) for _ in range(2)]
    world.origin.lose_call = 1_000_000
    for reservation, said in zip(reservations, ("goes on trying", "send it again later"), strict=True):
        with pytest.raises(NotReady, match=said):
            await world.settle(reservation, 5)
    await world.nodes[0].stop()
    assert world.nodes[0].waiting == 0


async def test_what_is_remembered_is_bounded_and_the_origin_knows_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_REMEMBERED", 1)
    world = World()
    reservations = [await world.reserve(1) for _ in range(3)]
    for reservation in reservations:
        assert (await world.settle(reservation, 2))[0]
    assert [await world.settle(reservation, 9) for reservation in reservations] == [(False, 2)] * 3
    assert world.charged.used == 6


def bad_requests() -> Sequence[tuple[pb.ReserveRequest, str]]:
    descriptor = RateLimitDescriptor()
    own = RateLimitDescriptor()
    own.hits_addend.value = 3
    long = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key="k", value="v" * 3_000)])
    return (
        (pb.ReserveRequest(request=RateLimitRequest(descriptors=[descriptor])), "the estimate, at least 1"),
        (pb.ReserveRequest(request=RateLimitRequest(descriptors=[own], hits_addend=1)), "one estimate for all"),
        (pb.ReserveRequest(request=RateLimitRequest(descriptors=[long], hits_addend=1)), "at most 2048"),
        (pb.ReserveRequest(request=RateLimitRequest(hits_addend=1), ttl_ms=86_400_001), "ttl_ms"),
        (pb.ReserveRequest(request=RateLimitRequest(hits_addend=1), ttl_ms=-1), "ttl_ms"),
    )


@pytest.mark.parametrize(("request_", "said"), bad_requests())
async def test_a_bad_reservation_is_refused_by_field(request_: pb.ReserveRequest, said: str) -> None:
    reserve = World().nodes[0].methods()["/headgate.v1.Limits/Reserve"]
    with pytest.raises(BadRequest, match=said):
        await reserve(request_.SerializeToString())


async def test_bytes_that_are_no_message_are_refused() -> None:
    for method in World().nodes[0].methods().values():
        with pytest.raises(BadRequest, match="malformed"):
            await method(b"\xff\xff\xff")
