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
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from headgate.errors import BadRequest, RequestError
from headgate.limiter.decision import Charge, Decision, DecisionPath, Entries, Kind, Verdict
from headgate.limiter.limit import Limit
from headgate.limiter.overrides import Overrides
from headgate.limiter.rule_name import RuleName, request_rule, rule_id
from headgate.limiter.scopes import LimitsOfRegion, charges_of
from headgate.rules.keys import override_key
from headgate.rules.model import Rules, Version
from headgate.rules.request_limits import RequestLimits, is_smaller, lowered
from headgate.telemetry.tallies import NO_RULE, Tallies, Tally
from headgate.transport.interface import Undecided
from headgate.wire import ratelimit as wire

MAX_CACHED_REQUEST_BYTES: Final = 1024
"""Larger requests are planned each time. Ordinary ones are under 200 bytes; with the number of
entries this bounds the cache's memory, whatever callers send."""

PLAN_BYTES: Final = 400
CHARGE_BYTES: Final = 300
"""What the objects of a plan, and of each of its charges, take beside the bytes in them: rounded up."""

REASON: Final = "headgate"
"""The key of an answer's dynamic metadata under which the reason stands."""

MAX_OVER_LIMIT: Final = 20_000
"""Denials that are remembered until somebody takes them, ten times a second; beyond it they are only counted."""

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


class Decider(Protocol):
    """The engine behind the handler: of a node on its own, or of a node of a region. Decides at once where it can."""

    def decide(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]":
        """All charges of one request together: every one of them is charged, or none. On the loop."""
        ...

    def decide_late(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]":
        """The same where some are late costs, looks or refunds: late costs are charged and refunds given back in any
        case, looks never charged."""
        ...

    def quick(self, charge: Charge) -> Verdict | None:
        """The only charge of a request, by what is kept with its key: admitted, or denied as before. None: ask on."""
        ...

    def quick_all(self, charges: tuple[Charge, ...]) -> list[Verdict] | None:
        """All charges of a request, admitted by what is kept with their keys. None: ask on."""
        ...

    def give_back(self, charges: tuple[Charge, ...]) -> None:
        """Undo costs that were charged, as far as they still count."""
        ...

    def at_once(self, charges: tuple[Charge, ...]) -> Decision | None:
        """`decide` on any thread that has the loop's turn: None, and nothing charged, where somebody must be asked."""
        ...


class Recorder(Protocol):
    """Who is told of every decision: the decision log. It gives the decision its id."""

    def __call__(self, plan: "Plan", decision: Decision) -> int: ...


Decide = Callable[[tuple[Charge, ...]], "Decision | asyncio.Future[Decision]"]
AtOnce = Callable[[tuple[Charge, ...]], Decision | None]


