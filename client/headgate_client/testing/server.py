"""A server within the process, and clients of it: everything is real but the network and the time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import grpc

from headgate_client.in_process import InProcessAsyncHeadgate, InProcessHeadgate
from headgate_client.testing.clock import FakeClock
from headgate_client.testing.limits import Counter, FakeLimit
from headgate_client.testing.rules import FakeRules
from headgate_client.unmet import Unmet, encode_unmet
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from headgate_client.wire.envoy.type.v3.ratelimit_unit_pb2 import RateLimitUnit
from headgate_client.wire.headgate.v1.limits_pb2 import (
    ReserveRequest,
    ReserveResponse,
    SettleRequest,
    SettleResponse,
)

MAX_REMAINING: Final = 2**32 - 1
"""What an unlimited rule has left."""
_ADDRESS: Final = "fake.headgate.test:8081"

_Status = RateLimitResponse.DescriptorStatus
_Met = tuple[FakeLimit, tuple[object, ...]]
"""A limit that a descriptor meets, and the key of its counter."""
RequestLimits = Literal["allow", "lower", "refuse"]


class FakeRpcError(grpc.RpcError):
    """A failure as gRPC raises it."""

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._status, self._details = status, details

    def code(self) -> grpc.StatusCode:
        return self._status

    def details(self) -> str:
        return self._details


class FakeServer:
    """Keeps limits; fails when it is told to. `clock` moves its time."""

    def __init__(
        self, *rules: Mapping[str, Any], clock: FakeClock | None = None, request_limits: RequestLimits = "lower"
    ) -> None:
        """`request_limits`, as the server's: what becomes of limits that come with a descriptor."""
        self.request_limits = request_limits
        self.clock = clock or FakeClock()
        self.requests: list[RateLimitRequest] = []
        """All that have arrived, those that failed too."""
        self._rules = FakeRules()
        self._counters: dict[tuple[object, ...], Counter] = {}
        self._reservations: dict[str, _Reserved] = {}
        self._failure: FakeRpcError | None = None
        for one in rules:
            self._rules.load(one)

    def limit(self, domain: str, rate: str, **entries: str) -> None:
        """`limit("edge", "5/minute", user="*")`: five a minute for each user. The order of keywords matters."""
        self._rules.limit(domain, rate, entries)

    def client(self, domain: str, **options: Any) -> "FakeHeadgate":
        """With the options of `Headgate`."""
        return FakeHeadgate(self, domain, **options)

    def async_client(self, domain: str, **options: Any) -> "FakeAsyncHeadgate":
        """With the options of `AsyncHeadgate`."""
        return FakeAsyncHeadgate(self, domain, **options)

    def fail(self, status: str = "UNAVAILABLE", details: str = "the test says so") -> None:
        """From now on every call fails; `DEADLINE_EXCEEDED` is a server that does not answer."""
        self._failure = FakeRpcError(grpc.StatusCode[status], details)

    def recover(self) -> None:
        self._failure = None

    def reset(self) -> None:
        """Nothing counted, no request seen."""
        self._counters.clear()
        self.requests.clear()

    def answer(self, payload: bytes) -> bytes:
        """One call: a RateLimitRequest in, a RateLimitResponse out."""
        request = RateLimitRequest.FromString(payload)
        self.requests.append(request)
        if self._failure is not None:
            raise self._failure
        return self._decided(request, overdraws=True).SerializeToString()

    def _decided(self, request: RateLimitRequest, *, overdraws: bool) -> RateLimitResponse:
        now_ms = round(self.clock.now_s() * 1000)
        found = [self._charges(request, descriptor, overdraws=overdraws) for descriptor in request.descriptors]
        charges = _without_replaced(found)
        charged = [charge for group in charges for charge in group]
        denied = _decide(charged, now_ms)
        response = RateLimitResponse(
            overall_code=RateLimitResponse.OVER_LIMIT if denied else RateLimitResponse.OK,
            statuses=[
                _tightest(group) if group else self._unlimited(request.domain, descriptor, replaced=bool(before))
                for descriptor, before, group in zip(request.descriptors, found, charges, strict=True)
            ],
        )
        if denied and any(charge.late or charge.refund or charge.limit.refund for charge in charged):
            # Not to be remembered: it is charged, or given back, each time; or room may come before its time.
            response.quota.requests = 1
            response.quota.valid_until.SetInParent()
        return response

    def _unlimited(self, domain: str, descriptor: RateLimitDescriptor, *, replaced: bool) -> _Status:
        entries = [(entry.key, entry.value) for entry in descriptor.entries]
        reason = Unmet.REPLACED if replaced else self._rules.unmet(domain, entries)
        return _Status.FromString(_Status(code=RateLimitResponse.OK).SerializeToString() + encode_unmet(reason))

    def reserve(self, payload: bytes) -> bytes:
        """One call of Reserve: the estimate is charged if it fits."""
        request = ReserveRequest.FromString(payload)
        self.requests.append(request.request)
        if self._failure is not None:
            raise self._failure
        decision = self._decided(request.request, overdraws=False)
        charged = any(status.HasField("current_limit") for status in decision.statuses)
        if decision.overall_code != RateLimitResponse.OK or not charged:
            return ReserveResponse(decision=decision).SerializeToString()
        name = f"reservation-{len(self._reservations)}"
        self._reservations[name] = _Reserved(request.request, self.clock.now_s() + (request.ttl_ms or 600_000) / 1000)
        return ReserveResponse(decision=decision, id=name).SerializeToString()

    def settle(self, payload: bytes) -> bytes:
        """One call of Settle: the difference is charged or given back, once."""
        if self._failure is not None:
            raise self._failure
        request = SettleRequest.FromString(payload)
        reserved = self._reservations.get(request.id)
        if reserved is None or reserved.until_s <= self.clock.now_s():
            raise FakeRpcError(grpc.StatusCode.NOT_FOUND, "id: unknown, or expired: its estimate stands")
        first = reserved.actual is None
        if first:
            reserved.actual = request.actual
            self._make_up(reserved.request, request.actual - reserved.request.hits_addend)
        return SettleResponse(settled=first, actual=reserved.actual or 0).SerializeToString()

    def _make_up(self, request: RateLimitRequest, difference: int) -> None:
        now_ms = round(self.clock.now_s() * 1000)
        for descriptor in request.descriptors:
            for charge in self._charges(request, descriptor, overdraws=False):
                if not charge.limit.unlimited:
                    charge.counter.make_up(now_ms, difference)

    def _charges(
        self, request: RateLimitRequest, descriptor: RateLimitDescriptor, *, overdraws: bool
    ) -> "list[_Charge]":
        """Of one descriptor: none, one, or its rule's and that of the limit that it brings."""
        entries = [(entry.key, entry.value) for entry in descriptor.entries]
        found = self._rules.match(request.domain, entries)
        met = [] if found is None else [found]
        if descriptor.HasField("limit") and self._rules.has_domain(request.domain):
            met = self._with_request_limit(met, descriptor, (request.domain, *entries))
        return [self._charge(request, descriptor, *one, overdraws=overdraws) for one in met]

    def _with_request_limit(
        self, met: list[_Met], descriptor: RateLimitDescriptor, key: tuple[object, ...]
    ) -> list[_Met]:
        if self.request_limits == "refuse":
            raise FakeRpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "descriptors.limit: limits in requests are refused here (request_limits: refuse)",
            )
        unit = RateLimitUnit.Name(descriptor.limit.unit).lower()
        asked = FakeLimit(descriptor.limit.requests_per_unit, unit)
        own = (*key, "(request)", unit)
        if self.request_limits == "allow" or not met:
            return [(asked, own)]
        rule = met[0][0]
        asked = replace(asked, name=rule.name, shadow=rule.shadow, overdraft=rule.overdraft, refund=rule.refund)
        return [*met, (asked, own)] if asked.is_smaller(rule) else met

    def _charge(
        self,
        request: RateLimitRequest,
        descriptor: RateLimitDescriptor,
        limit: FakeLimit,
        key: tuple[object, ...],
        *,
        overdraws: bool,
    ) -> "_Charge":
        cost = descriptor.hits_addend.value if descriptor.HasField("hits_addend") else request.hits_addend or 1
        counter = self._counters.setdefault(key, Counter(limit))
        counter.limit = limit
        if not descriptor.is_negative_hits:
            return _Charge(limit, counter, cost, overdraws=overdraws and limit.overdraft)
        if not limit.refund and not limit.unlimited:
            raise FakeRpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "is_negative_hits: hits are given back on rules with `refund: true` only",
            )
        return _Charge(limit, counter, cost, refund=True)


