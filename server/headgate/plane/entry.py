"""Values of the log: changes of rules, entries that hold them, and positions in the log.

An entry applies to exactly one predecessor and names the version that it leads to. Whoever follows the log computes
that version itself, so a message that is cut short, or that belongs elsewhere, changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from headgate.limiter.rule_name import Steps

MOST_CHANGES: Final = 10_000
"""Changes in one entry: some two megabytes, and a moment of a node's time."""
MOST_IN_ENTRY: Final = 2 * MOST_CHANGES + 100
"""Changes of an entry: at a rollout's end each rule comes into force, and is no longer staged."""
MAX_RULE_BYTES: Final = 16 * 1024
"""Bytes of one rule; its metadata is most of it."""
MAX_PATH_BYTES: Final = 4 * 1024
"""Bytes of all keys and values of a path, which are part of every limit key."""
MAX_DOMAIN_BYTES: Final = 255
MAX_WHY_CHARS: Final = 500
MAX_NAME_CHARS: Final = 200
"""Longest name of a follower, its region or its software."""


class RecordKind(IntEnum):
    """Kinds of records that a domain has."""

    RULE = 0
    """A rule in force; with the empty path, the domain's own fields."""
    STAGED = 1
    """A rule as a rollout has it, or `GONE`; with the empty path, the rollout itself."""
    SHADOW = 2
    """A shadow over the rule at a path and all below it: they deny nobody until a time."""


GONE: Final = b'{"gone":true}'
"""Record of a rule that a rollout deletes."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A record that is put in its place or, without a text, deleted: a rule, mostly."""

    domain: str
    path: Steps
    """The way to the rule; empty for the domain's own fields."""
    rule: bytes | None
    """The rule's own fields in canonical form; None deletes."""
    kind: RecordKind = RecordKind.RULE


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log, and the version of the rules there."""

    plane: str
    """Name of the log. Names of later logs sort behind those of earlier ones; empty: of none."""
    index: int
    version: str

    def is_behind(self, other: "Position") -> bool:
        """Return true if the other place is later: in this log, or in a later one."""
        return (self.plane, self.index) < (other.plane, other.index)


NOWHERE: Final = Position("", 0, "")
"""The position of whoever has nothing of any log."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log: what was changed, by whom, why, and what that led to."""

    position: Position
    predecessor: str
    """The version that it applies to."""
    changes: tuple[RuleChange, ...]
    who: str
    why: str
    made_ms: int
    carries_on: int = 0
    """Index of the entry whose rollout it carries on, or ends, by the plane itself; 0: somebody asked for it."""

    def follows(self, position: Position) -> bool:
        """Return true if the entry is the next one after a position, or one of a later log that goes on from there."""
        mine = self.position
        if self.predecessor != position.version:
            return False
        return mine.index == position.index + 1 if mine.plane == position.plane else mine.plane > position.plane

    @property
    def domains(self) -> list[str]:
        """Domains that the entry changes, in order."""
        return sorted({change.domain for change in self.changes})


@dataclass(frozen=True, slots=True)
class RulesPart:
    """A part of all rules as of a position; parts are numbered from 0 on."""

    position: Position
    number: int
    rules: tuple[RuleChange, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class Beat:
    """The end of the log, as far as its sender knows."""

    head: Position
    age_ms: int = 0
    """Time since the sender knew that this is the root's head; 0 from the root itself."""


FromPlane = LogEntry | RulesPart | Beat


@dataclass(frozen=True, slots=True)
class FollowerRefusal:
    """A domain that a node can't take, and why."""

    domain: str
    reason: str


@dataclass(frozen=True, slots=True)
class RolloutCounts:
    """Decisions of one node on requests whose limit a rollout changes, since the node knows of it."""

    domain: str
    rollout: str
    staged_decided: int = 0
    staged_denied: int = 0
    base_decided: int = 0
    base_denied: int = 0


@dataclass(frozen=True, slots=True)
class FollowerState:
    """A follower of the log, and how far it is."""

    name: str
    region: str
    software: str
    relay: bool
    has: Position = NOWHERE
    since_ms: int = 0
    refused: tuple[FollowerRefusal, ...] = ()
    rollouts: tuple[RolloutCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class FollowerHello:
    """The beginning of a stream: who follows, and from where."""

    follower: FollowerState


@dataclass(frozen=True, slots=True)
class Report:
    """States of a follower and, of a relay, of those behind it."""

    followers: Sequence[FollowerState]


FromFollower = FollowerHello | Report
