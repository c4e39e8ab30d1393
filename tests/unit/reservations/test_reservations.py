"""Reserving and settling, with an origin that fails when it is told to."""

import asyncio
import base64
import hashlib
import hmac
import random
import struct
from collections.abc import Sequence

import pytest
import structlog
from headgate.errors import BadRequest, NotFound, NotReady, TooLarge
from headgate.limiter.decision import Charge
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.interface import OriginTimeout
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operation import Operation, R
from headgate.origin.operations.read_map import ReadMap
from headgate.origin.operations.take_claim import TakeClaim
from headgate.origin.operations.write_map import WriteMap
from headgate.pending import answer_future
from headgate.region.region_map import RegionMapReplica
from headgate.reservations import ids, open_count, service
from headgate.reservations.ids import Reservation
from headgate.reservations.service import ReservationService
from headgate.reservations.signing import SigningKey
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from headgate_client.wire.headgate.v1 import limits_pb2 as pb

from tests.support.clock import ManualClock

KEY, OTHER = b"k" * ids.KEY_BYTES, b"o" * ids.KEY_BYTES
RESERVATION = Reservation(b"n" * ids.NONCE_BYTES, 1_699_999_400_000, 1_700_000_000_000, b"a request")
LIMIT = Limit(100, Unit.MINUTE)


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
        self.lose_map = False
        self.map_calls = 0
        self.answers = asyncio.Event()
        """Set, unless answers to claims are held back until it is."""
        self.answers.set()

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        claims = isinstance(operation, TakeClaim)
        if isinstance(operation, ReadMap | WriteMap):
            self.map_calls += 1
            if self.lose_map:
                raise OriginTimeout("lost on the way")
        self.claimed += claims
        if claims and self.lose_call:
            self.lose_call -= 1
            raise OriginTimeout("lost on the way")
        result = await super().run(shard, operation, timeout_s)
        if claims:
            await self.answers.wait()
        if claims and self.lose_reply:
            self.lose_reply -= 1
            raise OriginTimeout("lost on the way back")
        return result


class Charged:
    """Admits everything up to a limit, and writes down what it is told. The first entry's value is the key."""

    def __init__(self) -> None:
        self.used = 0
        self.limit = LIMIT

    def charges(self, payload: bytes) -> tuple[Charge, ...]:
        request = RateLimitRequest.FromString(payload)
        keys = [descriptor.entries[0].value.encode() for descriptor in request.descriptors]
        return tuple([Charge(key, self.limit, request.hits_addend) for key in keys if key != b"free"])

    def reserve(self, payload: bytes, caller: str = "") -> bytes:
        estimate = RateLimitRequest.FromString(payload).hits_addend
        fits = self.used + estimate <= 100
        self.used += estimate if fits else 0
        code = RateLimitResponse.OK if fits else RateLimitResponse.OVER_LIMIT
        return RateLimitResponse(overall_code=code).SerializeToString()

    def charge_late(self, payload: bytes) -> None:
        self.used += RateLimitRequest.FromString(payload).hits_addend

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        self.used -= sum(charge.cost for charge in charges)


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
            longest_ttl_ms=3_600_000,
            loop=asyncio.get_running_loop(),
        )

    async def reserve(self, estimate: int, ttl_ms: int = 0, node: int = 0, key: str = "a") -> str:
        descriptor = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key="user", value=key)])
        request = RateLimitRequest(domain="edge", descriptors=[descriptor], hits_addend=estimate)
        payload = pb.ReserveRequest(request=request, ttl_ms=ttl_ms).SerializeToString()
        return pb.ReserveResponse.FromString(await self._call(node, "Reserve", payload)).id

    async def settle(self, reservation: str, actual: int, node: int = 0) -> tuple[bool, int]:
        payload = pb.SettleRequest(id=reservation, actual=actual).SerializeToString()
        response = pb.SettleResponse.FromString(await self._call(node, "Settle", payload))
        return response.settled, response.actual

    def ask(self, caller: str, reservation: str, actual: int) -> "asyncio.Future[bytes]":
        """Begin to settle for a caller, and wait for nothing."""
        payload = pb.SettleRequest(id=reservation, actual=actual).SerializeToString()
        return asyncio.ensure_future(answer_future(self.nodes[0].settle(payload, caller)))

    async def _call(self, node: int, method: str, payload: bytes) -> bytes:
        return await answer_future(self.nodes[node].methods()[f"/headgate.v1.Limits/{method}"](payload, ""))


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


