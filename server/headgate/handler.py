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
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from headgate.errors import BadRequest, RequestError
from headgate.limiter.decision import Charge, Decision, DecisionPath, Entries, Verdict
from headgate.limiter.limit import Limit
from headgate.limiter.overrides import Overrides
from headgate.limiter.rule_name import RuleName, request_rule, rule_id
from headgate.limiter.scopes import LimitsOfRegion, charges_of
from headgate.plan import MAX_OVER_LIMIT, Decider, Met, Plan, Planned, Shape, Shapes
from headgate.rules.keys import override_key
from headgate.rules.model import Rules, Version
from headgate.rules.request_limits import RequestLimits, is_smaller, lowered
from headgate.telemetry.tallies import NO_RULE, Tallies, Tally
from headgate.transport.interface import OnAnswer, Undecided
from headgate.wire import ratelimit as wire

MAX_CACHED_REQUEST_BYTES: Final = 1024
"""Larger requests are planned each time. Ordinary ones are under 200 bytes; with the number of
entries this bounds the cache's memory, whatever callers send."""

REASON: Final = "headgate"
"""The key of an answer's dynamic metadata under which the reason stands."""

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
    reason_header: str = ""
    """The header that says why; empty: none."""
    reason_metadata: bool = False
    """Whether dynamic metadata says why."""
    match_cache_entries: int = 16_384
    match_cache_bytes: int = 32 * 1024 * 1024
    bounds: wire.RequestBounds = field(default_factory=wire.RequestBounds)
    request_limits: RequestLimits = RequestLimits.ALLOW
    """For domains that don't say it themselves."""
    near_limit_ratio: float = 0.8
    """From which share of a limit on an admission is counted as near it."""


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


class Recorder(Protocol):
    """Who is told of every decision: the decision log. It gives the decision its id."""

    def __call__(self, plan: "Plan", decision: Decision) -> int:
        """A decision, whatever it is; its id."""
        ...


