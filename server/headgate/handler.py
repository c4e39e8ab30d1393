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
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from headgate.errors import RequestError
from headgate.limiter.decision import Charge, Decision, DecisionPath
from headgate.limiter.limit import Limit
from headgate.rules.keys import override_key
from headgate.rules.model import Rules
from headgate.wire import ratelimit as wire

MAX_CACHED_REQUEST_BYTES: Final = 1024
"""Larger requests are planned each time. Ordinary ones are under 200 bytes; with the number of
entries this bounds the cache's memory, whatever callers send."""

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


@dataclass(slots=True)
class HandlerStats:
    """Counts of decisions and of what came before them, kept as plain numbers that `/metrics` reads."""

    admitted: dict[DecisionPath, int] = field(default_factory=lambda: dict.fromkeys(DecisionPath, 0))
    denied: dict[DecisionPath, int] = field(default_factory=lambda: dict.fromkeys(DecisionPath, 0))
    planned: int = 0
    """Requests that were parsed and matched; all others were answered from a kept plan."""
    plans_evicted: int = 0
    refused: int = 0
    """Bad requests: answered with an error instead of a decision."""


class Decider(Protocol):
    """The engine behind the handler: of a node on its own, or of a node of a region. Decides at once where it can."""

    def decide(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]": ...


class Plan:
    """One request, parsed and matched. Where no rule applies there are no charges, and the answer is ready."""

    __slots__ = ("answer", "charges", "fixed", "heads", "path", "trailer")

    def __init__(self, descriptors: list["Planned"], trailer: bytes) -> None:
        self.charges = tuple([d.charge for d in descriptors if d.charge is not None])
        self.heads = tuple([wire.status_head(charge.limit) for charge in self.charges])
        self.fixed = tuple([d.status for d in descriptors]) if len(self.charges) < len(descriptors) else None
        self.path = DecisionPath.UNLIMITED if any(d.unlimited for d in descriptors) else DecisionPath.NO_RULE
        self.trailer = trailer
        self.answer = b"" if self.charges else b"".join([wire.CODE_OK, *(d.status for d in descriptors), trailer])


@dataclass(frozen=True, slots=True)
class Planned:
    """One descriptor of a plan: the charge that the engine decides, or the status that it gets without one."""

    charge: Charge | None = None
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
    ) -> None:
        self.stats = HandlerStats()
        self._rules = rules
        self._engine = engine
        self._random = random
        self._settings = settings
        self._denied_trailer = wire.encode_raw_body(settings.denied_body.encode())
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._plans_rules: Rules | None = None

    def __call__(self, payload: bytes) -> "bytes | asyncio.Future[bytes]":
        rules = self._rules()
        if rules is not self._plans_rules:
            self._plans = OrderedDict()
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
            return  # the caller went away; what was decided is counted all the same
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
        statuses = [
            wire.encode_status(head.over if over and not charge.shadow else head.ok, remaining, reset_ms)
            for head, charge, (over, remaining, reset_ms) in zip(plan.heads, plan.charges, verdicts, strict=True)
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

    def _keep(self, payload: bytes, plan: Plan) -> Plan:
        if len(payload) <= MAX_CACHED_REQUEST_BYTES:
            # First in, first out: a hot request is planned again once per turn of the cache,
            # which costs less than remembering at every hit that it was used.
            if len(self._plans) >= self._settings.match_cache_entries:
                self._plans.popitem(last=False)
                self.stats.plans_evicted += 1
            self._plans[payload] = plan
        return plan

    def _plan(self, payload: bytes, rules: Rules) -> Plan:
        self.stats.planned += 1
        try:
            request = wire.parse_request(payload)
        except RequestError:
            self.stats.refused += 1
            raise
        known_domain = rules.has_domain(request.domain)
        matched: list[Matched | None] = []
        for descriptor in request.descriptors:
            domain, entries, override = request.domain, descriptor.entries, descriptor.override
            shard_key = rules.shard_key(domain, entries)
            if override is not None and known_domain:
                key = override_key(domain, entries, override.window_ms)
                matched.append(Matched(override, key, descriptor.cost, shard_key))
            elif (match := rules.match(domain, entries)) is not None:
                matched.append(Matched(match.limit, match.key, descriptor.cost, shard_key))
            else:
                matched.append(None)
        in_force = _without_replaced(matched)
        trailer = b""
        if self._settings.dynamic_metadata and (metadata := _merged_metadata(in_force)):
            trailer = wire.encode_dynamic_metadata(metadata)
        return Plan([self._planned(part) for part in in_force], trailer)

    def _planned(self, matched: Matched | None) -> Planned:
        if matched is None:
            return Planned()
        limit, key, cost, shard_key = matched
        if limit.unlimited:
            return Planned(status=wire.STATUS_UNLIMITED, unlimited=True)
        shadow = self._settings.shadow_mode
        return Planned(charge=Charge(key, limit, cost, shadow=shadow, shard_key=shard_key), status=b"")


def _without_replaced(matched: list[Matched | None]) -> list[Matched | None]:
    """Leave out what another matched rule of the same request replaces."""
    replaced = {name for part in matched if part is not None for name in part.limit.replaces}
    if not replaced:
        return matched
    return [part if part is not None and part.limit.name not in replaced else None for part in matched]


def _merged_metadata(matched: list[Matched | None]) -> dict[str, Any]:
    """The metadata of all rules in force; where two name one key, the earlier descriptor's stays."""
    merged: dict[str, Any] = {}
    for part in reversed(matched):
        if part is not None and part.limit.metadata:
            merged.update(part.limit.metadata)
    return merged


def _ceil_seconds(ms: float) -> int:
    return int(-(-ms // 1000))
