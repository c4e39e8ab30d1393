"""Planning: from a request's bytes to its plan. Either the bytes were seen before, or they are read and matched.

Plans are kept by the request's raw bytes, so a request that has been seen under these rules is neither parsed nor
matched again. All others are parsed, matched, and given the shape that requests share which meet the same limits at
the same cost: only the first of them has its shape worked out. Both caches are bounded. A plan says which version of
the rules it is right under; under another one it is compared, when its request comes again, with what the rules say
now, and kept if that is the same. So a change costs the plans that it concerns, and no request sees a mixture.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from headgate_client.unmet import Unmet

from headgate.errors import BadRequest, RequestError
from headgate.limiter.blocks import Blocks
from headgate.limiter.decision import Charge, Entries
from headgate.limiter.limit import Limit
from headgate.limiter.overrides import Overrides
from headgate.limiter.rule_name import RuleName, Steps, request_rule, rule_name, steps_text
from headgate.limiter.scopes import LimitsOfRegion, SlicedCharges
from headgate.limiter.shadows import Shadows
from headgate.plan import AnswerSettings, HandlerStats, MadeOf, Plan, PlannedDescriptor, Shape
from headgate.request_metadata import RequestMetadata, ToldDescriptor
from headgate.rules.keys import override_key
from headgate.rules.marks import Side, lay_shadows
from headgate.rules.model import Match, Version
from headgate.rules.request_limits import RequestLimits, is_smaller, lowered
from headgate.rules.ruleset import Domain, RuleSet
from headgate.telemetry.tallies import NO_RULE, Tallies, Tally
from headgate.wire import ratelimit as wire

MAX_CACHED_REQUEST_BYTES: Final = 1024
"""Larger requests are planned each time. Ordinary ones are under 200 bytes; with the number of
entries this bounds the cache's memory, whatever callers send."""

ALLOW: Final = RequestLimits.ALLOW
REFUSE: Final = RequestLimits.REFUSE

MOST_SHAPES: Final = 4_096
"""More than most rule sets have rules. When there are more, all are made anew."""


class MetLimit:
    """A limit that one descriptor of a request meets, and the key of its counter."""

    __slots__ = (
        "blocked",
        "cost",
        "entries",
        "key",
        "limit",
        "names_cost",
        "refund",
        "shard_key",
        "side",
        "steps",
        "value",
    )

    def __init__(
        self,
        limit: Limit,
        key: bytes,
        descriptor: wire.Descriptor,
        shard_key: bytes | None,
        steps: Steps | None,
        value: str | None = None,
        side: Side | None = None,
    ) -> None:
        self.limit = limit
        self.key = key
        self.shard_key = key if shard_key is None else shard_key
        self.steps = steps
        """The way to the rule in its domain's tree; None: the limit came with the request."""
        self.entries: Entries = descriptor.entries
        self.cost = descriptor.cost
        self.names_cost = descriptor.names_cost
        self.refund = descriptor.refund
        """The cost is given back."""
        self.value = value
        """The value that the rule's metrics tell apart, for rules that ask for it."""
        self.side = side
        """The rules that decide, where a rollout concerns the request."""
        self.blocked = False
        """An operator shut the caller out: no other rule of the request takes this limit's place."""

    def block(self, denying: Limit, domain: str) -> None:
        """Have `denying` in place of the limit: it denies a cost of 0 too."""
        if self.limit.unlimited:
            self.key = self.shard_key = override_key(domain, self.entries, denying.window_ms)
        self.limit, self.blocked = denying, True

    def rule(self, domain: str) -> RuleName:
        """The name of the rule in metrics, logs and answers."""
        return request_rule(domain) if self.steps is None else rule_name(domain, self.limit.name, self.steps)


Matches = list[tuple[Entries, Match | None, bool, Side | None]]
"""Entries of descriptors, each with the rule that it meets, if it meets one that exempts it, and the side of a rollout
that concerns it."""

Parts = tuple[MetLimit, ...]
"""The limits that one descriptor meets: none, one, or a rule's and then the request's own."""


