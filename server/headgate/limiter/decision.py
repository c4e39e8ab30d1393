"""Charges, verdicts and decisions: the values that go into an engine and come out of it.

The rules that hold for every engine are here: when a request is denied although some of
its descriptors have room, when it passes although some have none, and for how long a
denial may be answered from memory.
"""

from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Final, Protocol, TypeAlias

from headgate.limiter.algorithm import AlgorithmRules
from headgate.limiter.fixed_window import FixedWindow
from headgate.limiter.gcra import Gcra
from headgate.limiter.limit import Algorithm, Limit
from headgate.limiter.model_budget import ModelName, model_of
from headgate.limiter.rule_name import NO_NAME, RuleName
from headgate.limiter.sliding_window import SlidingWindow

ALGORITHMS: Final[dict[Algorithm, AlgorithmRules]] = {
    Algorithm.SLIDING_WINDOW: SlidingWindow(),
    Algorithm.FIXED_WINDOW: FixedWindow(),
    Algorithm.GCRA: Gcra(),
}


class DecisionPath(StrEnum):
    """The way in which a decision was made."""

    # Paths are keys of what every decision is counted in: the text's own hash is C, and an enum's is not.
    __hash__ = str.__hash__

    LOCAL = "local"
    ORIGIN = "origin"
    EXACT = "exact"
    DENY_CACHE = "deny_cache"
    DEGRADED_LOCAL = "degraded_local"
    DEGRADED_OPEN = "degraded_open"
    DEGRADED_CLOSED = "degraded_closed"
    SHADOW = "shadow"
    UNLIMITED = "unlimited"
    NO_RULE = "no_rule"


Entries: TypeAlias = tuple[tuple[str, str], ...]
"""A descriptor's keys and values, in the order of the request."""


class Kind(IntEnum):
    """The request that a charge makes of its counter."""

    TAKE = 0
    """The cost, if it fits beside all others of the request."""
    PEEK = 1
    """To know if there is room for one unit; it charges nothing."""
    LATE = 2
    """The cost, in any case: what it pays for is over. Whether it fitted is only told."""
    REFUND = 3
    """The cost back, as far as it was charged and still counts, whatever the others come to."""


TAKE: Final = Kind.TAKE
"""A name of its own, for what is done per request: Python searches an enumeration for longer than it compares."""


class Charge:
    """One descriptor's part of a request: what it costs, on which key, under which limit.

    Under a limit with overdraft a cost is known when all is over: it is LATE, and a cost of 0 is a PEEK. `late=True`
    makes a cost late under any limit, `late=False` under none. `refund=True` gives the cost back.
    """

    __slots__ = (
        "_peek",
        "algorithm",
        "cost",
        "entries",
        "key",
        "kind",
        "limit",
        "plain",
        "quota",
        "rule",
        "shadow",
        "shard_key",
    )

    def __init__(
        self,
        key: bytes,
        limit: Limit,
        cost: int,
        *,
        shadow: bool = False,
        shard_key: bytes | None = None,
        late: bool | None = None,
        refund: bool = False,
        rule: RuleName = NO_NAME,
        entries: Entries = (),
    ) -> None:
        self.key = key
        self.shard_key = key if shard_key is None else shard_key
        self.limit = limit
        self.cost = cost
        self.kind: Kind = Kind.TAKE
        # None for itself: a charge that held itself would wait for the garbage collector, with all that it holds.
        self._peek: Charge | None = None
        self.rule = rule
        """The rule that the limit is of: for metrics and logs."""
        self.entries = entries
        """The descriptor that it is for, as the request had it: for logs."""
        if refund:
            self.kind = Kind.REFUND
        elif bool(limit.overdraft) if late is None else late:
            self.kind = Kind.LATE if cost else Kind.PEEK
            self.cost = cost or 1
            if cost:
                self._peek = Charge(key, limit, 0, shadow=shadow, shard_key=shard_key, late=True, rule=rule)
        self.algorithm: AlgorithmRules = ALGORITHMS[limit.algorithm]
        self.shadow: bool = shadow or limit.shadow
        self.quota: bool = limit.quota and not self.shadow and not refund
        self.plain: bool = self.kind is Kind.TAKE and cost > 0 and not (limit.quota or self.shadow)
        """A cost of a rule that stands or falls with the request: the allowance of its key may admit it."""

    def on(self, key: bytes, shard_key: bytes, entries: Entries) -> "Charge":
        """Return the charge on another key of the same rule."""
        return _Copied(self, key, shard_key, entries)

    @property
    def peek(self) -> "Charge":
        """The peek at a late charge's key, decided as a cost of 1 would be; every other charge itself."""
        return self if self._peek is None else self._peek

    @property
    def fails_alone(self) -> bool:
        """A shadow rule or a quota does not stand or fall with the request's other charges."""
        return self.shadow or self.quota


