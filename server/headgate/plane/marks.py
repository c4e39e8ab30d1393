"""Records beside a domain's rules, as values: the rollout that is under way, and shadows.

They hold all that the plane needs to carry them on, so a root that restarts goes on from them. Nodes read a rollout's
name and share, and a shadow's end.
"""

import json
from dataclasses import asdict, dataclass, fields
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
class RolloutRecord:
    """A change of one domain that is under way."""

    domain: str
    rollout: str
    """Its name, which no other rollout has: nodes choose limit keys by it."""
    share: int
    """Share of the limit keys, in millionths, that are decided by the staged rules."""
    stages: tuple[int, ...] = DEFAULT_PLAN.stages
    stage_ms: int = DEFAULT_PLAN.stage_ms
    stage_began_ms: int = 0
    stage_index: int = 0
    """Index of the entry that began the present stage."""
    expect_denials: int = DEFAULT_PLAN.expect_denials
    who: str = ""
    why: str = ""
    began_ms: int = 0
    began_index: int = 0
    """Index of the entry that began it."""
    halted: bool = False

    @property
    def next_share(self) -> int | None:
        """The share behind the present one; None: everybody."""
        return next((share for share in self.stages if share > self.share), None)

    def record(self) -> RuleChange:
        """Write it as a record."""
        said = asdict(self)
        del said["domain"]
        return RuleChange(self.domain, (), content.canonical(said), RecordKind.STAGED)

    def __str__(self) -> str:
        said = f", {self.why}" if self.why else ""
        halted = ", halted" if self.halted else ""
        return f"by {self.who}{said}: at {percent(self.share)}{halted}"


@dataclass(frozen=True, slots=True)
class ShadowRecord:
    """A rule with all below it, or a domain, that denies nobody until a time."""

    domain: str
    path: Steps
    until_ms: int
    who: str = ""
    why: str = ""
    began_index: int = 0
    """Index of the entry that began it."""

    def record(self) -> RuleChange:
        """Write it as a record."""
        said = asdict(self)
        del said["domain"], said["path"]
        return RuleChange(self.domain, self.path, content.canonical(said), RecordKind.SHADOW)


def rollout_of(record: RuleChange) -> RolloutRecord:
    """Read a rollout's record."""
    said = _said(record, RolloutRecord)
    return RolloutRecord(record.domain, **said | {"stages": tuple(said.get("stages", DEFAULT_PLAN.stages))})


def shadow_of(record: RuleChange) -> ShadowRecord:
    """Read a shadow's record."""
    return ShadowRecord(record.domain, record.path, **_said(record, ShadowRecord))


def _said(record: RuleChange, kind: type[RolloutRecord] | type[ShadowRecord]) -> dict[str, Any]:
    """Read a record's fields; those that a later version of the program adds are not known here."""
    known = {field.name for field in fields(kind)}
    return {name: value for name, value in json.loads(record.rule or b"{}").items() if name in known}


def without(record: RuleChange) -> RuleChange:
    """Delete a record."""
    return RuleChange(record.domain, record.path, None, record.kind)