async def test_settlements_begin_a_few_at_a_time_and_callers_take_turns() -> None:
    world = World()
    world.charged.limit = Limit(1_000, Unit.MINUTE)
    ids = [await world.reserve(1) for _ in range(60)]
    asked = [world.ask("flood", each, 0) for each in ids[:-1]]
    asked.append(world.ask("honest", ids[-1], 0))
    ended: list[int] = []
    for number, answer in enumerate(asked):
        answer.add_done_callback(lambda _, number=number: ended.append(number))  # type: ignore[misc]
    most = 0
    while len(ended) < len(ids):
        before = world.nodes[0].waiting
        await asyncio.sleep(0)
        most = max(most, world.nodes[0].waiting - before)
    assert 0 < most <= 4
    assert ended.index(59) < 4
    assert world.charged.used == 0


async def test_settlements_that_the_origin_answers_together_go_on_a_few_at_a_time() -> None:
    """Each takes the loop a while: others have turns of it in between."""
    world = World()
    ids = [await world.reserve(1) for _ in range(40)]
    world.origin.answers.clear()
    asked = [world.ask("flood", each, 0) for each in ids]
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.origin.claimed == len(ids)
    world.origin.answers.set()
    most = 0
    while world.charged.used:
        before = world.charged.used
        await asyncio.sleep(0)
        most = max(most, before - world.charged.used)
    assert 0 < most <= 4
    assert all([pb.SettleResponse.FromString(await answer).settled for answer in asked])


async def test_settlements_that_have_not_begun_are_told_of_the_stop() -> None:
    world = World()
    ids = [await world.reserve(1) for _ in range(20)]
    asked = [world.ask("", each, 0) for each in ids]
    await world.nodes[0].stop()
    for answer in asked:
        with pytest.raises(NotReady, match="stopping"):
            await answer
    assert world.charged.used == 20


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


async def test_a_key_has_so_many_open_and_no_more_and_others_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_count, "MOST_OPEN", 2)
    world = World()
    await world.reserve(1, ttl_ms=1_000)
    await world.reserve(1, ttl_ms=3_600_000)
    with pytest.raises(TooLarge, match="reservations on this key"):
        await world.reserve(1)
    assert await world.reserve(1, key="b"), "another key has places of its own"
    world.clock.advance(1_000 + 3_600_000 // open_count.STEPS)
    assert await world.reserve(1)
    assert world.nodes[0].stats.refused_open == 1
    assert world.charged.used == 4, "who was refused was not charged"


async def test_a_settled_reservation_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_count, "MOST_OPEN", 2)
    world = World()
    for _ in range(10):
        await world.settle(await world.reserve(1), 1)
    assert world.nodes[0].open == 0
    assert world.nodes[0].stats.refused_open == 0


async def test_where_nothing_is_charged_there_is_nothing_to_hold_or_to_settle() -> None:
    """A hundred thousand of these took all places of a node for a day."""
    world = World()
    assert [await world.reserve(1, ttl_ms=3_600_000, key="free") for _ in range(5)] == [""] * 5
    assert (world.nodes[0].open, world.nodes[0].stats.reserved) == (0, 0)


async def test_keys_that_are_counted_are_bounded_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_count, "MOST_OPEN", 1)
    monkeypatch.setattr(open_count, "MOST_KEYS", 2)
    world = World()
    for key in ("a", "b", "c"):
        await world.reserve(1, key=key)
    assert await world.reserve(1, key="a")
    with pytest.raises(TooLarge):
        await world.reserve(1, key="c")


@pytest.mark.parametrize(
    ("limit", "later_ms", "left"),
    [
        (LIMIT, 19_999, 0),  # 1_700_000_000_000 is 40 s from the end of its minute
        (LIMIT, 39_999, 0),
        (LIMIT, 40_000, 80),
        (LIMIT, 120_000, 80),
        (Limit(100, Unit.MINUTE, algorithm=Algorithm.FIXED_WINDOW), 39_999, 0),
        (Limit(100, Unit.MINUTE, algorithm=Algorithm.FIXED_WINDOW), 40_000, 80),
        (Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=100), 0, 0),
        (Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=100), 30_000, 30),
        (Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=100), 30_001, 31),
        (Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=100), 80_000, 80),
        (Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=100), 500_000, 80),
    ],
)
async def test_only_what_still_counts_is_given_back(limit: Limit, later_ms: int, left: int) -> None:
    """Settled later, it would come out of the present window, in which it was not used: quota to save up."""
    world = World()
    world.charged.limit = limit
    reservation = await world.reserve(80)
    world.clock.advance(later_ms)
    assert await world.settle(reservation, 0) == (True, 0)
    assert world.charged.used == left


