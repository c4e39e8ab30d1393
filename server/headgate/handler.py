"""What happens to one request: bytes, plan, decision, bytes.

A plan is all that can be known of a request before it is decided: which rules it
meets, on which counters, at what cost, and the parts of its answer that never
change. Plans are kept by the request's raw bytes, so a request that has been seen
under these rules is neither parsed nor matched again. The cache is bounded, and
belongs to one rule set: another one starts it afresh, so no request sees a mixture.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from headgate.errors import BadRequest, RequestError
from headgate.limiter.decision import Charge, Decision, DecisionPath, Verdict
from headgate.limiter.limit import Limit
from headgate.limiter.scopes import LimitsOfRegion
from headgate.rules.keys import override_key
from headgate.rules.model import Rules
from headgate.rules.request_limits import RequestLimits, is_smaller, lowered
from headgate.wire import ratelimit as wire

MAX_CACHED_REQUEST_BYTES: Final = 1024
"""Larger requests are planned each time. Ordinary ones are under 200 bytes; with the number of
entries this bounds the cache's memory, whatever callers send."""

PLAN_BYTES: Final = 400
CHARGE_BYTES: Final = 300
"""What the objects of a plan, and of each of its charges, take beside the bytes in them: rounded up."""

RETRY_JITTER: Final = 0.2
"""`Retry-After` is stretched by up to this share, so that clients denied together come back apart."""


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """The settings that shape answers: headers, the body of a denial, shadow mode, and the size of the cache."""

    response_headers: bool = False
    header_limit: str = "RateLimit-Limit"
    header_remaining: str = "RateLimit-Remaining"
    header_reset: str = "RateLimit-Reset"
    header_retry_after: str = "Retry-After"
    denied_body: str = ""
    shadow_mode: bool = False
    dynamic_metadata: bool = False
    match_cache_entries: int = 16_384
    match_cache_bytes: int = 32 * 1024 * 1024
    bounds: wire.RequestBounds = field(default_factory=wire.RequestBounds)
    request_limits: RequestLimits = RequestLimits.ALLOW
    """For domains that don't say it themselves."""


@dataclass(slots=True)
class HandlerStats:
    """Counts of decisions and of what came before them, kept as plain numbers that `/metrics` reads."""

    admitted: dict[DecisionPath, int] = field(default_factory=lambda: dict.fromkeys(DecisionPath, 0))
    denied: dict[DecisionPath, int] = field(default_factory=lambda: dict.fromkeys(DecisionPath, 0))
    planned: int = 0
    """Requests that were parsed and matched; all others were answered from a kept plan."""
    plans_evicted: int = 0
    plan_bytes: int = 0
    """What the kept plans take, by estimate."""
    refused: int = 0
    """Bad requests: answered with an error instead of a decision."""


class Decider(Protocol):
    """The engine behind the handler: of a node on its own, or of a node of a region. Decides at once where it can."""

    def decide(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]": ...


class Plan:
    """One request, parsed and matched. Where no rule applies there are no charges, and the answer is ready."""

    __slots__ = ("answer", "charges", "fixed", "heads", "pairs", "path", "trailer")

    def __init__(self, descriptors: list["Planned"], trailer: bytes) -> None:
        self.charges = tuple([charge for d in descriptors for charge in d.charges])
        self.heads = tuple([wire.status_head(charge.limit) for charge in self.charges])
        self.fixed = tuple([d.status for d in descriptors]) if not all(d.charges for d in descriptors) else None
        self.pairs = _pairs(descriptors)
        """Where two charges, this one and the next, are of one descriptor: a rule's and a request's limit."""
        self.path = DecisionPath.UNLIMITED if any(d.unlimited for d in descriptors) else DecisionPath.NO_RULE
        self.trailer = trailer
        self.answer = b"" if self.charges else b"".join([wire.CODE_OK, *(d.status for d in descriptors), trailer])


@dataclass(frozen=True, slots=True)
class Planned:
    """One descriptor of a plan: its charges, or the status that it gets without any."""

    charges: tuple[Charge, ...] = ()
    status: bytes = wire.STATUS_WITHOUT_LIMIT
    unlimited: bool = False


class Matched(NamedTuple):
    """The limit that applies to one descriptor of a request, the key of its counter, and what the request costs."""

    limit: Limit
    key: bytes
    cost: int
    shard_key: bytes | None