class Plan(Undecided):
    """One request, parsed and matched. Where no rule applies there are no charges, and the answer is ready."""

    __slots__ = (
        "answer",
        "at_once",
        "charges",
        "decide",
        "denied",
        "fixed",
        "heads",
        "near",
        "near_first",
        "others",
        "pairs",
        "path",
        "quick",
        "size",
        "tallies",
        "tally",
        "trailer",
        "version",
    )

    def __init__(
        self,
        descriptors: list["Planned"],
        trailer: bytes,
        engine: Decider,
        near_limit_ratio: float,
        version: Version,
        request_bytes: int,
        *,
        usual: bool,
    ) -> None:
        self.version = version
        """Of the rule set that it was made with."""
        self.charges = charges_of(charge for d in descriptors for charge in d.charges)
        # Chosen once: a request without late costs is not asked at every hit whether it has any.
        taking = all(charge.kind is Kind.TAKE for charge in self.charges)
        self.decide: Decide = engine.decide if taking else engine.decide_late
        self.at_once: AtOnce = engine.at_once if taking else _on_the_loop
        self.heads = tuple([wire.status_head(charge.limit) for charge in self.charges])
        self.fixed = tuple([d.status for d in descriptors]) if not all(d.charges for d in descriptors) else None
        self.pairs = _pairs(descriptors)
        """Where two charges, this one and the next, are of one descriptor: a rule's and a request's limit."""
        self.path = DecisionPath.UNLIMITED if any(d.unlimited for d in descriptors) else DecisionPath.NO_RULE
        self.trailer = trailer
        self.denied = trailer + wire.NOT_TO_BE_KEPT if any(_asks_again(charge) for charge in self.charges) else trailer
        """The trailer of a denial."""
        self.tallies = tuple([tally for d in descriptors if d.charges for tally in d.tallies])
        """One per charge: what its rule counts."""
        self.others = tuple([tally for d in descriptors if not d.charges for tally in d.tallies])
        """What descriptors without a charge are counted in."""
        self.near = tuple([_near(charge.limit, near_limit_ratio) for charge in self.charges])
        """Per charge: an admission that leaves less is near the limit."""
        self.near_first = self.near[0] if self.near else 0
        self.tally = self.tallies[0] if self._is_plain() else None
        """Of a request with one charge that is over its limit if and only if the request is denied."""
        self.quick = len(self.charges) if usual and self._is_usual() else 0
        """How many charges what is kept with their keys may decide; 0: something about the request is unusual."""
        self.answer = b"" if self.charges else b"".join([wire.CODE_OK, *(d.status for d in descriptors), trailer])
        self.size = _plan_bytes(request_bytes, self)
        """What it takes, by estimate, with its request."""

    def _is_plain(self) -> bool:
        if len(self.charges) != 1 or self.others:
            return False
        charge = self.charges[0]
        return charge.kind is Kind.TAKE and charge.cost == 1 and not charge.shadow and not charge.quota

    def count(self, admitted: bool, path: DecisionPath, verdicts: list[Verdict], over_limit: list[Charge]) -> None:
        """Count the decision with every rule that it met: whether that rule had room, by the request's path.

        What was over is put into a list of bounded length.
        """
        for tally, charge, near, (over, remaining, _) in zip(
            self.tallies, self.charges, self.near, verdicts, strict=True
        ):
            extra = charge.cost - 1
            if charge.kind is Kind.REFUND:
                tally.refunded += charge.cost
                extra = -1
            if not over:
                tally.within[path] += 1
                tally.within_extra += extra
                tally.near += admitted and remaining < near
            elif charge.shadow:
                tally.shadow[path] += 1
                tally.shadow_extra += extra
            else:
                tally.over[path] += 1
                tally.over_extra += extra
                if len(over_limit) < MAX_OVER_LIMIT:
                    over_limit.append(charge)
        for tally in self.others:
            tally.within[self.path] += 1

    def _is_usual(self) -> bool:
        """Whether its answer is its statuses, one per charge, and nothing about its charges is unusual."""
        return not self.pairs and self.fixed is None and all(charge.quick for charge in self.charges)