class Matched(NamedTuple):
    """The limit that applies to one descriptor of a request, the key of its counter, and what the request costs."""

    limit: Limit
    key: bytes
    cost: int
    shard_key: bytes | None
    rule: RuleName
    entries: Entries
    value: str | None = None
    """What its metrics tell apart, for rules that ask for it."""
    refund: bool = False
    """The cost is given back."""


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
        overrides: Overrides | None = None,
        record: Recorder | None = None,
        on_unknown_domain: Callable[[str], None] = lambda domain: None,
    ) -> None:
        """`on_unknown_domain` is told of each once, of a bounded number of them."""
        self.stats = HandlerStats()
        self.tallies = Tallies()
        self._over_limit: list[Charge] = []
        self._on_unknown_domain = on_unknown_domain
        self._limits = limits or LimitsOfRegion()
        self._limits.on_change = self._forget_plans
        self._overrides = Overrides() if overrides is None else overrides
        self._overrides.on_change = self._forget_plans_of
        self._rules = rules
        self._engine = engine
        self._says_why = bool(settings.reason_header) or settings.reason_metadata
        self._record = record
        """None: nobody keeps a log."""
        self._random = random
        self._settings = settings
        self._denied_trailer = wire.encode_raw_body(settings.denied_body.encode())
        self._plans_rules: Rules | None = None
        self._overridden = len(self._overrides) > 0
        """Whether any limit is not what its rule says."""
        self._forget_plans()

    def __call__(self, payload: bytes) -> "bytes | asyncio.Future[bytes]":
        answer = self.at_once(payload)
        return answer if isinstance(answer, bytes) else self._in_future(answer)

    def at_once(self, payload: bytes) -> bytes | Plan:
        """The answer, if what is kept with the request and its keys gives it; else the plan, for `resume`."""
        rules = self._rules()
        if rules is not self._plans_rules:
            self._forget_plans()
            self.tallies.rules_changed()
            self._plans_rules = rules
        plan = self._plans.get(payload)
        if plan is None:
            plan = self._keep(payload, self._plan(payload, rules))
        shape = plan.shape
        quick = shape.quick
        if quick == 1:
            verdict = self._engine.quick(plan.charges[0])
            if verdict is not None:
                path = DecisionPath.DENY_CACHE if verdict[0] else DecisionPath.LOCAL
                if self._record is not None:
                    self._record(plan, Decision(not verdict[0], path, [verdict]))
                return self._answer_one(plan, shape, path, verdict)
        elif quick:
            verdicts = self._engine.quick_all(plan.charges)
            if verdicts is not None:
                return self._answer(plan, Decision(True, DecisionPath.LOCAL, verdicts))
        elif not plan.charges:
            self.stats.admitted[shape.path] += 1
            for tally in shape.others:
                tally.within[shape.path] += 1
            return shape.answer
        return plan

    def resume(self, plan: Undecided, then: OnAnswer) -> bytes | None:
        """Decide what `at_once` did not. None: somebody is asked, and `then` is called with what comes of it."""
        assert isinstance(plan, Plan)  # noqa: S101 - it is what at_once gave
        decision = plan.shape.ask(plan.charges, partial(self._answer_later, plan, then))
        return None if decision is None else self._answer(plan, decision)

    def _answer_later(self, plan: Plan, then: OnAnswer, decision: Decision) -> None:
        try:
            if plan.shape.quick == 1:
                _, path, (verdict,) = decision
                if self._record is not None:
                    self._record(plan, decision)
                answer = self._answer_one(plan, plan.shape, path, verdict, wire.encode_status_again)
            else:
                answer = self._answer(plan, decision)
        except Exception as error:
            then(error)
        else:
            then(answer)

    def _in_future(self, plan: Plan) -> "bytes | asyncio.Future[bytes]":
        """`resume` for who would rather have a future."""
        awaited = _Awaited(self._answer_later, plan)
        decision = plan.shape.ask(plan.charges, awaited.decided)
        return awaited.future() if decision is None else self._answer(plan, decision)

    # Costs that are known later, in two steps

    def reserve(self, payload: bytes) -> "bytes | asyncio.Future[bytes]":
        """Decide an estimate: charged if it fits, also under a limit with overdraft."""
        plan = self._plan(payload, self._rules(), late=False)
        return self._in_future(plan) if plan.charges else plan.shape.answer

    def charge_late(self, payload: bytes) -> None:
        """Charge what something came to beyond its estimate, whether it fits or not."""
        plan = self._plan(payload, self._rules(), late=True)
        if plan.charges:
            self.resume(plan, _told_nobody)

    def give_back(self, payload: bytes) -> None:
        """Undo what something did not come to of its estimate."""
        self._engine.give_back(self._plan(payload, self._rules(), late=False).charges)

    def _answer_one(
        self,
        plan: Plan,
        shape: Shape,
        path: DecisionPath,
        verdict: Verdict,
        encode_status: Callable[[bytes, int, int], bytes] = wire.encode_status,
    ) -> bytes:
        """`_answer` for the usual request: one charge, and nothing unusual about it. Who calls it has recorded it.

        What is counted of a decision is counted in these three, and nowhere else.
        """
        over, remaining, reset_ms = verdict
        tally = shape.tally
        if over:
            self.stats.denied[path] += 1
            if tally is None:
                shape.count(Decision(False, path, [verdict]), self._over_limit, plan.charges)
            else:
                tally.over[path] += 1
                if len(self._over_limit) < MAX_OVER_LIMIT:
                    self._over_limit.append(plan.charges[0])
            return wire.CODE_OVER_LIMIT + encode_status(shape.heads[0].over, 0, reset_ms) + shape.denied
        self.stats.admitted[path] += 1
        if tally is None:
            shape.count(Decision(True, path, [verdict]), self._over_limit, plan.charges)
        else:
            tally.within[path] += 1
            if remaining < shape.near_first:
                tally.near += 1
        return wire.CODE_OK + encode_status(shape.heads[0].ok, remaining, reset_ms) + shape.trailer

    def _answer_all(self, plan: Plan, shape: Shape, decision: Decision) -> bytes:
        """`_answer` for a request with several charges, all of them admitted, and nothing unusual about them."""
        self.stats.admitted[decision.path] += 1
        shape.count(decision, self._over_limit, plan.charges)
        return wire.CODE_OK + wire.encode_statuses(shape.heads, decision.verdicts) + shape.trailer

    def _answer(self, plan: Plan, decision: Decision) -> bytes:
        admitted, path, verdicts = decision
        shape = plan.shape
        number = 0 if self._record is None else self._record(plan, decision)
        if shape.quick == 1:
            return self._answer_one(plan, shape, path, verdicts[0])
        if shape.quick and admitted:
            return self._answer_all(plan, shape, decision)
        if admitted:
            self.stats.admitted[path] += 1
            tally = shape.tally
            if tally is None:
                shape.count(decision, self._over_limit, plan.charges)
            else:
                tally.within[path] += 1
                if verdicts[0][1] < shape.near_first:
                    tally.near += 1
            parts = [wire.CODE_OK]
        else:
            self.stats.denied[path] += 1
            shape.count(decision, self._over_limit, plan.charges)
            parts = [wire.CODE_OVER_LIMIT]
        shown: Iterable[_Outcome] = zip(shape.heads, plan.charges, verdicts, strict=True)
        if shape.pairs:
            shown = _one_per_descriptor(shape.pairs, list(shown))
        statuses = [
            wire.encode_status(head.over if over and not charge.shadow else head.ok, remaining, reset_ms)
            for head, charge, (over, remaining, reset_ms) in shown
        ]
        if shape.fixed is None:
            parts += statuses
        else:
            charged = iter(statuses)
            parts += [status or next(charged) for status in shape.fixed]
        if self._settings.response_headers:
            parts.append(wire.encode_headers(self._headers(plan, decision)))
        if admitted:
            parts.append(shape.trailer)
        else:
            parts.append(shape.denied)
        if self._says_why:
            parts.append(self._reason(plan, decision, number))
        return b"".join(parts)

    def _reason(self, plan: Plan, decision: Decision, number: int) -> bytes:
        """Rule, version, path and id, for whoever reads Envoy's access log or the answer's headers."""
        charge, _ = _deciding(plan, decision)
        reason = reason_of(charge, plan.version, decision.path, number)
        parts = b""
        if self._settings.reason_header:
            told = " ".join([f"{name}={value}" for name, value in reason.items()])
            parts += wire.encode_headers([(self._settings.reason_header, told)])
        if self._settings.reason_metadata:
            parts += wire.encode_dynamic_metadata({REASON: reason})
        return parts

    def _headers(self, plan: Plan, decision: Decision) -> list[tuple[str, str]]:
        """Headers of the descriptor that matters most: the longest denial, or the least left."""
        settings = self._settings
        charge, (_, remaining, reset_ms) = _deciding(plan, decision)
        headers = [
            (settings.header_limit, str(charge.limit.requests_per_unit)),
            (settings.header_remaining, str(remaining)),
            (settings.header_reset, str(_ceil_seconds(reset_ms))),
        ]
        if not decision.admitted:
            stretched_ms = reset_ms * (1 + self._random.random() * RETRY_JITTER)
            headers.append((settings.header_retry_after, str(max(1, _ceil_seconds(stretched_ms)))))
        return headers

    def take_over_limit(self) -> list[Charge]:
        """What was over its limit since this was last asked; not all of it, if it is too much."""
        taken, self._over_limit = self._over_limit, []
        return taken

    def _forget_plans(self) -> None:
        self._shapes = Shapes()
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._seen_once: set[int] = set()
        self._seen_before: set[int] = set()
        self.stats.plan_bytes = 0

    def _forget_plans_of(self, keys: Collection[bytes]) -> None:
        """Limits of these keys are no longer what they were; all other plans stay."""
        self._overridden = len(self._overrides) > 0
        gone = [payload for payload, plan in self._plans.items() if any(charge.key in keys for charge in plan.charges)]
        for payload in gone:
            self.stats.plan_bytes -= self._plans.pop(payload).size

    def _keep(self, payload: bytes, plan: Plan) -> Plan:
        """On second sight: what comes once, as a flood of new values does, is not worth its memory."""
        if len(payload) > MAX_CACHED_REQUEST_BYTES:
            return plan
        seen, name = self._seen_once, hash(payload)
        if name not in seen and name not in self._seen_before:
            # Two halves, of which the older one is forgotten as a whole.
            if len(seen) >= self._settings.match_cache_entries // 2:
                self._seen_before, self._seen_once = seen, set()
            seen.add(name)
            return plan
        self._plans[payload] = plan
        self.stats.plan_bytes += plan.size
        # First in, first out: a hot request is planned again once per turn of the cache,
        # which costs less than remembering at every hit that it was used.
        settings, stats = self._settings, self.stats
        while len(self._plans) > settings.match_cache_entries or stats.plan_bytes > settings.match_cache_bytes:
            stats.plan_bytes -= self._plans.popitem(last=False)[1].size
            stats.plans_evicted += 1
        return plan

    def _plan(self, payload: bytes, rules: Rules, late: bool | None = None) -> Plan:
        """`late` says of all its costs whether they are charged in any case; None: as their limits say."""
        self.stats.planned += 1
        bounds = self._settings.bounds
        scanned: wire.Scanned | None = None
        if not self._overridden and late is None:
            plan = self._shapes.alike(payload)
            if plan is not None:
                return plan
            scanned = wire.scan(payload, bounds)
            if scanned is not None and (plan := self._shapes.routed(rules, scanned, payload)) is not None:
                return plan
        try:
            request = wire.parse_request(payload, bounds) if scanned is None else wire.request_of(scanned)
            limits = rules.request_limits(request.domain) or self._settings.request_limits
            if limits is RequestLimits.REFUSE:
                _refuse_limits(request)
        except RequestError:
            self.stats.refused += 1
            raise
        met = None if late is not None else self._met(rules, request)
        if met is not None and (plan := self._shapes.plan(request.domain, *met[:2], len(payload))) is not None:
            return plan
        overflowed, overrides = self.tallies.overflowed, self._overrides
        matched = [_match(rules, request.domain, d, limits, overrides) for d in request.descriptors]
        in_force = _without_replaced(matched)
        trailer = b""
        if self._settings.dynamic_metadata and (metadata := _merged_metadata(in_force)):
            trailer = wire.encode_dynamic_metadata(metadata)
        domain = request.domain
        if not rules.has_domain(domain):
            planned, trailer = self._unknown(domain, len(request.descriptors)), b""
        else:
            planned = [self._planned(domain, index, parts, late) for index, parts in enumerate(in_force)]
        charges = charges_of(charge for d in planned for charge in d.charges)
        shape = Shape(
            planned,
            charges,
            trailer,
            self._denied_trailer,
            self._engine,
            self._settings.near_limit_ratio,
            rules.version,
            usual=not (self._settings.response_headers or self._says_why),
        )
        if met is not None and shape.templates and in_force is matched and self.tallies.overflowed == overflowed:
            self._shapes.keep(domain, met[0], shape, met[2])
            if scanned is not None:
                self._shapes.keep_routed(rules, scanned, shape)
        return Plan(shape, charges, len(payload))

    def _met(
        self, rules: Rules, request: wire.Request
    ) -> tuple[tuple[Met, ...], list[tuple[bytes, bytes, Entries]], tuple[Limit, ...]] | None:
        """What the request met: per descriptor a rule's limit, with its key and place; None: not only that."""
        domain, met, keys, limits = request.domain, [], [], []
        for entries, cost, asked, refund in request.descriptors:
            match = rules.match(domain, entries) if asked is None and not refund else None
            if match is None or match.limit.detailed_metric or match.limit.value_to_metric:
                return None
            limit = self._overrides.limit_of(match.key, match.limit)
            met.append((id(limit), cost, match.steps))
            keys.append((match.key, rules.shard_key(domain, entries) or match.key, entries))
            limits.append(limit)
        return tuple(met), keys, tuple(limits)

    def _unknown(self, domain: str, descriptors: int) -> list[Planned]:
        """A request for a domain that no file names: it passes, and is counted once."""
        tally, first = self.tallies.of_unknown_domain(domain)
        if first:
            self._on_unknown_domain(tally.name.domain)
        return [Planned(tallies=(tally,)), *[Planned()] * (descriptors - 1)]

    def _planned(self, domain: str, index: int, parts: "_Parts", late: bool | None) -> Planned:
        if not parts:
            return Planned(tallies=(self.tallies.of_rule(domain, NO_RULE, NO_RULE),))
        if parts[0].refund:
            self._check_refunds(index, parts)
        shadow = self._settings.shadow_mode
        charges = tuple(
            [
                Charge(
                    part.key,
                    self._limits.bind(part.limit),
                    part.cost,
                    shadow=shadow,
                    shard_key=part.shard_key,
                    late=late,
                    refund=part.refund,
                    rule=part.rule,
                    entries=part.entries,
                )
                for part in parts
                if not part.limit.unlimited
            ]
        )
        if not charges:
            return Planned(status=wire.STATUS_UNLIMITED, unlimited=True, tallies=(self._tally(parts[0]),))
        return Planned(charges, b"", tallies=tuple([self._tally(part) for part in parts if not part.limit.unlimited]))

    def _check_refunds(self, index: int, parts: "_Parts") -> None:
        """Only what a rule lets be given back is: for all others a negative hit is a mistake, and told so."""
        for part in parts:
            if not part.limit.unlimited and not self._limits.bind(part.limit).refund:
                self.stats.refused += 1
                raise BadRequest(
                    f"descriptors[{index}].is_negative_hits: hits are given back on rules with `refund: true` only; "
                    f"{part.rule.text} has none"
                )

    def _tally(self, part: "Matched") -> Tally:
        rule = part.rule
        if part.value is None:
            return self.tallies.of_rule(rule.domain, rule.id, rule.text)
        return self.tallies.of_value(rule.domain, rule.id, rule.text, part.value)