@pytest.mark.parametrize("algorithm", Algorithm)
async def test_reservations_of_windows_that_are_over_are_no_quota(algorithm: Algorithm) -> None:
    """Four limits reserved, one window after the other, and settled with nothing in a later one: it admitted five."""
    world = World()
    limit = Limit(100, Unit.MINUTE, algorithm=algorithm, burst=100 if algorithm is Algorithm.GCRA else 0)
    engine = Engine(world.clock, max_cells=10)
    world.charged.limit = limit
    world.charged.uncharge = engine.uncharge  # type: ignore[method-assign]
    held = []
    for _ in range(4):
        world.charged.used = 0
        assert engine.decide((Charge(b"a", limit, 100),)).admitted
        held.append(await world.reserve(100))
        world.clock.advance(120_000)
    admitted = sum(engine.decide((Charge(b"a", limit, 1),)).admitted for _ in range(1_000))
    for each in held:
        assert (await world.settle(each, 0))[0]
        admitted += sum(engine.decide((Charge(b"a", limit, 1),)).admitted for _ in range(1_000))
    assert admitted == 100


async def test_of_a_bucket_what_was_used_has_drained_first() -> None:
    world = World()
    world.charged.limit = Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=100)
    reservation = await world.reserve(80)
    world.clock.advance(20_000)
    await world.settle(reservation, 30)
    assert world.charged.used == 30, "20 of the 30 have drained: the other 50 are all there"


async def test_what_it_came_to_beyond_its_estimate_is_charged_however_late() -> None:
    world = World()
    reservation = await world.reserve(20)
    world.clock.advance(500_000)
    await world.settle(reservation, 50)
    assert world.charged.used == 50


async def test_an_id_of_the_version_before_is_settled_and_gives_nothing_back() -> None:
    """It does not say when it was charged, so nobody knows what of it still counts."""
    world = World()
    await world.nodes[0].key.draw()
    key = world.nodes[0].key.current
    request = RateLimitRequest(domain="edge", descriptors=[], hits_addend=40)
    head = struct.pack(">c4s16sQ", b"\x01", hashlib.sha256(b"id" + key).digest()[:4], b"n" * 16, 1_700_000_600_000)
    body = head + request.SerializeToString()
    tag = hmac.digest(key, body, "sha256")[:16]
    old = base64.urlsafe_b64encode(body + tag).rstrip(b"=").decode()
    assert await world.settle(old, 0) == (True, 0)
    assert await world.settle(old, 0) == (False, 0)
    assert world.charged.used == 0


async def test_without_an_origin_a_node_signs_by_itself_and_asks_it_for_a_key_seldom() -> None:
    world = World(2)
    world.origin.lose_map = True
    reservations = await asyncio.gather(*(world.reserve(1) for _ in range(50)))
    assert world.origin.map_calls <= 2
    assert await world.settle(reservations[0], 5) == (True, 5)
    world.origin.map_calls = 0
    outcomes = await asyncio.gather(*(world.settle(it, 5, 1) for it in reservations), return_exceptions=True)
    assert all(isinstance(outcome, NotFound) for outcome in outcomes), "only this node can settle them"
    assert world.origin.map_calls == 1, "all look together"


async def test_calls_for_the_region_s_first_key_share_it() -> None:
    alone, world = World(2), World(2)
    await alone.settle(await alone.reserve(1), 5, 1)
    reservations = await asyncio.gather(*(world.reserve(1) for _ in range(20)))
    outcomes = await asyncio.gather(*(world.settle(reservation, 5, 1) for reservation in reservations))
    assert outcomes == [(True, 5)] * 20
    assert world.origin.map_calls == alone.origin.map_calls


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
        (pb.ReserveRequest(request=RateLimitRequest(hits_addend=1), ttl_ms=3_600_001), "reservation_max_ttl_s"),
        (pb.ReserveRequest(request=RateLimitRequest(hits_addend=1), ttl_ms=-1), "ttl_ms"),
    )


@pytest.mark.parametrize(("request_", "said"), bad_requests())
async def test_a_bad_reservation_is_refused_by_field(request_: pb.ReserveRequest, said: str) -> None:
    reserve = World().nodes[0].methods()["/headgate.v1.Limits/Reserve"]
    with pytest.raises(BadRequest, match=said):
        reserve(request_.SerializeToString(), "")


async def test_bytes_that_are_no_message_are_refused() -> None:
    for method in World().nodes[0].methods().values():
        with pytest.raises(BadRequest, match="malformed"):
            method(b"\xff\xff\xff", "")