class _Copied(Charge):
    """A charge like another, on another key. One is made for every request that was not seen before, and nothing has to
    be worked out for it."""

    __slots__ = ()

    def __init__(self, like: Charge, key: bytes, shard_key: bytes, entries: Entries) -> None:
        self.key = key
        self.shard_key = shard_key
        self.entries = entries
        self.limit = like.limit
        self.cost = like.cost
        self.kind = like.kind
        self.rule = like.rule
        self.algorithm = like.algorithm
        self.shadow = like.shadow
        self.quota = like.quota
        self.plain = like.plain
        self._peek = None if like._peek is None else like._peek.on(key, shard_key, ())


Verdict = tuple[bool, int, int]
"""One charge's outcome: is it over its limit, what remains, and the time in ms to come back
(over) or to the reset (not over). A tuple, because one is made per descriptor of every request."""


class Decision:  # noqa: PLW1641 - it is compared in tests, and never a key
    """The answer to a request: whether it passes, by which path that was decided, and a verdict per charge."""

    # No named tuple: one is made for every request, and compiled this takes a tenth of the time to make.
    __slots__ = ("admitted", "path", "verdicts")

    def __init__(self, admitted: bool, path: DecisionPath, verdicts: list[Verdict]) -> None:
        self.admitted = admitted
        self.path = path
        self.verdicts = verdicts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision):
            return NotImplemented
        return (self.admitted, self.path, self.verdicts) == (other.admitted, other.path, other.verdicts)

    def __repr__(self) -> str:
        return f"Decision({self.admitted}, {self.path!r}, {self.verdicts})"


OnDecided = Callable[[Decision], None]


class PendingDecision(Protocol):
    """A request whose decision comes later. Set `on_decided` at once: the loop calls it once, with the decision."""

    on_decided: OnDecided


def denies(charges: tuple[Charge, ...], outcomes: list[int]) -> bool:
    """Return whether the request is denied: a rule is over that is neither shadow nor quota, or every group of quotas
    is. A group is over if any of its quotas is."""
    quotas = False
    for charge, remaining in zip(charges, outcomes, strict=True):
        if charge.quota:
            quotas = True
        elif remaining < 0 and not charge.shadow:
            return True
    return quotas and not _has_room_in_a_group(charges, outcomes)


def _has_room_in_a_group(charges: tuple[Charge, ...], outcomes: list[int]) -> bool:
    quotas = [(quota_group(charge), left) for charge, left in zip(charges, outcomes, strict=True) if charge.quota]
    over = {group for group, left in quotas if left < 0}
    return any(group not in over for group, _ in quotas)


def quota_group(charge: Charge) -> ModelName | bytes:
    """Return the group that a quota is of: its model's, or else one by itself, named by its key."""
    return model_of(charge.entries) or charge.key


def only_shadow_over(charges: tuple[Charge, ...], outcomes: list[int]) -> bool:
    """Return whether every charge that is over its limit is one of a shadow rule."""
    return all(charge.shadow for charge, remaining in zip(charges, outcomes, strict=True) if remaining < 0)