def _deciding(plan: Plan, decision: Decision) -> tuple[Charge, Verdict]:
    """The charge that matters most: the longest denial, or the least left."""
    candidates = list(zip(plan.charges, decision.verdicts, strict=True))
    if decision.admitted:
        return min(candidates, key=lambda pair: pair[1][1])
    denials = [pair for pair in candidates if pair[1][0] and not pair[0].shadow]
    return max(denials, key=lambda pair: pair[1][2])


def reason_of(charge: Charge, version: Version, path: DecisionPath, number: int) -> dict[str, str]:
    """Why a request was decided as it was, in the fewest words: none of them has a space in it."""
    reason = {
        "domain": rule_id(charge.rule.domain, ()),
        "rule": charge.rule.id,
        "version": str(version),
        "path": path.value,
    }
    return {**reason, "id": f"{number:016x}"} if number else reason


_Parts = tuple[Matched, ...]
"""What one descriptor met: nothing, one limit, or a rule's and then the request's own."""

_Outcome = tuple[wire.StatusHead, Charge, Verdict]


class _Awaited:
    """Who waits for an answer with a future, which is made only if there is something to wait for.

    No closure: compiled, one would hold itself, and the request with it, until the garbage collector comes.
    """

    __slots__ = ("_future", "_plan", "_run", "_write")

    def __init__(self, write: "Callable[[Plan, OnAnswer, Decision], None]", plan: Plan) -> None:
        self._write = write
        self._plan = plan
        # The answer is written with the caller's context variables, as the callbacks of a future are: its trace is one.
        self._run = copy_context().run
        self._future: asyncio.Future[bytes] | None = None

    def future(self) -> "asyncio.Future[bytes]":
        self._future = future = asyncio.get_running_loop().create_future()
        return future

    def decided(self, decision: Decision) -> None:
        self._run(self._write, self._plan, self._answered, decision)

    def _answered(self, answer: bytes | BaseException) -> None:
        future = self._future
        if future is None or future.done():
            return  # the caller went away; what was charged stays charged
        if isinstance(answer, bytes):
            future.set_result(answer)
        else:
            future.set_exception(answer)


