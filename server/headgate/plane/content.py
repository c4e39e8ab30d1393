"""Versions of a log's rules: the numbers that a change adds to its domain's sum, and the version of all domains.

The numbers are those of rules everywhere (headgate.rules.content), so a plane, its nodes and a directory of the same
rules name one version. The cost of a change follows from the change: of other rules nothing is read but the patterns
that stand beside one that changes.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from headgate.limiter.rule_name import Steps
from headgate.plane.entry import RecordKind, RuleChange
from headgate.rules import content
from headgate.rules.request_limits import RequestLimits
from headgate.rules.wildcards import is_pattern

PLACE: Final = "place"
"""Field of a rule whose value has a `*`: its place among those beside it, of which the first that matches wins."""

LEADS_ON: Final = "leads_on"
"""Field of such a rule that has nothing of its own, and only leads on to others: it has a place and no number."""

Slot = tuple[Steps, str]
"""One key on one level: the way to the level, and the key."""


TEXTS_KEPT: Final = 4_096
"""Texts that are read once for all rules that have them: tenants have few kinds of limits."""

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def path_text(path: Steps) -> str:
    """Write a path as text, a JSON list of its steps; no two paths share one."""
    return "[" + ",".join([f"[{_quoted(key)},{_quoted(value)}]" for key, value in path]) + "]"


def path_of(text: str) -> Steps:
    """Read what `path_text` wrote."""
    return tuple((key, value) for key, value in json.loads(text))


def slot_of(path: Steps) -> Slot | None:
    """The slot of a rule whose value has a `*`, where order matters; None for others."""
    return (path[:-1], path[-1][0]) if path and is_pattern(*path[-1]) else None


def slot_text(change: RuleChange) -> str | None:
    """Write the slot of a rule in force as text, if it has one. The order of staged rules is in their places."""
    slot = slot_of(change.path) if change.kind is RecordKind.RULE else None
    return None if slot is None else path_text((*slot[0], (slot[1], "")))


def number(kind: RecordKind, path: Steps, rule: bytes | None) -> int:
    """Number a record: a rule, or a domain's own fields, mostly; one that is not there adds nothing."""
    if rule is None:
        return 0
    if kind is not RecordKind.RULE:
        return content.mark_number(kind.name.lower(), path, rule)
    if not path:
        fields: dict[str, Any] = json.loads(rule)
        limits = fields.get("request_limits")
        return content.settings_number(fields.get("shard_by", ""), None if limits is None else RequestLimits(limits))
    own = own_text(rule)
    if own is None:
        return 0
    key, value = path[-1]
    return content.rule_number(content.rule_head(path[:-1], key), value, own)


@lru_cache(maxsize=TEXTS_KEPT)
def own_text(rule: bytes) -> bytes | None:
    """Return a rule's own fields in canonical form, without its place; None for one that only leads on to others."""
    fields: dict[str, Any] = json.loads(rule)
    fields.pop(PLACE, None)
    return None if fields.get(LEADS_ON) else content.canonical(fields)


def order_number(slot: Slot, rules: Mapping[str, bytes]) -> int:
    """Number the order of a slot's patterns, each given with its rule."""
    return content.order_number(*slot, in_order({pattern: place_of(rule) for pattern, rule in rules.items()}))


def place_of(rule: bytes) -> int:
    """The place that a rule says, 0 where it says none."""
    return int(json.loads(rule).get(PLACE, 0))


def in_order(places: Mapping[str, int]) -> list[str]:
    """Sort patterns by their places; of two with one place the longer comes first, which says more."""
    return sorted(places, key=lambda pattern: (places[pattern], -len(pattern), pattern))


def added(total: int, *numbers: int) -> int:
    """Add numbers to a sum; negative ones are taken away."""
    return content.added(total, *numbers)


def domain_version(total: int) -> str:
    """Version of a domain, from its sum."""
    return content.version_of(total)


def set_version(domains: Mapping[str, int]) -> str:
    """Version of a set, from the sum of each domain."""
    numbers: Iterable[int] = (
        content.domain_number(name, content.version_of(total)) for name, total in domains.items()
    )  # fmt: skip
    return content.version_of(content.added(0, *numbers))


def pack(total: int) -> bytes:
    """Write a sum as bytes of one length."""
    return total.to_bytes(content.SUM_BYTES)


def unpack(data: bytes) -> int:
    """Read what `pack` wrote."""
    return int.from_bytes(data)


EMPTY_VERSION: Final = set_version({})
"""Version of no rules at all."""
