"""The content of rules, by which versions are named: the canonical form of a rule, and sums over all rules of a domain.

A domain's content is its settings, a rule for each path that has one, and the order of wildcards that stand beside each
other. Every such item has a number, a long digest; their sum names the domain, and the sum over all domains the set. So
one rule that comes, goes or changes is one addition or subtraction, whatever the size of the rest, and equal content
has one version whichever way it came about. Why sums: docs/decisions/0011-versions-by-content.md.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256, shake_128
from typing import Any, Final

from headgate.limiter.limit import (
    DEFAULT_PRECISION_MILLIONTHS,
    GLOBAL_FROM_MS,
    MILLION,
    Algorithm,
    Limit,
    Scope,
)
from headgate.limiter.rule_name import Steps
from headgate.rules.defaults import PROGRAM
from headgate.rules.keys import encode_key, encode_part
from headgate.rules.limits import CLASS_ON_ERROR, MODES
from headgate.rules.model import RuleContent
from headgate.rules.request_limits import RequestLimits

SUM_BYTES: Final = 256
"""Bytes of an item's number, and of sums. Sums of short numbers can be forged: who may choose a thousand rules finds
others with an equal sum of 256 bits within hours. At 2,048 bits nobody does."""

_MODULUS: Final = 1 << 8 * SUM_BYTES

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

HEADS_KEPT: Final = 1_024
"""Keys on their levels that most rules of a set are of."""


def fields_of(rule: RuleContent) -> dict[str, Any]:
    """Write a rule as the fields of a descriptor, without whatever is so by default: equal rules have equal fields."""
    fields: dict[str, Any] = {"share_threshold": True} if rule.shared else {}
    limit = rule.limit
    if limit is not None:
        fields["rate_limit"] = _rate_limit(limit)
        fields |= {written: True for written, name in MODES.items() if getattr(limit, name)}
        if limit.metadata:
            fields["metadata"] = dict(limit.metadata)
    return fields


def _rate_limit(limit: Limit) -> dict[str, Any]:
    named: dict[str, Any] = {"name": limit.name} if limit.name else {}
    if limit.replaces:
        named["replaces"] = [{"name": name} for name in limit.replaces]
    return named | ({"unlimited": True} if limit.unlimited else _limited(limit))


def _limited(limit: Limit) -> dict[str, Any]:
    """Fields of a limit that is one; those of the second part are left out where they say what is so anyway."""
    fields: dict[str, Any] = {"requests_per_unit": limit.requests_per_unit, "unit": limit.unit.name.lower()}
    traffic_class = limit.traffic_class
    on_error = PROGRAM.on_error if traffic_class is None else CLASS_ON_ERROR[traffic_class]
    said: tuple[tuple[str, Any, Any], ...] = (
        ("unit_multiplier", limit.unit_multiplier, 1),
        ("algorithm", limit.algorithm.value, PROGRAM.algorithm.value),
        ("burst", limit.burst, limit.requests_per_unit if limit.algorithm is Algorithm.GCRA else 0),
        ("precision", _percentage(limit.precision_millionths), _percentage(DEFAULT_PRECISION_MILLIONTHS)),
        ("class", traffic_class and traffic_class.value, None),
        ("on_error", limit.on_error.value, on_error.value),
        ("scope", limit.scope and limit.scope.value, None),
        ("force_global", limit.scope is Scope.GLOBAL and limit.window_ms < GLOBAL_FROM_MS, False),
        ("overdraft", limit.overdraft, None),
        ("refund", limit.refund, None),
    )
    return fields | {name: value for name, value, default in said if value != default}


def _percentage(millionths: int) -> str:
    whole, part = divmod(millionths, MILLION // 100)
    return f"{whole}.{part:04d}".rstrip("0").rstrip(".") + "%"


def canonical(fields: Mapping[str, Any]) -> bytes:
    """Encode fields so that equal ones are equal bytes."""
    return _encode(fields).encode()


def form_of(rule: RuleContent) -> bytes:
    """Return the canonical form of a rule: equal rules have equal ones."""
    return rule.form or canonical(fields_of(rule))


# Numbers of items, and sums


@lru_cache(maxsize=HEADS_KEPT)
def rule_head(above: Steps, key: str) -> bytes:
    """Encode the part of a rule's item that the rules of one key on one level have in common."""
    return b"rule:" + encode_key(part for step in above for part in step) + encode_part(key)


def rule_number(head: bytes, value: str, fields: bytes) -> int:
    """Number a rule: `head` and the last value of its path, and the canonical form of its fields."""
    return _number(head + encode_part(value) + fields)


def number_of_rule(path: Steps, rule: RuleContent) -> int:
    """Number a rule that is at hand as a whole."""
    key, value = path[-1]
    return rule_number(rule_head(path[:-1], key), value, form_of(rule))


def order_number(above: Steps, key: str, patterns: Iterable[str]) -> int:
    """Number the order of a key's wildcards, where the first that matches wins; one alone has none."""
    ordered = list(patterns)
    if len(ordered) < 2:
        return 0
    return _number(b"order:" + rule_head(above, key) + b"," + encode_key(ordered))


def settings_number(shard_by: str, request_limits: RequestLimits | None) -> int:
    """Number the settings of a domain; none has none."""
    said = {"shard_by": shard_by, "request_limits": request_limits}
    given = {name: value for name, value in said.items() if value}
    return _number(b"settings:" + canonical(given)) if given else 0


def mark_number(kind: str, path: Steps, text: bytes) -> int:
    """Number what a plane has laid over a rule: that it is staged, or in shadow."""
    return _number(kind.encode() + b":" + encode_key(part for step in path for part in step) + b"," + text)


def domain_number(domain: str, version: str) -> int:
    """Number a domain of that version, as an item of its set."""
    return _number(b"domain:" + encode_key((domain, version)))


def added(total: int, *numbers: int) -> int:
    """Add items to a sum; negative numbers take them away."""
    return (total + sum(numbers)) % _MODULUS


def version_of(total: int) -> str:
    """Name the content whose items have this sum."""
    return sha256(total.to_bytes(SUM_BYTES, "little")).hexdigest()


def _number(item: bytes) -> int:
    return int.from_bytes(shake_128(item).digest(SUM_BYTES), "little")