def _told_nobody(_answer: bytes | BaseException) -> None:
    """What has been used is charged, whatever comes of it."""


def _refuse_limits(request: wire.Request) -> None:
    for index, descriptor in enumerate(request.descriptors):
        if descriptor.override is not None:
            raise BadRequest(
                f"descriptors[{index}].limit: limits in requests are refused here (request_limits: refuse)"
            )


def _match(
    rules: Rules, domain: str, descriptor: wire.Descriptor, limits: RequestLimits, overrides: Overrides
) -> _Parts:
    entries, cost = descriptor.entries, descriptor.cost
    shard_key = rules.shard_key(domain, entries)

    asked = descriptor.override if rules.has_domain(domain) else None
    if asked is not None and limits is RequestLimits.ALLOW:
        return (_by_itself(asked, domain, descriptor, shard_key),)
    match = rules.match(domain, entries)
    if match is None:
        return () if asked is None else (_by_itself(asked, domain, descriptor, shard_key),)
    in_force = overrides.limit_of(match.key, match.limit)
    value = _value_shown(match.limit, entries)
    rule = Matched(in_force, match.key, cost, shard_key, match.name, entries, value, descriptor.refund)
    if asked is None or not is_smaller(asked, in_force):
        return (rule,)
    return rule, _by_itself(lowered(asked, in_force), domain, descriptor, shard_key)


def _by_itself(limit: Limit, domain: str, descriptor: wire.Descriptor, shard_key: bytes | None) -> Matched:
    """A request's own limit, on a counter of its own."""
    entries = descriptor.entries
    key = override_key(domain, entries, limit.window_ms)
    return Matched(limit, key, descriptor.cost, shard_key, request_rule(domain), entries, refund=descriptor.refund)


def _value_shown(limit: Limit, entries: Sequence[tuple[str, str]]) -> str | None:
    """What a rule's own fields say that its metrics tell apart: the whole descriptor, or its last value."""
    if limit.detailed_metric:
        return ".".join([f"{key}_{value}" if value else key for key, value in entries])
    return entries[-1][1] if limit.value_to_metric else None


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


def _ceil_seconds(ms: float) -> int:
    return int(-(-ms // 1000))
