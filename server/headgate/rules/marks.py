"""Marks of a domain: what lies over its rules for a time. A rollout has other rules for a share of the limit keys; a
shadow keeps rules from denying.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from headgate.limiter.limit import MILLION
from headgate.limiter.rule_name import Steps
from headgate.limiter.shadows import Shadow, Shadows
from headgate.rules.model import RuleContent

_HASH_BYTES: Final = 8


class Side(NamedTuple):
    """The rules that decide a request which a rollout concerns: the staged ones, or those in force."""

    rollout: str
    staged: bool


@dataclass(frozen=True, slots=True)
class SlotOrder:
    """The order of a key's wildcards on one level, where the first that matches wins."""

    above: Steps
    key: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A change that goes to a share of the limit keys first."""

    name: str
    share: int
    """Millionths of the limit keys that are decided by the staged rules."""
    changes: tuple[tuple[Steps, RuleContent | None], ...]
    """Rules that the staged version has in these places; None: it has none there."""
    orders: tuple[SlotOrder, ...] = ()
    """Orders of wildcards in the staged version, where it may differ."""

    def includes(self, key: bytes) -> bool:
        """Say if a limit key is in the share: the same everywhere, and other keys first in every rollout."""
        name = self.name.encode("utf-8", "surrogatepass")
        digest = blake2b(b"%d:" % len(name) + name + key, digest_size=_HASH_BYTES).digest()
        return int.from_bytes(digest) * MILLION >> (8 * _HASH_BYTES) < self.share


@dataclass(frozen=True, slots=True)
class Marks:
    """All marks of one domain."""

    rollout: Rollout | None = None
    shadows: tuple[Shadow, ...] = ()
    total: int = 0
    """The sum over their content, as part of the domain's (content.py)."""


NO_MARKS: Final = Marks()


def lay_shadows(marks: Mapping[str, Marks], shadows: Shadows) -> None:
    """Have the shadows of these domains in force, and no others of rules."""
    shadows.lay("rules", {name: item.shadows for name, item in marks.items() if item.shadows})
