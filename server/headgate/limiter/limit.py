"""Limits as the engine sees them: immutable, complete, checked before it gets here.

Limits are values: equal ones are interchangeable, so a rule set may share one
object between a million rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

MAX_UINT32 = 2**32 - 1
"""The largest limit, cost and remaining count: the wire's fields are uint32."""

MILLION = 1_000_000
"""Precision is counted in millionths, so that no decision meets a float."""

DEFAULT_PRECISION_MILLIONTHS = 50_000
"""5% of the limit: what a region may over-admit at most while it is healthy."""


class Unit(IntEnum):
    """The units of the wire, by their numbers there."""

    UNKNOWN = 0
    SECOND = 1
    MINUTE = 2
    HOUR = 3
    DAY = 4
    MONTH = 5
    YEAR = 6
    WEEK = 7


_DAY_MS = 86_400_000
UNIT_MS: Mapping[Unit, int] = {
    Unit.SECOND: 1_000,
    Unit.MINUTE: 60_000,
    Unit.HOUR: 3_600_000,
    Unit.DAY: _DAY_MS,
    Unit.WEEK: 7 * _DAY_MS,
    Unit.MONTH: 30 * _DAY_MS,
    Unit.YEAR: 365 * _DAY_MS,
}


class Algorithm(StrEnum):
    """Algorithms that measure a limit; each has a module of its own."""

    SLIDING_WINDOW = "sliding_window"
    FIXED_WINDOW = "fixed_window"
    GCRA = "gcra"


class OnError(StrEnum):
    """Policies that decide while the origin can't be asked."""

    LOCAL = "local"
    OPEN = "open"
    CLOSED = "closed"


class TrafficClass(StrEnum):
    """Kind of traffic that a rule is about; it chooses `on_error` where the rule does not."""

    ABUSE = "abuse"
    PAID = "paid"
    FREE = "free"


class Scope(StrEnum):
    """Meaning of the limit across regions."""

    REGION = "region"
    """Each region enforces it by itself."""
    GLOBAL = "global"
    """All regions together: what the others have counted counts in every decision."""
    QUOTA = "quota"
    """All regions together: each enforces a slice."""
    CELL = "cell"
    """All regions together: each enforces an even part."""


GLOBAL_FROM_MS = 60_000
"""The shortest window whose limit is worth sharing between regions that hear of each other every second: in a
shorter one most of the window is over before they do."""

PUBLISHED_SHARE = 5
"""A region tells others of a count from a fifth of its part of the limit on: so what all of them together keep
to themselves is below 20% of the limit, however many they are."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule's limit: so many requests per window, how they are measured, and what happens in failures."""

    requests_per_unit: int
    unit: Unit
    unit_multiplier: int = 1
    name: str = ""
    algorithm: Algorithm = Algorithm.SLIDING_WINDOW
    burst: int = 0
    """gcra: the bucket's capacity; 0 for the other algorithms."""
    precision_millionths: int = DEFAULT_PRECISION_MILLIONTHS
    on_error: OnError = OnError.LOCAL
    traffic_class: TrafficClass | None = None
    scope: Scope | None = None
    """None: `global` where there are other regions and the window is long enough, else `region`."""
    overdraft: bool | None = None
    """True: a cost is known when the request is over, so it is charged in any case, beyond the limit if need be, and a
    cost of 0 asks whether there is room. None: as the process's setting says (scopes.py), which is False by itself."""
    refund: bool | None = None
    """True: what was charged may be given back. None: as the process's setting says, which is False by itself."""
    regions: int = 1
    """Number of regions, this one included: 1 in a rule set, which knows of none (scopes.py)."""
    unlimited: bool = False
    shadow: bool = False
    quota: bool = False
    replaces: tuple[str, ...] = ()
    """Names of the limits that this one puts out of force when both match one request."""
    detailed_metric: bool = False
    value_to_metric: bool = False
    metadata: Mapping[str, Any] | None = None

    window_ms: int = field(init=False)
    whole: int = field(init=False)
    """Requests per window, or the burst; where each region enforces a part, of all regions together (scopes.py)."""
    precision: int = field(init=False)
    """`P`: the most that all nodes of a region together may hold unacknowledged."""
    debt: int = field(init=False)
    """gcra with overdraft: by how many requests late costs may take the bucket beyond its burst: one window's worth."""
    publish_at: int = field(init=False)
    """From which total of this region on the others are told; 0: never."""
    sliced: bool = field(init=False)
    """Each region enforces a slice of it, which moves: a quota, where there are other regions."""

    def __post_init__(self) -> None:
        # Worked out once: decisions read them, and a frozen dataclass has no other way to set them.
        base = self.burst if self.algorithm is Algorithm.GCRA else self.requests_per_unit
        window_ms = 0 if self.unlimited else UNIT_MS[self.unit] * self.unit_multiplier
        object.__setattr__(self, "window_ms", window_ms)
        object.__setattr__(self, "whole", base)
        scope = self.scope_in_force
        sharing = self.regions if scope in (Scope.GLOBAL, Scope.QUOTA) else 1
        object.__setattr__(self, "precision", base * self.precision_millionths // MILLION // sharing)
        overdrawn = bool(self.overdraft) and self.algorithm is Algorithm.GCRA
        object.__setattr__(self, "debt", self.requests_per_unit if overdrawn else 0)
        published = scope is Scope.GLOBAL and self.regions > 1
        publish_at = -(-self.requests_per_unit // (PUBLISHED_SHARE * self.regions)) if published else 0
        object.__setattr__(self, "publish_at", publish_at)
        object.__setattr__(self, "sliced", scope is Scope.QUOTA and self.regions > 1)

    @property
    def scope_in_force(self) -> Scope:
        """The scope that the rule says, or that follows where it says nothing."""
        if self.scope is not None:
            return self.scope
        together = self.regions > 1 and self.algorithm is not Algorithm.GCRA and not self.unlimited
        long = not self.unlimited and UNIT_MS[self.unit] * self.unit_multiplier >= GLOBAL_FROM_MS
        return Scope.GLOBAL if together and long else Scope.REGION