class PlanCache:
    """Plans by the bytes of their requests, of bounded number and size."""

    def __init__(self, settings: AnswerSettings, stats: HandlerStats) -> None:
        self._most = settings.match_cache_entries
        self._most_bytes = settings.match_cache_bytes
        self._stats = stats
        self.clear()

    def clear(self) -> None:
        """Forget all plans."""
        self.plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._seen_once: set[int] = set()
        self._seen_before: set[int] = set()
        self._stats.plan_bytes = 0

    def drop(self, keys: Collection[bytes]) -> None:
        """Forget the plans of requests that charge any of these keys."""
        gone = [payload for payload, plan in self.plans.items() if any(charge.key in keys for charge in plan.charges)]
        for payload in gone:
            self._stats.plan_bytes -= self.plans.pop(payload).size

    def remove(self, payload: bytes) -> None:
        """Forget the plan of one request, which is there."""
        self._stats.plan_bytes -= self.plans.pop(payload).size

    def add(self, payload: bytes, plan: Plan) -> None:
        """Keep a plan on second sight: a request that comes once, as in a flood of new values, is not worth it."""
        if len(payload) > MAX_CACHED_REQUEST_BYTES:
            return
        seen, name = self._seen_once, hash(payload)
        if name not in seen and name not in self._seen_before:
            # Two halves, of which the older one is forgotten as a whole.
            if len(seen) >= self._most // 2:
                self._seen_before, self._seen_once = seen, set()
            seen.add(name)
            return
        self.keep(payload, plan)

    def keep(self, payload: bytes, plan: Plan) -> None:
        """Keep a plan, and forget the oldest ones if there are too many."""
        stats = self._stats
        self.plans[payload] = plan
        stats.plan_bytes += plan.size
        # First in, first out: a hot request is planned again once per turn of the cache,
        # which costs less than remembering at every hit that it was used.
        while len(self.plans) > self._most or stats.plan_bytes > self._most_bytes:
            stats.plan_bytes -= self.plans.popitem(last=False)[1].size
            stats.plans_evicted += 1


