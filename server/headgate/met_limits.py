"""Limits that the descriptors of a request meet: a rule's, the request's own, and what an operator has said of them."""

from collections.abc import Sequence
from typing import Final

from headgate_client.unmet import Unmet

from headgate.errors import BadRequest
from headgate.limiter.blocks import Blocks
from headgate.limiter.decision import Entries
from headgate.limiter.limit import Limit
from headgate.limiter.overrides import Overrides
from headgate.limiter.rule_name import RuleName, Steps, request_rule, rule_name
from headgate.rules.keys import override_key
from headgate.rules.marks import Side
from headgate.rules.model import Match
from headgate.rules.request_limits import RequestLimits, is_smaller, lowered
from headgate.rules.ruleset import Domain
from headgate.wire import ratelimit as wire

ALLOW: Final = RequestLimits.ALLOW


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


class MetLimits:
    """Finds the limits of descriptors, under the overrides and blocks in force."""

    def __init__(self, overrides: Overrides, blocks: Blocks) -> None:
        self._overrides = overrides
        self._blocks = blocks

    def of(self, domain: Domain, descriptor: wire.Descriptor, limits: RequestLimits, matches: Matches) -> Parts:
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


def refuse_limits(request: wire.Request) -> None:
    """Raise BadRequest if the request brings a limit."""
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


def without_replaced(met: list[Parts]) -> list[Parts]:
    """Leave out what another matched rule of the same request replaces."""
    replaced: set[str] = set()
    for parts in met:
        for part in parts:
            if part.limit.replaces:
                replaced.update(part.limit.replaces)
    if not replaced:
        return met
    return [tuple([part for part in parts if part.blocked or part.limit.name not in replaced]) for parts in met]


def why_unmet(
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