@dataclass(slots=True)
class _Reserved:
    """An estimate that was charged."""

    request: RateLimitRequest
    until_s: float
    actual: int | None = None


class _Charge:
    """One descriptor under its limit."""

    def __init__(
        self, limit: FakeLimit, counter: Counter, cost: int, *, overdraws: bool = False, refund: bool = False
    ) -> None:
        self.limit, self.counter, self.cost = limit, counter, cost
        self.refund = refund
        """Given back, in any case."""
        self.late = overdraws and cost > 0
        """Charged in any case."""
        self.look = overdraws and cost == 0
        """Never charged, and decided as a cost of 1 would be."""
        self.shared = 0 if overdraws or refund else cost
        """What must fit together with others on the same counter."""
        self.over = False
        self.remaining = MAX_REMAINING
        self.reset_ms = 0

    @property
    def denies(self) -> bool:
        return self.over and not self.limit.shadow

    def take(self, now_ms: int) -> None:
        if self.limit.unlimited:
            return
        if self.refund:
            self.counter.make_up(now_ms, -self.cost)
        else:
            self.over = self.counter.room(now_ms, self.cost or int(self.look)) < 0
            if self.over:
                if self.late:
                    self.counter.overdraw(now_ms, self.cost)
                return
            self.counter.charge(now_ms, self.cost)
        self.remaining = self.counter.remaining(now_ms, 0)
        self.reset_ms = self.counter.reset_ms(now_ms)

    def release(self) -> None:
        if not (self.limit.unlimited or self.over or self.late or self.refund):
            self.counter.release(self.cost)

    def settle(self, now_ms: int, ahead: int, *, denied: bool) -> None:
        """After the request was decided: what is said of it. `ahead` was to be paid from the same counter before."""
        if self.over:
            self.remaining = 0
            # After a late cost, or a look, there is a way on as soon as there is room for 1.
            cost = 1 if self.late or self.look else self.cost
            self.reset_ms = self.counter.retry_ms(now_ms, cost + (ahead if denied else 0))
        elif not self.limit.unlimited:
            self.remaining = self.counter.remaining(now_ms, 0) if denied else self.remaining
            self.reset_ms = self.counter.reset_ms(now_ms)

    def status(self) -> _Status:
        limit = self.limit
        status = _Status(code=RateLimitResponse.OVER_LIMIT if self.denies else RateLimitResponse.OK)
        status.limit_remaining = self.remaining
        if limit.unlimited:
            return status
        # A window of several units has none of the wire's.
        unit = limit.unit.upper() if limit.unit_multiplier == 1 else "UNKNOWN"
        status.current_limit.requests_per_unit = limit.requests_per_unit
        status.current_limit.unit = getattr(RateLimitResponse.RateLimit, unit)
        status.current_limit.name = limit.name
        status.duration_until_reset.FromMilliseconds(self.reset_ms)
        return status