class Planner:
    """Plans requests under the rules in force."""

    def __init__(
        self,
        settings: AnswerSettings,
        stats: HandlerStats,
        tallies: Tallies,
        limits: LimitsOfRegion,
        overrides: Overrides,
        blocks: Blocks,
        shadows: Shadows,
        on_unknown_domain: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._tallies = tallies
        self._limits = limits
        self._overrides = overrides
        self._blocks = blocks
        self._shadows = shadows
        self._on_unknown_domain = on_unknown_domain
        self._denied_trailer = wire.encode_raw_body(settings.denied_body.encode())
        self._version: Version | None = None
        """The version of the rules that requests were last planned under."""
        self._dropped = 0
        self._cache = PlanCache(settings, stats)
        self._shapes: dict[object, tuple[Shape, list[Limit]]] = {}
        """Shapes by what requests met, with the limits they met, so that no other limits get their identities."""
        limits.on_change = self._forget
        overrides.on_change = self._cache.drop
        blocks.on_change = self._forget
        shadows.on_change = self._forget

    def plan(self, payload: bytes, rules: RuleSet) -> Plan:
        """Return the request's plan: the kept one, or a new one. Raises RequestError."""
        plan = self._cache.plans.get(payload)
        if plan is not None and plan.version is rules.version:
            return plan
        return self._plan_now(payload, rules, plan)

    def _plan_now(self, payload: bytes, rules: RuleSet, kept: Plan | None) -> Plan:
        """Plan a request that has no plan, or one that was right under other rules."""
        if rules.version is not self._version:
            self._rules_changed(rules)
            kept = self._cache.plans.get(payload)
        if kept is None:
            plan = self.make(payload, rules)
            self._cache.add(payload, plan)
            return plan
        if kept.made_of.is_the_same_under(rules.domain(kept.made_of.domain)) and not (
            self._tallies.dropped and kept.shape.is_dropped()
        ):
            kept.version = rules.version
            return kept
        self._cache.remove(payload)
        plan = self.make(payload, rules)
        self._cache.keep(payload, plan)
        return plan

    def _rules_changed(self, rules: RuleSet) -> None:
        self._version = rules.version
        self._tallies.rules_changed(rules.has_rule)
        marks = rules.marks()
        self._tallies.rollouts_are([(name, mark.rollout.name) for name, mark in marks.items() if mark.rollout])
        lay_shadows(marks, self._shadows)

    def make(self, payload: bytes, rules: RuleSet, late: bool | None = None) -> Plan:
        """Parse and match a request. `late` says of all its costs whether they are charged in any case; None: as their
        limits say."""
        self._stats.planned += 1
        try:
            request = wire.parse_request(payload, self._settings.bounds)
            domain = rules.domain(request.domain)
            limits = (domain and domain.request_limits) or self._settings.request_limits
            if limits is REFUSE:
                _refuse_limits(request)
            if domain is None:
                return self._unknown(request, rules, payload)
            matches: Matches = []
            matched = [self._meet(domain, d, limits, matches) for d in request.descriptors]
            met = _without_replaced(matched)
            unmet = () if all(met) else _reasons(domain, request.descriptors, matched, met)
            shape = self._shape(domain.name, met, late, unmet)
        except RequestError:
            self._stats.refused += 1
            raise
        charges: list[Charge] = []
        for parts in met:
            for part in parts:
                if not part.limit.unlimited:
                    charges.append(shape.charges[len(charges)].on(part.key, part.shard_key, part.entries))
        told = self._told_back(payload, request, met, charges)
        made_of = MadeOf(domain.name, domain, tuple(matches))
        in_order = SlicedCharges(charges) if shape.sliced else tuple(charges)
        return Plan(shape, in_order, len(payload), rules.version, made_of, told)

    def _forget(self) -> None:
        self._cache.clear()
        self._shapes.clear()

    def _meet(self, domain: Domain, descriptor: wire.Descriptor, limits: RequestLimits, matches: Matches) -> Parts:
        """Find the limits that apply to one descriptor; those of a blocked caller deny. Note what it matched."""
        parts = self._limits_of(domain, descriptor, limits, matches)
        if not descriptor.refund and len(self._blocks) and self._blocks.find(domain.name, descriptor.entries):
            for part in parts:
                part.block(self._blocks.instead_of(part.limit), domain.name)
        return parts

    def _limits_of(self, domain: Domain, descriptor: wire.Descriptor, limits: RequestLimits, matches: Matches) -> Parts:
        """Return the limits of one descriptor: its rule's, its own, or both."""
        entries, asked = descriptor.entries, descriptor.override
        shard_key = domain.shard_key(entries)
        if asked is not None and limits is ALLOW:
            return (_own_limit(asked, domain.name, descriptor, shard_key),)
        match = domain.match(entries)
        side = domain.side(entries)
        matches.append((entries, match, match is None and domain.exempts(entries), side))
        if match is None:
            return () if asked is None else (_own_limit(asked, domain.name, descriptor, shard_key),)
        in_force = self._overrides.limit_of(match.key, match.limit)
        value = _value_shown(match.limit, entries)
        rule = MetLimit(in_force, match.key, descriptor, shard_key, match.steps, value, side)
        if asked is None or not is_smaller(asked, in_force):
            return (rule,)
        return rule, _own_limit(lowered(asked, in_force), domain.name, descriptor, shard_key)

    # Shapes

    def _shape(self, domain: str, met: list[Parts], late: bool | None, unmet: tuple[Unmet, ...]) -> Shape:
        """Return the shape of requests that meet these limits; make it for the first of them."""
        if self._tallies.dropped != self._dropped:
            # Some may count where nobody reads it any more.
            self._dropped = self._tallies.dropped
            self._shapes.clear()
        name = _shape_name(domain, met, late, unmet)
        known = self._shapes.get(name)
        if known is not None:
            return known[0]
        overflowed = self._tallies.overflowed
        shape = self._new_shape(domain, met, late, unmet)
        together = [part for parts in met for part in parts]
        # A limit or a value of the request's own is nobody else's; and a tally beyond the bound may get room later.
        shared = not any(part.steps is None or part.value is not None for part in together)
        if shared and self._tallies.overflowed == overflowed:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[name] = shape, [part.limit for part in together]
        return shape

    def _new_shape(self, domain: str, met: list[Parts], late: bool | None, unmet: tuple[Unmet, ...]) -> Shape:
        trailer = b""
        if self._settings.dynamic_metadata and (metadata := _merged_metadata(met)):
            trailer = wire.encode_dynamic_metadata(metadata)
        reasons = iter(unmet)
        planned = [
            self._descriptor(domain, i, parts, late) if parts else self._unlimited(domain, next(reasons))
            for i, parts in enumerate(met)
        ]
        return self._shape_of(planned, trailer)

    def _shape_of(self, descriptors: list[PlannedDescriptor], trailer: bytes) -> Shape:
        return Shape(
            descriptors,
            trailer=trailer,
            denied_trailer=self._denied_trailer,
            near_limit_ratio=self._settings.near_limit_ratio,
        )

    def _unknown(self, request: wire.Request, rules: RuleSet, payload: bytes) -> Plan:
        """Plan a request for a domain that no file names: it passes, and is counted once."""
        tally, first = self._tallies.of_unknown_domain(request.domain)
        if first:
            self._on_unknown_domain(tally.name.domain)
        status = wire.STATUS_WITHOUT_LIMIT[Unmet.NO_DOMAIN]
        planned = [PlannedDescriptor(status=status, tallies=(tally,))]
        planned += [PlannedDescriptor(status=status)] * (len(request.descriptors) - 1)
        nothing_met: list[Parts] = [()] * len(planned)
        told = self._told_back(payload, request, nothing_met, [])
        made_of = MadeOf(request.domain, None, ())
        return Plan(self._shape_of(planned, b""), (), len(payload), rules.version, made_of, told)

    def _told_back(
        self, payload: bytes, request: wire.Request, met: list[Parts], charges: list[Charge]
    ) -> RequestMetadata | None:
        """Return what answers tell back of the request, if they do."""
        if not self._settings.request_metadata:
            return None
        told, begin = [], 0
        for descriptor, parts in zip(request.descriptors, met, strict=True):
            end = begin + sum([not part.limit.unlimited for part in parts])
            told.append(ToldDescriptor(descriptor.entries, range(begin, end)))
            begin = end
        return RequestMetadata(payload, told, charges)

    def _unlimited(self, domain: str, reason: Unmet) -> PlannedDescriptor:
        tally = self._tallies.of_rule(domain, NO_RULE, NO_RULE)
        return PlannedDescriptor(status=wire.STATUS_WITHOUT_LIMIT[reason], tallies=(tally,))

    def _descriptor(self, domain: str, index: int, parts: Parts, late: bool | None) -> PlannedDescriptor:
        if parts[0].refund:
            self._check_refunds(domain, index, parts)
        charged = [part for part in parts if not part.limit.unlimited]
        if not charged:
            tally = self._tally(domain, parts[0])
            return PlannedDescriptor(status=wire.STATUS_UNLIMITED, unlimited=True, tallies=(tally,))
        charges = [
            Charge(
                part.key,
                self._limits.bind(part.limit),
                part.cost,
                shadow=self._in_shadow(domain, part),
                shard_key=part.shard_key,
                late=_is_late(part, late),
                refund=part.refund,
                rule=part.rule(domain),
                entries=part.entries,
            )
            for part in charged
        ]
        return PlannedDescriptor(tuple(charges), b"", tallies=tuple([self._tally(domain, part) for part in charged]))

    def _check_refunds(self, domain: str, index: int, parts: Parts) -> None:
        """Refuse to give back what no rule lets be given back: a negative hit is a mistake there, and told so."""
        for part in parts:
            if not part.limit.unlimited and not self._limits.bind(part.limit).refund:
                raise BadRequest(
                    f"descriptors[{index}].is_negative_hits: hits are given back on rules with `refund: true` only; "
                    f"{part.rule(domain).text} has none"
                )

    def _in_shadow(self, domain: str, part: MetLimit) -> bool:
        """Say if the limit denies nobody now. A caller that was shut out by name stays so."""
        if self._settings.shadow_mode or part.blocked or not len(self._shadows):
            return self._settings.shadow_mode
        return self._shadows.cover(domain, part.steps or ())

    def _tally(self, domain: str, part: MetLimit) -> Tally:
        tally = self._own_tally(domain, part)
        return tally if part.side is None else self._tallies.of_rollout(domain, *part.side, tally)

    def _own_tally(self, domain: str, part: MetLimit) -> Tally:
        rule = part.rule(domain)
        if part.value is None:
            return self._tallies.of_rule(rule.domain, rule.id, rule.text, part.steps)
        # With `detailed_metric` the value is the whole descriptor, and so are the levels.
        joint = "_" if part.steps and part.steps[-1][1] else "="
        text = steps_text(part.entries) if part.limit.detailed_metric else f"{rule.text}{joint}{part.value}"
        return self._tallies.of_value(rule.domain, rule.id, text, part.value, part.steps)


def _is_late(part: MetLimit, late: bool | None) -> bool | None:
    """Say whether the cost is charged in any case. An ordinary request, which names no cost, is not what the setting
    `overdraft` is for: it is decided as exactly as without, unless its rule itself says otherwise."""
    return False if late is None and not part.names_cost and part.limit.overdraft is None else late


def _shape_name(domain: str, met: list[Parts], late: bool | None, unmet: tuple[Unmet, ...]) -> tuple[object, ...]:
    """Name a shape by all that it depends on: per descriptor the number of limits, and these with their costs."""
    name: list[object] = [domain, late, unmet]
    for parts in met:
        name.append(len(parts))
        for part in parts:
            name += (id(part.limit), part.steps, part.cost, part.names_cost, part.refund, part.side)
    return tuple(name)


def _refuse_limits(request: wire.Request) -> None:
    for index, descriptor in enumerate(request.descriptors):
        if descriptor.override is not None:
            raise BadRequest(
                f"descriptors[{index}].limit: limits in requests are refused here (request_limits: refuse)"
            )


def _own_limit(limit: Limit, domain: str, descriptor: wire.Descriptor, shard_key: bytes | None) -> MetLimit:
    """A limit that came with the request, on a counter of its own."""
    key = override_key(domain, descriptor.entries, limit.window_ms)
    return MetLimit(limit, key, descriptor, shard_key, None)


def _value_shown(limit: Limit, entries: Sequence[tuple[str, str]]) -> str | None:
    """The value that the rule's metrics tell apart: the whole descriptor, or its last value."""
    if limit.detailed_metric:
        return ".".join([f"{key}_{value}" if value else key for key, value in entries])
    return entries[-1][1] if limit.value_to_metric else None


def _without_replaced(met: list[Parts]) -> list[Parts]:
    """Leave out what another matched rule of the same request replaces."""
    replaced: set[str] = set()
    for parts in met:
        for part in parts:
            if part.limit.replaces:
                replaced.update(part.limit.replaces)
    if not replaced:
        return met
    return [tuple([part for part in parts if part.blocked or part.limit.name not in replaced]) for parts in met]


def _reasons(
    domain: Domain,
    descriptors: Sequence[wire.Descriptor],
    matched: list[Parts],
    met: list[Parts],
) -> tuple[Unmet, ...]:
    """Say of each descriptor that nothing limits why; `matched`: before rules that are replaced were left out."""
    reasons: list[Unmet] = []
    for descriptor, parts, kept in zip(descriptors, matched, met, strict=True):
        if parts and not kept:
            reasons.append(Unmet.REPLACED)
        elif not kept:
            reasons.append(Unmet.EXEMPT if domain.exempts(descriptor.entries) else Unmet.NO_RULE)
    return tuple(reasons)


def _merged_metadata(met: list[Parts]) -> dict[str, Any]:
    """The metadata of all rules in force; where two name one key, the earlier descriptor's stays."""
    merged: dict[str, Any] = {}
    for parts in reversed(met):
        for part in parts:
            if part.limit.metadata:
                merged.update(part.limit.metadata)
    return merged
