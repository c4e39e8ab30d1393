"""Reserve and settle: an estimate is charged at once, and the difference when it is known what it came to.

An id holds all that is needed, signed (ids.py): an open reservation costs no memory anywhere, and counts as its
estimate for as long as nobody settles it. Settling happens once: whoever takes the id's name at the region's origin
charges the difference, or gives it back, and everybody else is told what it was settled with. A node whose origin does
not answer goes on trying until the reservation expires; nothing is charged or given back before it has the name.

Both are decided where all calls are, on the loop or with its lock held: an estimate like any other request, and of a
settlement whatever needs no answer from the origin. What does need one goes on in the loop, a task each; a few of them
begin, or go on, in a turn of the loop, and callers take turns.

Bounded: reservations that are open on one limit key, by number and time; settlements that wait for the origin;
settlements that a node remembers. Each cap is counted. Where nothing was charged there is nothing to settle, and no id.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse
from headgate_client.wire.headgate.v1 import limits_pb2 as pb

from headgate.endpoint.methods import parsed
from headgate.errors import BadRequest, NotFound, NotReady, TooLarge
from headgate.lines import Lines
from headgate.origin.interface import Origin, OriginError, owners_of
from headgate.origin.operations.take_claim import Claim, ClaimState, TakeClaim
from headgate.pending import CallerMethod, PendingAnswer, answer_future
from headgate.reservations import ids
from headgate.reservations.difference import Charging, checked_request, make_up
from headgate.reservations.ids import Reservation
from headgate.reservations.open_count import MOST_OPEN, OpenReservations
from headgate.reservations.signing import SigningKey

SERVICE: Final = "headgate.v1.Limits"
DEFAULT_TTL_MS: Final = 600_000
SHORTEST_TTL_MS: Final = 100
MOST_WAITING: Final = 10_000
"""Settlements that wait for the origin to answer."""
MOST_REMEMBERED: Final = 100_000
"""Settlements that this node made or heard of: it answers for them without asking."""
CLAIM_TIMEOUT_S: Final = 0.5
ANSWER_S: Final = 1.0
"""Time that a caller waits for the origin; the settlement goes on without him."""
RETRY_S: Final = 1.0
MAX_ACTUAL: Final = 2**32 - 1
STEPS_AT_ONCE: Final = 4
"""Answers that need the origin and begin, or go on because it has answered, in one turn of the loop: each step takes it
some 100 microseconds, for which whoever else has something to do there waits."""

Later = tuple[Coroutine[Any, Any, bytes], PendingAnswer] | asyncio.Future[None]
"""Work to be awaited, and the answer that it gives; or what work waits for that may go on."""


@dataclass(slots=True)
class ReservationStats:
    """Plain counters, read by whoever exports them."""

    reserved: int = 0
    denied: int = 0
    settled: int = 0
    """Here, by taking the name."""
    repeated: int = 0
    """Settlements of reservations that had been settled before."""
    expired: int = 0
    refused_open: int = 0
    """Reserve, because a key has as many open as it may."""
    refused_waiting: int = 0
    """Settle, because as many wait for the origin as may."""


@dataclass(slots=True, eq=False)
class ReservationService:
    """Serves `headgate.v1.Limits`: Reserve and Settle."""

    charging: Charging
    origin: Origin
    key: SigningKey
    run: bytes
    now_ms: Callable[[int], int]
    """The time of a shard."""
    random_bytes: Callable[[int], bytes]
    longest_ttl_ms: int
    loop: asyncio.AbstractEventLoop
    stats: ReservationStats = field(default_factory=ReservationStats)
    _waiting: dict[bytes, "asyncio.Task[pb.SettleResponse]"] = field(default_factory=dict)
    _settled: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    """The amount that each was settled with, as far as this node made it or heard of it lately."""
    _open: OpenReservations = field(init=False)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    """Answers that need the origin."""
    _later: Lines[Later] = field(default_factory=lambda: Lines(1))
    """Answers that need the origin: those that have not begun, and those that wait to go on."""

    def __post_init__(self) -> None:
        self._open = OpenReservations(self.longest_ttl_ms)

    @property
    def open(self) -> int:
        """Reservations that were made here and are neither settled here nor expired."""
        return self._open.count(self.now_ms(0))

    @property
    def waiting(self) -> int:
        """Settlements that wait for the origin."""
        return len(self._waiting)

    def methods(self) -> Mapping[str, CallerMethod]:
        """Methods by path."""
        return {f"/{SERVICE}/Reserve": self.reserve, f"/{SERVICE}/Settle": self.settle}

    async def stop(self) -> None:
        """Give up the settlements that wait for the origin: those estimates stand."""
        for later in self._later.take_all():
            if isinstance(later, tuple):
                work, answer = later
                work.close()
                answer.on_answer(_stopping())
        tasks = [*self._waiting.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Reserve

    def reserve(self, payload: bytes, caller: str) -> bytes | PendingAnswer:
        """Charge an estimate for that caller, if it fits, and give it an id."""
        request = parsed(pb.ReserveRequest, payload)
        asked, ttl_ms = checked_request(request.request), self._checked_ttl(request.ttl_ms)
        nonce = self.random_bytes(ids.NONCE_BYTES)
        now_ms = self.now_ms(self.origin.shard_of(nonce))
        keys = {charge.key for charge in self.charging.charges(asked)}
        self._check_room(keys, now_ms)
        estimate = _Estimate(self, keys, Reservation(nonce, now_ms, now_ms + ttl_ms, asked))
        if self.key.is_drawn:
            decided = self.charging.reserve(asked, caller)
            return estimate.answer(decided) if isinstance(decided, bytes) else estimate.wait_for(decided)
        return self._answer_later(caller, self._reserve_with_first_key(estimate, caller))

    async def _reserve_with_first_key(self, estimate: "_Estimate", caller: str) -> bytes:
        await self.key.draw()
        decided = self.charging.reserve(estimate.reservation.request, caller)
        return estimate.answer(await answer_future(decided))

    def made(self, keys: Collection[bytes], reservation: Reservation) -> str:
        """Count a reservation that was charged, and return its id."""
        self.stats.reserved += 1
        self._open.add(keys, reservation.expires_ms)
        return ids.encode(reservation, self.key.current)

    def _checked_ttl(self, ttl_ms: int) -> int:
        default_ms = min(DEFAULT_TTL_MS, self.longest_ttl_ms)
        if ttl_ms and not SHORTEST_TTL_MS <= ttl_ms <= self.longest_ttl_ms:
            raise BadRequest(
                f"ttl_ms is {ttl_ms}: accepted are {SHORTEST_TTL_MS} to {self.longest_ttl_ms} "
                f"(reservation_max_ttl_s), and 0 for {default_ms}"
            )
        return ttl_ms or default_ms

    def _check_room(self, keys: Collection[bytes], now_ms: int) -> None:
        if self._open.full(keys, now_ms):
            self.stats.refused_open += 1
            raise TooLarge(
                f"{MOST_OPEN} reservations on this key are neither settled nor expired: settle them, ask for a shorter "
                "ttl, or charge costs when they are known (`overdraft: true`)"
            )

    # Settle

    def settle(self, payload: bytes, caller: str) -> bytes | PendingAnswer:
        """Settle a reservation with what it came to, once, whoever calls."""
        request = parsed(pb.SettleRequest, payload)
        if request.actual > MAX_ACTUAL:
            raise BadRequest(f"actual is {request.actual}: accepted are 0 to {MAX_ACTUAL}")
        try:
            reservation = ids.decode(request.id, self.key.accepted())
        except NotFound:
            if not self.key.may_look_again():
                raise
            # Another node may have drawn the region's key just now.
            return self._answer_later(caller, self._settle_with_new_key(request, caller))
        known = self._known(reservation)
        return self._answer_later(caller, self._settle(reservation, request.actual, caller)) if known is None else known

    async def _settle_with_new_key(self, request: pb.SettleRequest, caller: str) -> bytes:
        await self.key.look_again()
        return await self._settle(ids.decode(request.id, self.key.accepted()), request.actual, caller)

    async def _settle(self, reservation: Reservation, actual: int, caller: str) -> bytes:
        known = self._known(reservation)
        if known is not None:
            return known
        waiting = self._waiting.get(reservation.nonce)
        outcome = await self._wait_for(waiting or self._begin(reservation, actual, caller))
        # Of those who wait for the same settlement, the first has made it.
        return pb.SettleResponse(settled=outcome.settled and waiting is None, actual=outcome.actual).SerializeToString()

    def _known(self, reservation: Reservation) -> bytes | None:
        """Return the answer for one that was settled already, as far as this node knows."""
        actual = self._settled.get(reservation.nonce)
        if actual is None:
            return None
        self.stats.repeated += 1
        return pb.SettleResponse(settled=False, actual=actual).SerializeToString()

    async def _wait_for(self, task: "asyncio.Task[pb.SettleResponse]") -> pb.SettleResponse:
        await asyncio.wait([task], timeout=ANSWER_S)
        if not task.done():
            raise NotReady(
                "the region's origin does not answer: this node goes on trying until the reservation expires; sending "
                "it again does no harm"
            )
        if task.cancelled():
            raise _stopping()
        return task.result()

    def _begin(self, reservation: Reservation, actual: int, caller: str) -> "asyncio.Task[pb.SettleResponse]":
        if len(self._waiting) >= MOST_WAITING:
            self.stats.refused_waiting += 1
            raise NotReady(f"{MOST_WAITING} settlements wait for the region's origin already: send it again later")
        task = asyncio.get_running_loop().create_task(self._claim(reservation, actual, caller), name="settle")
        self._waiting[reservation.nonce] = task
        task.add_done_callback(lambda ended: self._ended(reservation.nonce, ended))
        return task

    def _ended(self, nonce: bytes, task: "asyncio.Task[pb.SettleResponse]") -> None:
        """Remember what came of it; of one that failed nothing: the next who asks begins again."""
        del self._waiting[nonce]
        if task.cancelled() or task.exception() is not None:
            return
        self._settled[nonce] = task.result().actual
        while len(self._settled) > MOST_REMEMBERED:
            self._settled.popitem(last=False)

    async def _claim(self, reservation: Reservation, actual: int, caller: str) -> pb.SettleResponse:
        """Take the name, as long as it takes; then, and only then, make up the difference."""
        value = b"%d/%s" % (actual, self.run)
        while True:
            shard = self.origin.shard_of(reservation.nonce)
            try:
                claim = await self._take(reservation, value)
                break
            except OriginError:
                if self.now_ms(shard) >= reservation.expires_ms:
                    self.stats.expired += 1
                    raise _expired() from None
                await asyncio.sleep(RETRY_S)
        await self._turn(caller)
        if claim.state is ClaimState.EXPIRED:
            self.stats.expired += 1
            raise _expired()
        if claim.state is ClaimState.TAKEN:
            self.stats.repeated += 1
            return pb.SettleResponse(settled=False, actual=int(claim.value.partition(b"/")[0]))
        self._make_up(reservation, actual, self.now_ms(shard))
        self.stats.settled += 1
        return pb.SettleResponse(settled=True, actual=actual)

    async def _take(self, reservation: Reservation, value: bytes) -> Claim:
        """Take the name at the shard that keeps it; while claims move, at the one that it leaves, if it is taken there.

        Raises OriginError where the region has another list of shards by now, and this node has not heard of it.
        """
        number, owners = self.origin.placement.number, owners_of(self.origin, reservation.nonce)
        for shard in owners:
            leaving = shard != owners[-1]
            operation = TakeClaim(reservation.nonce, value, reservation.expires_ms, number, leaving)
            claim = await self.origin.run(shard, operation, CLAIM_TIMEOUT_S)
            if claim.state is not ClaimState.ELSEWHERE:
                return claim
        raise OriginError("the region has another list of shards by now")

    def _make_up(self, reservation: Reservation, actual: int, now_ms: int) -> None:
        """Charge what it came to beyond its estimate, or give back what still counts of the rest; free its place."""
        keys = {charge.key for charge in self.charging.charges(reservation.request)}
        self._open.remove(keys, reservation.expires_ms)
        make_up(self.charging, reservation.request, actual, charged_ms=reservation.charged_ms, now_ms=now_ms)

    # Answers that need the origin

    def _answer_later(self, caller: str, work: Coroutine[Any, Any, bytes]) -> PendingAnswer:
        """Return the answer that this will give, which begins in one of the loop's next turns."""
        answer = PendingAnswer()
        self._stand_in_line(caller, (work, answer))
        return answer

    async def _turn(self, caller: str) -> None:
        """Go on in one of the loop's next turns: the origin answers many at once."""
        goes_on = self.loop.create_future()
        self._stand_in_line(caller, goes_on)
        await goes_on

    def _stand_in_line(self, caller: str, later: Later) -> None:
        if not self._later.turns:
            self.loop.call_soon_threadsafe(self._take_steps)
        self._later.line_of(caller).waiting.append(later)

    def _take_steps(self) -> None:
        for _ in range(STEPS_AT_ONCE):
            first = self._later.first()
            if first is None:
                return
            self._later.take(1)
            if not isinstance(first, tuple):
                if not first.done():
                    first.set_result(None)
                continue
            task = self.loop.create_task(_give(*first))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._later.turns:
            self.loop.call_soon(self._take_steps)