class RateLimitHandler:
    """Answers a serialized RateLimitRequest with a serialized RateLimitResponse. Raises RequestError."""

    def __init__(
        self,
        *,
        rules: Callable[[], Rules],
        engine: Decider,
        random: random.Random,
        settings: AnswerSettings,
        limits: LimitsOfRegion | None = None,
    ) -> None:
        self.stats = HandlerStats()
        self._limits = limits or LimitsOfRegion()
        self._limits.on_change = self._forget_plans
        self._rules = rules
        self._engine = engine
        self._random = random
        self._settings = settings
        self._denied_trailer = wire.encode_raw_body(settings.denied_body.encode())
        self._plans_rules: Rules | None = None
        self._forget_plans()

    def __call__(self, payload: bytes) -> "bytes | asyncio.Future[bytes]":
        rules = self._rules()
        if rules is not self._plans_rules:
            self._forget_plans()
            self._plans_rules = rules
        plan = self._plans.get(payload)
        if plan is None:
            plan = self._keep(payload, self._plan(payload, rules))
        if not plan.charges:
            self.stats.admitted[plan.path] += 1
            return plan.answer
        decision = self._engine.decide(plan.charges)
        if isinstance(decision, Decision):
            return self._answer(plan, decision)
        answer: asyncio.Future[bytes] = decision.get_loop().create_future()
        decision.add_done_callback(partial(self._answer_later, plan, answer))
        return answer

    def _answer_later(self, plan: Plan, answer: "asyncio.Future[bytes]", decision: "asyncio.Future[Decision]") -> None:
        if answer.done():
            return  # the caller went away; what was charged stays charged
        error = decision.exception()
        if error is None:
            answer.set_result(self._answer(plan, decision.result()))
        else:
            answer.set_exception(error)

    def _answer(self, plan: Plan, decision: Decision) -> bytes:
        admitted, path, verdicts = decision
        if admitted:
            self.stats.admitted[path] += 1
            parts = [wire.CODE_OK]
        else:
            self.stats.denied[path] += 1
            parts = [wire.CODE_OVER_LIMIT]
        shown: Iterable[_Outcome] = zip(plan.heads, plan.charges, verdicts, strict=True)
        if plan.pairs:
            shown = _one_per_descriptor(plan.pairs, list(shown))
        statuses = [
            wire.encode_status(head.over if over and not charge.shadow else head.ok, remaining, reset_ms)
            for head, charge, (over, remaining, reset_ms) in shown
        ]
        if plan.fixed is None:
            parts += statuses
        else:
            charged = iter(statuses)
            parts += [status or next(charged) for status in plan.fixed]
        if self._settings.response_headers:
            parts.append(wire.encode_headers(self._headers(plan, decision)))
        if not admitted:
            parts.append(self._denied_trailer)
        parts.append(plan.trailer)
        return b"".join(parts)

    def _headers(self, plan: Plan, decision: Decision) -> list[tuple[str, str]]:
        """Headers of the descriptor that matters most: the longest denial, or the least left."""
        settings = self._settings
        candidates = list(zip(plan.charges, decision.verdicts, strict=True))
        if decision.admitted:
            charge, (_, remaining, reset_ms) = min(candidates, key=lambda pair: pair[1][1])
        else:
            denials = [pair for pair in candidates if pair[1][0] and not pair[0].shadow]
            charge, (_, remaining, reset_ms) = max(denials, key=lambda pair: pair[1][2])
        headers = [
            (settings.header_limit, str(charge.limit.requests_per_unit)),
            (settings.header_remaining, str(remaining)),
            (settings.header_reset, str(_ceil_seconds(reset_ms))),
        ]
        if not decision.admitted:
            stretched_ms = reset_ms * (1 + self._random.random() * RETRY_JITTER)
            headers.append((settings.header_retry_after, str(max(1, _ceil_seconds(stretched_ms)))))
        return headers

    def _forget_plans(self) -> None:
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._seen_once: OrderedDict[int, None] = OrderedDict()
        self.stats.plan_bytes = 0

    def _keep(self, payload: bytes, plan: Plan) -> Plan:
        """On second sight: what comes once, as a flood of new values does, is not worth its memory."""
        if len(payload) > MAX_CACHED_REQUEST_BYTES:
            return plan
        seen, name = self._seen_once, hash(payload)
        if name not in seen:
            if len(seen) >= self._settings.match_cache_entries:
                seen.popitem(last=False)
            seen[name] = None
            return plan
        del seen[name]
        self._plans[payload] = plan
        self.stats.plan_bytes += _plan_bytes(payload, plan)
        # First in, first out: a hot request is planned again once per turn of the cache,
        # which costs less than remembering at every hit that it was used.
        settings, stats = self._settings, self.stats
        while len(self._plans) > settings.match_cache_entries or stats.plan_bytes > settings.match_cache_bytes:
            stats.plan_bytes -= _plan_bytes(*self._plans.popitem(last=False))
            stats.plans_evicted += 1
        return plan

    def _plan(self, payload: bytes, rules: Rules) -> Plan:
        self.stats.planned += 1
        try:
            request = wire.parse_request(payload, self._settings.bounds)
            limits = rules.request_limits(request.domain) or self._settings.request_limits
            if limits is RequestLimits.REFUSE:
                _refuse_limits(request)
        except RequestError:
            self.stats.refused += 1
            raise
        in_force = _without_replaced([_match(rules, request.domain, d, limits) for d in request.descriptors])
        trailer = b""
        if self._settings.dynamic_metadata and (metadata := _merged_metadata(in_force)):
            trailer = wire.encode_dynamic_metadata(metadata)
        return Plan([self._planned(parts) for parts in in_force], trailer)

    def _planned(self, parts: "_Parts") -> Planned:
        if not parts:
            return Planned()
        shadow = self._settings.shadow_mode
        charges = tuple(
            [
                Charge(part.key, self._limits.bind(part.limit), part.cost, shadow=shadow, shard_key=part.shard_key)
                for part in parts
                if not part.limit.unlimited
            ]
        )
        return Planned(charges, b"") if charges else Planned(status=wire.STATUS_UNLIMITED, unlimited=True)


