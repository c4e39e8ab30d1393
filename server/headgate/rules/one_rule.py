"""One rule that comes by itself, and not in a file: its path and its fields, read and checked as in a file."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from headgate.limiter.rule_name import Steps, steps_text
from headgate.rules.content import canonical, form_of
from headgate.rules.fields import shown
from headgate.rules.grammar import DESCRIPTOR
from headgate.rules.model import RuleContent
from headgate.rules.problems import Problem, RulesError
from headgate.rules.reader import MAX_LEVELS, read_descriptor
from headgate.rules.wildcards import is_pattern

FIELDS: Final = tuple(name for name in DESCRIPTOR.keys if name not in ("key", "value", "descriptors"))
"""Fields of a descriptor that say something about the rule itself."""

READ_KEPT: Final = 4_096
"""Fields that are read once for all rules that have them: tenants have few kinds of limits."""


def read_rule(domain: str, path: Steps, fields: Mapping[str, Any]) -> RuleContent:
    """Read a rule from plain values. Raises `RulesError`, with the domain and the path in the place of a file."""
    return read_text(domain, path, canonical(fields))


def read_text(domain: str, path: Steps, text: bytes) -> RuleContent:
    """Read a rule from its fields as JSON. Raises `RulesError`, or ValueError for what is no JSON."""
    reasons = _problems_of(path)
    rule, problems = (None, ()) if reasons else _read(text, pattern=is_pattern(*path[-1]))
    if rule is None:
        place = f"{domain}: {steps_text(path)}"
        raise RulesError([Problem(place, 1, reason) for reason in (*reasons, *problems)])
    return rule


def _unknown(fields: Mapping[str, Any]) -> list[str]:
    return [f"unknown field {shown(name)}; accepted: {', '.join(FIELDS)}" for name in fields if name not in FIELDS]


def _problems_of(path: Steps) -> list[str]:
    if not 1 <= len(path) <= MAX_LEVELS:
        return [f"a path has 1 to {MAX_LEVELS} levels, found {len(path)}"]
    return ["`key` is empty" for key, _ in path if not key]


@lru_cache(maxsize=READ_KEPT)
def _read(text: bytes, *, pattern: bool) -> tuple[RuleContent | None, tuple[str, ...]]:
    """The rule that these fields come to, or the reasons against it."""
    fields = json.loads(text)
    if unknown := _unknown(fields):
        return None, tuple(unknown)
    descriptor = {"key": "key", "value": "*" if pattern else "value", **fields}
    read = read_descriptor(descriptor)
    if read.problems:
        return None, tuple(problem.reason for problem in read.problems)
    ((_, node, _, shared),) = read.rules.finish()["key"].rules()
    return RuleContent(node.limit, shared, form_of(RuleContent(node.limit, shared))), ()
