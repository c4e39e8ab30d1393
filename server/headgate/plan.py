"""Plans: all that can be known of a request before it is decided.

Which limits it meets, on which counters, at what cost, and the parts of its answer that never change. Most of that is
the same for all requests that meet the same rules at the same cost, and is kept in a shape that they share; a plan
adds the counters' keys.
"""

from dataclasses import dataclass, field
from typing import Final

from headgate.limiter.decision import Charge, DecisionPath, Entries, Kind
from headgate.limiter.limit import Limit
from headgate.request_metadata import RequestMetadata
from headgate.rules.marks import Side
from headgate.rules.model import Match, Version
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import Domain
from headgate.telemetry.tallies import Tally
from headgate.wire import ratelimit as wire

PLAN_BYTES: Final = 300
CHARGE_BYTES: Final = 300
MATCH_BYTES: Final = 200
"""Bytes that the objects of a plan, of each of its charges, and of each match take beside the bytes in them: rounded
up."""


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """The settings that shape answers: headers, the body of a denial, shadow mode, and the size of the cache."""

    response_headers: bool = False
    header_limit: str = "RateLimit-Limit"
    header_remaining: str = "RateLimit-Remaining"
    header_reset: str = "RateLimit-Reset"
    header_retry_after: str = "Retry-After"
    exact_reset: bool = False
    """Tell everybody the exact time to come back, instead of times that are spread."""
    denied_body: str = ""
    shadow_mode: bool = False
    dynamic_metadata: bool = False
    request_metadata: bool = False
    """Tell requests back in dynamic metadata, in ratelimit's form."""
    reason_header: str = ""
    """The header that says why; empty: none."""
    reason_metadata: bool = False
    """Put the reason into dynamic metadata."""
    match_cache_entries: int = 16_384
    match_cache_bytes: int = 32 * 1024 * 1024
    bounds: wire.RequestBounds = field(default_factory=wire.RequestBounds)
    request_limits: RequestLimits = RequestLimits.LOWER
    """Default for domains that don't say it themselves."""
    near_limit_ratio: float = 0.8
    """Share of a limit from which on an admission is counted as near it."""


@dataclass(slots=True)
class HandlerStats:
    """Counts of decisions and of what came before them, kept as plain numbers that `/metrics` reads."""

    admitted: dict[DecisionPath, int] = field(default_factory=lambda: dict.fromkeys(DecisionPath, 0))
    denied: dict[DecisionPath, int] = field(default_factory=lambda: dict.fromkeys(DecisionPath, 0))
    planned: int = 0
    """Requests that were parsed and matched; all others were answered from a kept plan."""
    charges_kept: int = 0
    """Charges of all plans that were ever kept."""
    plans_evicted: int = 0
    plan_bytes: int = 0
    """Bytes of the kept plans, by estimate."""
    refused: int = 0
    """Bad requests: answered with an error instead of a decision."""


@dataclass(frozen=True, slots=True)
class PlannedDescriptor:
    """One descriptor of a plan: its charges, or the status that it gets without any."""

    charges: tuple[Charge, ...] = ()
    status: bytes = b""
    unlimited: bool = False
    tallies: tuple[Tally, ...] = ()
    """One per charge; without charges, one for the descriptor."""


class Shape:
    """All that plans have in common whose requests meet the same rules at the same cost: everything but the keys."""

    __slots__ = (
        "after",
        "answer",
        "before",
        "charges",
        "denied",
        "extra_costs",
        "heads",
        "near",
        "others",
        "pairs",
        "path",
        "refunds",
        "sliced",
        "tallies",
        "trailer",
    )

    def __init__(
        self,
        descriptors: list[PlannedDescriptor],
        *,
        trailer: bytes,
        denied_trailer: bytes,
        near_limit_ratio: float,
    ) -> None:
        charges = self.charges = tuple([charge for d in descriptors for charge in d.charges])
        """One per limit that is met, each on the keys of the first request that met it."""
        self.sliced = any(charge.limit.sliced for charge in charges)
        """At least one is a quota's: its limit is yet to be cut to its slice."""
        self.heads = tuple([wire.status_head(charge.limit) for charge in charges])
        """The part of each status that depends on the limit alone."""
        self.before, self.after = _fixed_statuses(descriptors)
        """Statuses of the descriptors that have no charge: before each charge's own, and after the last."""
        self.pairs = _pairs(descriptors)
        """Positions where two charges, this one and the next, are of one descriptor: a rule's and a request's limit."""
        self.path = DecisionPath.UNLIMITED if any(d.unlimited for d in descriptors) else DecisionPath.NO_RULE
        """The path of a request without charges, and of descriptors without one."""
        self.trailer = trailer
        self.denied = denied_trailer + trailer
        """The end of a denial."""
        if any(_asks_again(charge) for charge in charges):
            self.denied += wire.NOT_TO_BE_KEPT
        self.tallies = tuple([tally for d in descriptors if d.charges for tally in d.tallies])
        """The rule's counts, one per charge."""
        self.others = tuple([tally for d in descriptors if not d.charges for tally in d.tallies])
        """The counts of descriptors without a charge."""
        self.refunds = any(charge.kind is Kind.REFUND for charge in charges)
        """At least one charge is given back."""
        self.extra_costs = tuple([-1 if charge.kind is Kind.REFUND else charge.cost - 1 for charge in charges])
        """Per charge, what it costs beyond 1; a refund costs nothing."""
        self.near = tuple([_near(charge.limit, near_limit_ratio) for charge in charges])
        """Per charge: an admission that leaves less is near the limit."""
        self.answer = b"" if charges else b"".join([wire.CODE_OK, *(d.status for d in descriptors), trailer])
        """The answer to a request without charges, but for what is told back of it."""

    def is_dropped(self) -> bool:
        """Say if it counts where nobody reads it any more."""
        for tally in self.tallies + self.others:  # noqa: SIM110 - no generator on the request path
            if tally.dropped:
                return True
        return False