_Parts = tuple[Matched, ...]
"""What one descriptor met: nothing, one limit, or a rule's and then the request's own."""

_Outcome = tuple[wire.StatusHead, Charge, Verdict]


def _refuse_limits(request: wire.Request) -> None:
    for index, descriptor in enumerate(request.descriptors):
        if descriptor.override is not None:
            raise BadRequest(
                f"descriptors[{index}].limit: limits in requests are refused here (request_limits: refuse)"
            )


def _match(rules: Rules, domain: str, descriptor: wire.Descriptor, limits: RequestLimits) -> _Parts:
    entries, cost = descriptor.entries, descriptor.cost
    shard_key = rules.shard_key(domain, entries)

    def by_itself(limit: Limit) -> Matched:
        return Matched(limit, override_key(domain, entries, limit.window_ms), cost, shard_key)

    asked = descriptor.override if rules.has_domain(domain) else None
    if asked is not None and limits is RequestLimits.ALLOW:
        return (by_itself(asked),)
    match = rules.match(domain, entries)
    if match is None:
        return () if asked is None else (by_itself(asked),)
    rule = Matched(match.limit, match.key, cost, shard_key)
    if asked is None or not is_smaller(asked, match.limit):
        return (rule,)
    return rule, by_itself(lowered(asked, match.limit))


def _pairs(descriptors: list[Planned]) -> tuple[int, ...]:
    """Positions of charges, the last first."""
    found, position = [], 0
    for descriptor in descriptors:
        if len(descriptor.charges) > 1:
            found.append(position)
        position += len(descriptor.charges)
    return tuple(reversed(found))


def _one_per_descriptor(pairs: tuple[int, ...], outcomes: list[_Outcome]) -> list[_Outcome]:
    """Of each pair the one that the caller meets first: the longer denial, or the least left."""
    for position in pairs:
        outcomes[position : position + 2] = [min(outcomes[position : position + 2], key=_room)]
    return outcomes


def _room(outcome: _Outcome) -> tuple[bool, int, int]:
    _, charge, (over, remaining, reset_ms) = outcome
    return not over or charge.shadow, remaining, -reset_ms


def _without_replaced(matched: list[_Parts]) -> list[_Parts]:
    """Leave out what another matched rule of the same request replaces."""
    replaced = {name for parts in matched for part in parts for name in part.limit.replaces}
    if not replaced:
        return matched
    return [tuple([part for part in parts if part.limit.name not in replaced]) for parts in matched]


def _merged_metadata(matched: list[_Parts]) -> dict[str, Any]:
    """The metadata of all rules in force; where two name one key, the earlier descriptor's stays."""
    merged: dict[str, Any] = {}
    for parts in reversed(matched):
        for part in parts:
            if part.limit.metadata:
                merged.update(part.limit.metadata)
    return merged


def _plan_bytes(payload: bytes, plan: Plan) -> int:
    """What a kept plan takes: its own objects by a round figure, the bytes in it as they are."""
    keys = sum(len(charge.key) + len(charge.shard_key) for charge in plan.charges)
    return PLAN_BYTES + len(payload) + keys + CHARGE_BYTES * len(plan.charges) + len(plan.trailer) + len(plan.answer)


def _ceil_seconds(ms: float) -> int:
    return int(-(-ms // 1000))