def _without_replaced(charges: Sequence[list[_Charge]]) -> list[list[_Charge]]:
    replaced = {name for group in charges for charge in group for name in charge.limit.replaces}
    return [[charge for charge in group if charge.limit.name not in replaced] for group in charges]


def _tightest(charges: Sequence[_Charge]) -> _Status:
    """Return the status of a descriptor: of its limits, that of the one that is over longest, or has least left."""
    limited = [charge for charge in charges if not charge.limit.unlimited] or charges
    return min(limited, key=lambda charge: (not charge.denies, charge.remaining, -charge.reset_ms)).status()


def _decide(charges: Sequence[_Charge], now_ms: int) -> bool:
    """All or nothing: every one that is enforced admits, or none is charged. True when denied."""
    for charge in charges:
        charge.take(now_ms)
    if not any(charge.over for charge in charges):
        return False
    denied = any(charge.denies for charge in charges)
    if denied:
        for charge in charges:
            charge.release()
    ahead: dict[Counter, int] = {}
    for charge in charges:
        charge.settle(now_ms, ahead.get(charge.counter, 0), denied=denied)
        ahead[charge.counter] = ahead.get(charge.counter, 0) + charge.shared
    return denied


class FakeHeadgate(InProcessHeadgate):
    """A `Headgate` of a FakeServer, on its clock."""

    def __init__(self, server: FakeServer, domain: str, **options: Any) -> None:
        super().__init__(server, _ADDRESS, domain, clock=server.clock, **options)
        self.server = server


class FakeAsyncHeadgate(InProcessAsyncHeadgate):
    """An `AsyncHeadgate` of a FakeServer, on its clock."""

    def __init__(self, server: FakeServer, domain: str, **options: Any) -> None:
        super().__init__(server, _ADDRESS, domain, clock=server.clock, **options)
        self.server = server