@dataclass(frozen=True, slots=True)
class Planned:
    """One descriptor of a plan: its charges, or the status that it gets without any."""

    charges: tuple[Charge, ...] = ()
    status: bytes = wire.STATUS_WITHOUT_LIMIT
    unlimited: bool = False
    tallies: tuple[Tally, ...] = ()
    """One per charge; without charges, one for the descriptor."""


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
        self._forget_plans()

    def __call__(self, payload: bytes) -> "bytes | asyncio.Future[bytes]":
        answer = self.at_once(payload)
        return answer if isinstance(answer, bytes) else self.resume(answer)

    def at_once(self, payload: bytes) -> bytes | Plan:
        """The answer, if nobody need be asked for it; else the plan, for `resume`."""
        rules = self._rules()
        if rules is not self._plans_rules:
            self._forget_plans()
            self.tallies.rules_changed()
            self._plans_rules = rules
        plan = self._plans.get(payload)
        if plan is None:
            plan = self._keep(payload, self._plan(payload, rules))
        quick = plan.quick
        if quick == 1:
            verdict = self._engine.quick(plan.charges[0])
            if verdict is not None:
                return self._quick_answer(plan, verdict)
        elif quick:
            verdicts = self._engine.quick_all(plan.charges)
            if verdicts is not None:
                return self._answer(plan, Decision(True, DecisionPath.LOCAL, verdicts))
        elif not plan.charges:
            self.stats.admitted[plan.path] += 1
            for tally in plan.others:
                tally.within[plan.path] += 1
            return plan.answer
        decision = plan.at_once(plan.charges)
        return plan if decision is None else self._answer(plan, decision)

    def resume(self, plan: Undecided) -> "bytes | asyncio.Future[bytes]":
        """Decide, on the loop, what `at_once` did not: as long as it takes to ask."""
        assert isinstance(plan, Plan)  # noqa: S101 - it is what at_once gave
        decision = plan.decide(plan.charges)
        if isinstance(decision, Decision):
            return self._answer(plan, decision)
        answer: asyncio.Future[bytes] = decision.get_loop().create_future()
        decision.add_done_callback(partial(self._answer_later, plan, answer))
        return answer

    # Costs that are known later, in two steps

    def reserve(self, payload: bytes) -> "bytes | asyncio.Future[bytes]":
        """Decide an estimate: charged if it fits, also under a limit with overdraft."""
        return self.resume(plan) if (plan := self._plan(payload, self._rules(), late=False)).charges else plan.answer

    def charge_late(self, payload: bytes) -> None:
        """Charge what something came to beyond its estimate, whether it fits or not."""
        plan = self._plan(payload, self._rules(), late=True)
        if plan.charges:
            self.resume(plan)

    def give_back(self, payload: bytes) -> None:
        """Undo what something did not come to of its estimate."""
        self._engine.give_back(self._plan(payload, self._rules(), late=False).charges)

    def _answer_later(self, plan: Plan, answer: "asyncio.Future[bytes]", decision: "asyncio.Future[Decision]") -> None:
        if answer.done():
            return  # the caller went away; what was charged stays charged
        error = decision.exception()
        if error is None:
            answer.set_result(self._answer(plan, decision.result()))
        else:
            answer.set_exception(error)

    def _quick_answer(self, plan: Plan, verdict: Verdict) -> bytes:
        """`_answer` for the usual request: one charge, admitted here or denied as before.

        What is counted or logged of a decision is counted and logged in these two, and nowhere else.
        """
        over, remaining, reset_ms = verdict
        if self._record is not None:
            path = DecisionPath.DENY_CACHE if over else DecisionPath.LOCAL
            self._record(plan, Decision(not over, path, [verdict]))
        tally = plan.tally
        if over:
            self.stats.denied[DecisionPath.DENY_CACHE] += 1
            plan.count(False, DecisionPath.DENY_CACHE, [verdict], self._over_limit)
            status = wire.encode_status(plan.heads[0].over, 0, reset_ms)
            return wire.CODE_OVER_LIMIT + status + self._denied_trailer + plan.denied
        self.stats.admitted[DecisionPath.LOCAL] += 1
        if tally is None:
            plan.count(True, DecisionPath.LOCAL, [verdict], self._over_limit)
        else:
            tally.within[DecisionPath.LOCAL] += 1
            if remaining < plan.near_first:
                tally.near += 1
        return wire.CODE_OK + wire.encode_status(plan.heads[0].ok, remaining, reset_ms) + plan.trailer

    def _answer(self, plan: Plan, decision: Decision) -> bytes:
        admitted, path, verdicts = decision
        number = 0 if self._record is None else self._record(plan, decision)
        if admitted:
            self.stats.admitted[path] += 1
            tally = plan.tally
            if tally is None:
                plan.count(admitted, path, verdicts, self._over_limit)
            else:
                tally.within[path] += 1
                if verdicts[0][1] < plan.near_first:
                    tally.near += 1
            parts = [wire.CODE_OK]
        else:
            self.stats.denied[path] += 1
            plan.count(admitted, path, verdicts, self._over_limit)
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
        if admitted:
            parts.append(plan.trailer)
        else:
            parts += (self._denied_trailer, plan.denied)
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
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._seen_once: OrderedDict[int, None] = OrderedDict()
        self.stats.plan_bytes = 0

    def _forget_plans_of(self, keys: Collection[bytes]) -> None:
        """Limits of these keys are no longer what they were; all other plans stay."""
        gone = [payload for payload, plan in self._plans.items() if any(charge.key in keys for charge in plan.charges)]
        for payload in gone:
            self.stats.plan_bytes -= self._plans.pop(payload).size

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
        try:
            request = wire.parse_request(payload, self._settings.bounds)
            limits = rules.request_limits(request.domain) or self._settings.request_limits
            if limits is RequestLimits.REFUSE:
                _refuse_limits(request)
        except RequestError:
            self.stats.refused += 1
            raise
        overrides = self._overrides
        in_force = _without_replaced([_match(rules, request.domain, d, limits, overrides) for d in request.descriptors])
        trailer = b""
        if self._settings.dynamic_metadata and (metadata := _merged_metadata(in_force)):
            trailer = wire.encode_dynamic_metadata(metadata)
        domain = request.domain
        if not rules.has_domain(domain):
            planned, trailer = self._unknown(domain, len(request.descriptors)), b""
        else:
            planned = [self._planned(domain, index, parts, late) for index, parts in enumerate(in_force)]
        return Plan(
            planned,
            trailer,
            self._engine,
            self._settings.near_limit_ratio,
            rules.version,
            len(payload),
            usual=not (self._settings.response_headers or self._says_why),
        )

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


