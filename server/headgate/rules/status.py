"""The state of the rules in force, for operators."""

from dataclasses import dataclass
from typing import Literal

from headgate.rules.feed import FeedKind, RefusedDomain
from headgate.rules.model import Version
from headgate.rules.problems import Problem

SourceKind = Literal[FeedKind, "snapshot", "nothing"]
"""`snapshot`: the last good rules, while the feed's could not be used since the start; `nothing`: none came yet."""


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """The state of the rules for operators: which version serves, since when, and what was refused last."""

    version: Version
    loaded_at: float
    """Unix seconds."""
    source: SourceKind
    in_sync: bool
    """True if the rules in force are those that the feed has."""
    rules: int
    domains: int
    last_error: tuple[Problem, ...] = ()
    last_error_at: float | None = None
    accepted: int = 0
    rejected: int = 0
    refused: tuple[RefusedDomain, ...] = ()
    """Domains whose rules of the feed are not in force, because of problems."""
