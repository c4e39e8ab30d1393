"""Records beside a domain's rules, as values: the rollout that is under way, and shadows.

They hold all that the plane needs to carry them on, so a root that restarts goes on from them. Nodes read a rollout's
name and share, and a shadow's end.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.limiter.rule_name import Steps
from headgate.percentages import percent
from headgate.plane.entry import RecordKind, RuleChange
from headgate.rules import content


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Stages of rollouts as they are set: shares of the limit keys, how long each lasts, and what they may deny."""

    stages: tuple[int, ...] = (10_000, 100_000, 500_000)
    """Shares in millionths, rising; behind the last one comes everybody."""
    stage_ms: int = 60_000
    expect_denials: int = 10_000
    """Share of requests, in millionths, that may be denied in addition."""


DEFAULT_PLAN: Final = StagePlan()


@dataclass(frozen=True, slots=True)
class Rollout:
    """A change of one domain that is under way."""

    domain: str
    rollout: str
    """Its name, which no other rollout has: nodes choose limit keys by it."""
    share: int
    """Share of the limit keys, in millionths, that are decided by the staged rules."""
    stages: tuple[int, ...]
    stage_ms: int
    stage_began_ms: int
    stage_index: int
    """Index of the entry that began the present stage."""
    expect_denials: int
    who: str
    why: str
    began_ms: int
    began_index: int
    """Index of the entry that began it."""
    halted: bool = False

    @property
    def next_share(self) -> int | None:
        """The share behind the present one; None: everybody."""
        return next((share for share in self.stages if share > self.share), None)

    def record(self) -> RuleChange:
        """Write it as a record."""
        fields = asdict(self)
        del fields["domain"]
        return RuleChange(self.domain, (), content.canonical(fields), RecordKind.STAGED)

    def __str__(self) -> str:
        said = f", {self.why}" if self.why else ""
        halted = ", halted" if self.halted else ""
        return f"by {self.who}{said}: at {percent(self.share)}{halted}"


@dataclass(frozen=True, slots=True)
class Shadow:
    """A rule with all below it, or a domain, that denies nobody until a time."""

    domain: str
    path: Steps
    until_ms: int
    who: str
    why: str
    began_index: int = 0
    """Index of the entry that began it."""

    def record(self) -> RuleChange:
        """Write it as a record."""
        fields = asdict(self)
        del fields["domain"], fields["path"]
        return RuleChange(self.domain, self.path, content.canonical(fields), RecordKind.SHADOW)


def rollout_of(record: RuleChange) -> Rollout:
    """Read a rollout's record."""
    fields: dict[str, Any] = json.loads(record.rule or b"{}")
    return Rollout(record.domain, **fields | {"stages": tuple(fields["stages"])})


def shadow_of(record: RuleChange) -> Shadow:
    """Read a shadow's record."""
    return Shadow(record.domain, record.path, **json.loads(record.rule or b"{}"))


def without(record: RuleChange) -> RuleChange:
    """Delete a record."""
    return RuleChange(record.domain, record.path, None, record.kind)