class _Estimate:
    """The answer to one who reserves, once it is decided whether the estimate fits."""

    __slots__ = ("_keys", "_later", "_service", "reservation")

    def __init__(self, service: ReservationService, keys: Collection[bytes], reservation: Reservation) -> None:
        self._service = service
        self._later = PendingAnswer()
        self._keys = keys
        self.reservation = reservation

    def wait_for(self, decision: PendingAnswer) -> PendingAnswer:
        """Answer when it is decided."""
        decision.on_answer = self._decided
        return self._later

    def answer(self, decision: bytes) -> bytes:
        """Answer with this decision; where something was charged and fits, with an id."""
        response = pb.ReserveResponse(decision=RateLimitResponse.FromString(decision))
        if response.decision.overall_code != RateLimitResponse.OK:
            self._service.stats.denied += 1
        elif self._keys:
            response.id = self._service.made(self._keys, self.reservation)
        return response.SerializeToString()

    def _decided(self, decision: bytes | Exception) -> None:
        try:
            if isinstance(decision, Exception):
                raise decision
            answer = self.answer(decision)
        except Exception as error:
            self._later.on_answer(error)
        else:
            self._later.on_answer(answer)


async def _give(work: Coroutine[Any, Any, bytes], answer: PendingAnswer) -> None:
    try:
        given = await work
    except Exception as error:
        answer.on_answer(error)
    else:
        answer.on_answer(given)


def _stopping() -> NotReady:
    return NotReady("the server is stopping: settle it at another node")


def _expired() -> NotFound:
    return NotFound("id: the reservation has expired, and was not settled in time: its estimate stands")
