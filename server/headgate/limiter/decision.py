"""What is decided, and how it comes out: charges in, verdicts and one decision out.

The rules that hold for every engine are here: when a request is denied although some of
its descriptors have room, when it passes although some have none, and for how long a
denial may be answered from memory.
"""

from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.limiter.algorithm import AlgorithmRules
from headgate.limiter.counters import KeyCounter
from headgate.limiter.fixed_window import FixedWindow
from headgate.limiter.gcra import Gcra
from headgate.limiter.limit import Algorithm, Limit
from headgate.limiter.rule_name import NO_NAME, RuleName
from headgate.limiter.sliding_window import SlidingWindow

ALGORITHMS: Final[dict[Algorithm, AlgorithmRules]] = {
    Algorithm.SLIDING_WINDOW: SlidingWindow(),
    Algorithm.FIXED_WINDOW: FixedWindow(),
    Algorithm.GCRA: Gcra(),
}


class DecisionPath(StrEnum):
    """Which way a decision was made."""

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
    """What a charge asks for."""

    TAKE = 0
    """The cost, if it fits beside all others of the request."""
    PEEK = 1
    """Whether there is room for one unit; it charges nothing."""
    LATE = 2
    """The cost, in any case: what it pays for is over. Whether it fitted is only told."""
    REFUND = 3
    """The cost back, as far as it was charged and still counts, whatever the others come to."""


class Charge:
    """One descriptor's part of a request: what it costs, on which key, under which limit.

    Under a limit with overdraft a cost is known when all is over: it is LATE, and a cost of 0 is a PEEK. `late=True`
    makes a cost late under any limit, `late=False` under none. `refund=True` gives the cost back. Requests with such
    charges go to `decide_late` of the engine, all others to `decide`.
    """

    __slots__ = (
        "_look",
        "algorithm",
        "cost",
        "counter",
        "entries",
        "key",
        "kind",
        "limit",
        "quick",
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
        self._look: Charge | None = None
        self.rule = rule
        """Which rule the limit is of: for metrics and logs."""
        self.entries = entries
        """The descriptor that it is for, as the request had it: for logs."""
        self.counter: Any = None
        """Its key's counter when an engine last looked; one that is in no table any more has no place in the wheel.
        Only for requests that one handler plans for one engine: others' charges may meet several."""
        if refund:
            self.kind = Kind.REFUND
        elif bool(limit.overdraft) if late is None else late:
            self.kind = Kind.LATE if cost else Kind.PEEK
            self.cost = cost or 1
            if cost:
                self._look = Charge(key, limit, 0, shadow=shadow, shard_key=shard_key, late=True, rule=rule)
        self.algorithm: AlgorithmRules = ALGORITHMS[limit.algorithm]
        self.shadow: bool = shadow or limit.shadow
        self.quota: bool = limit.quota and not self.shadow and not refund
        self.quick: bool = self.kind is Kind.TAKE and cost > 0 and not (limit.quota or self.shadow)
        """Nothing about it is unusual: what is kept with its key may decide it."""

    def on(self, key: bytes, shard_key: bytes, entries: Entries) -> "Charge":
        """The same charge on another key of the same rule; of TAKE charges only."""
        return _Copied(self, key, shard_key, entries)

    @property
    def look(self) -> "Charge":
        """Of a late charge and of a look: the look at the same key, which is decided as a cost of 1 would be."""
        return self if self._look is None else self._look

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
        self.quick = like.quick
        self.counter = None
        self._look = None


Verdict = tuple[bool, int, int]
"""One charge's outcome: is it over its limit, what remains, and the time in ms to come back
(over) or to the reset (not over). A tuple, because one is made per descriptor of every request."""


class Decision(NamedTuple):
    """What a request is told: whether it passes, which way that was decided, and a verdict per charge."""

    admitted: bool
    path: DecisionPath
    verdicts: list[Verdict]


def denied_before(counter: KeyCounter, charge: Charge) -> bool:
    """Whether the denial that the counter keeps covers this charge, as long as its time is not up."""
    return charge.cost >= counter.deny_cost and charge.limit is counter.deny_limit


def remember_denial(counter: KeyCounter, charge: Charge, until_ms: int) -> None:
    """Keep a denial with its counter: until then, charges of this cost or more are denied from memory."""
    counter.deny_until_ms = until_ms
    counter.deny_cost = charge.cost
    counter.deny_limit = charge.limit


def denies(charges: tuple[Charge, ...], outcomes: list[int]) -> bool:
    """Over, unless nothing but shadow rules is, or some quota descriptor still has room."""
    quotas = quotas_over = 0
    for charge, remaining in zip(charges, outcomes, strict=True):
        if charge.shadow:
            continue
        if charge.quota:
            quotas += 1
            quotas_over += remaining < 0
        elif remaining < 0:
            return True
    return quotas > 0 and quotas == quotas_over


def only_shadow_over(charges: tuple[Charge, ...], outcomes: list[int]) -> bool:
    """Whether every charge that is over its limit is one of a shadow rule."""
    return all(charge.shadow for charge, remaining in zip(charges, outcomes, strict=True) if remaining < 0)