class MadeOf:
    """Origin of a plan: under rules that say the same of it, it is the same plan."""

    __slots__ = ("domain", "domain_version", "matches", "settings")

    def __init__(
        self, domain: str, rules: Domain | None, matches: tuple[tuple[Entries, Match | None, bool, Side | None], ...]
    ) -> None:
        self.domain = domain
        self.domain_version = "" if rules is None else rules.version
        """The version of the domain that it was last compared with; empty: the domain had no rules."""
        self.settings = None if rules is None else (rules.shard_by, rules.request_limits)
        self.matches = matches
        """The entries of each descriptor, the rule that they met, if one exempted them, and the side of a rollout."""

    def is_the_same_under(self, rules: Domain | None) -> bool:
        """Say if the request would have the same plan under these rules of its domain."""
        if rules is None or self.settings is None:
            return rules is None and self.settings is None
        if rules.version != self.domain_version and self._may_differ_under(rules):
            if self.settings != (rules.shard_by, rules.request_limits):
                return False
            for entries, match, exempt, side in self.matches:
                if rules.match(entries) != match or (match is None and rules.exempts(entries) != exempt):
                    return False
                if rules.side(entries) != side:
                    return False
        self.domain_version = rules.version
        return True

    def _may_differ_under(self, rules: Domain) -> bool:
        """Say if one of the latest changes may concern it, or if it is older than these: a quarter of asking again."""
        for before, key, value in rules.trail:
            for entries, _, _, _ in self.matches:
                if entries and entries[0][0] == key and (value is None or entries[0][1] == value):
                    return True
            if before == self.domain_version:
                return False
        return True


class Plan:
    """One request, parsed and matched. Where no rule applies there are no charges, and the answer is ready."""

    __slots__ = ("answer", "charges", "made_of", "metadata", "request_bytes", "shape", "version")

    def __init__(
        self,
        shape: Shape,
        charges: tuple[Charge, ...],
        request_bytes: int,
        version: Version,
        made_of: MadeOf,
        metadata: RequestMetadata | None = None,
    ) -> None:
        self.shape = shape
        self.charges = charges
        self.request_bytes = request_bytes
        self.version = version
        """The version of the rule set that it was made with, or that it was last found to be right under."""
        self.made_of = made_of
        self.metadata = metadata
        """The request as answers tell it back; None: they don't."""
        self.answer = shape.answer if metadata is None or charges else shape.answer + metadata.encoded(())
        """The answer to a request without charges."""

    @property
    def size(self) -> int:
        """Bytes that it takes, by estimate, with its request."""
        keys = sum([len(charge.key) + len(charge.shard_key) for charge in self.charges])
        told = 0 if self.metadata is None else self.metadata.size
        # The request counts twice: as the plan's name, and as the entries that its charges keep.
        own = PLAN_BYTES + CHARGE_BYTES * len(self.charges) + MATCH_BYTES * len(self.made_of.matches)
        return own + 2 * self.request_bytes + keys + len(self.answer) + told


def _asks_again(charge: Charge) -> bool:
    """Say that the next request like this must come here even if this one is denied: it is charged, or given back, all
    the same; or there may be room before its time, because somebody gave back."""
    return charge.kind in (Kind.LATE, Kind.REFUND) or bool(charge.limit.refund)


def _near(limit: Limit, ratio: float) -> int:
    """Return what an admission must leave, not to be near the limit."""
    most = limit.burst or limit.requests_per_unit
    return most - int(most * ratio)


def _fixed_statuses(descriptors: list[PlannedDescriptor]) -> tuple[tuple[bytes, ...], bytes]:
    """Statuses that never change: those that stand before each charge's own, and those after the last."""
    before: list[bytes] = []
    waiting = b""
    for descriptor in descriptors:
        if not descriptor.charges:
            waiting += descriptor.status
        for _ in descriptor.charges:
            before.append(waiting)
            waiting = b""
    return tuple(before), waiting


def _pairs(descriptors: list[PlannedDescriptor]) -> tuple[int, ...]:
    """Positions of the first of two charges of one descriptor."""
    found, position = [], 0
    for descriptor in descriptors:
        if len(descriptor.charges) > 1:
            found.append(position)
        position += len(descriptor.charges)
    return tuple(found)