def _on_the_loop(_charges: tuple[Charge, ...]) -> None:
    """Late costs and looks are rare: they have no way of their own on the thread that receives."""


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

    def by_itself(limit: Limit) -> Matched:
        key = override_key(domain, entries, limit.window_ms)
        return Matched(limit, key, cost, shard_key, request_rule(domain), entries, refund=descriptor.refund)

    asked = descriptor.override if rules.has_domain(domain) else None
    if asked is not None and limits is RequestLimits.ALLOW:
        return (by_itself(asked),)
    match = rules.match(domain, entries)
    if match is None:
        return () if asked is None else (by_itself(asked),)
    in_force = overrides.limit_of(match.key, match.limit)
    value = _value_shown(match.limit, entries)
    rule = Matched(in_force, match.key, cost, shard_key, match.name, entries, value, descriptor.refund)
    if asked is None or not is_smaller(asked, in_force):
        return (rule,)
    return rule, by_itself(lowered(asked, in_force))


def _value_shown(limit: Limit, entries: Sequence[tuple[str, str]]) -> str | None:
    """What a rule's own fields say that its metrics tell apart: the whole descriptor, or its last value."""
    if limit.detailed_metric:
        return ".".join([f"{key}_{value}" if value else key for key, value in entries])
    return entries[-1][1] if limit.value_to_metric else None


def _asks_again(charge: Charge) -> bool:
    """Whether the next request like this must come here even if this one is denied: it is charged, or given back, all
    the same; or there may be room before its time, because somebody gave back."""
    return charge.kind in (Kind.LATE, Kind.REFUND) or bool(charge.limit.refund)


def _near(limit: Limit, ratio: float) -> int:
    """What an admission must leave, not to be near the limit."""
    most = limit.burst or limit.requests_per_unit
    return most - int(most * ratio)


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


def _plan_bytes(request_bytes: int, plan: Plan) -> int:
    """What a kept plan takes: its own objects by a round figure, the bytes in it as they are."""
    keys = sum(len(charge.key) + len(charge.shard_key) for charge in plan.charges)
    # The request counts twice: as the plan's name, and as the entries that its charges keep.
    return (
        PLAN_BYTES + 2 * request_bytes + keys + CHARGE_BYTES * len(plan.charges) + len(plan.trailer) + len(plan.answer)
    )


def _ceil_seconds(ms: float) -> int:
    return int(-(-ms // 1000))
