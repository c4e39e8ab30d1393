"""Planning: from a request's bytes to its plan. Either the bytes were seen before, or they are read and matched.

Plans are kept by the request's raw bytes, so a request that has been seen under these rules is neither parsed nor
matched again. All others are parsed, matched, and given the shape that requests share which meet the same limits at
the same cost: only the first of them has its shape worked out. Both caches are bounded. A plan says which version of
the rules it is right under; under another one it is compared, when its request comes again, with what the rules say
now, and kept if that is the same. So a change costs the plans that it concerns, and no request sees a mixture.
"""

from collections.abc import Callable
from typing import Any, Final

from headgate_client.unmet import Unmet

from headgate.errors import BadRequest, RequestError
from headgate.limiter.blocks import Blocks
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit
from headgate.limiter.overrides import Overrides
from headgate.limiter.rule_name import steps_text
from headgate.limiter.scopes import LimitsOfRegion, SlicedCharges
from headgate.limiter.shadows import Shadows
from headgate.met_limits import Matches, MetLimit, MetLimits, Parts, refuse_limits, why_unmet, without_replaced
from headgate.plan import AnswerSettings, HandlerStats, MadeOf, Plan, PlannedDescriptor, Shape
from headgate.plan_cache import PlanCache
from headgate.request_metadata import RequestMetadata, ToldDescriptor
from headgate.rules.model import Version
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import RuleSet
from headgate.telemetry.tallies import NO_RULE, Tallies, Tally
from headgate.wire import ratelimit as wire

MOST_SHAPES: Final = 4_096
"""More than most rule sets have rules. When there are more, all are made anew."""


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
        self._met_limits = MetLimits(overrides, blocks)
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
        self._shadows.lay("rules", {name: mark.shadows for name, mark in marks.items() if mark.shadows})

    def make(self, payload: bytes, rules: RuleSet, late: bool | None = None) -> Plan:
        """Parse and match a request. `late` says of all its costs whether they are charged in any case; None: as their
        limits say."""
        self._stats.planned += 1
        try:
            request = wire.parse_request(payload, self._settings.bounds)
            domain = rules.domain(request.domain)
            limits = (domain and domain.request_limits) or self._settings.request_limits
            if limits is RequestLimits.REFUSE:
                refuse_limits(request)
            if domain is None:
                return self._unknown(request, rules, payload)
            matches: Matches = []
            matched = [self._met_limits.of(domain, d, limits, matches) for d in request.descriptors]
            met = without_replaced(matched)
            unmet = () if all(met) else why_unmet(domain, request.descriptors, matched, met)
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


def _merged_metadata(met: list[Parts]) -> dict[str, Any]:
    """The metadata of all rules in force; where two name one key, the earlier descriptor's stays."""
    merged: dict[str, Any] = {}
    for parts in reversed(met):
        for part in parts:
            if part.limit.metadata:
                merged.update(part.limit.metadata)
    return merged
