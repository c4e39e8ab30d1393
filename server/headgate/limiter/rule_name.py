"""Names of rules where people look for it: metrics, logs, answers, explanations.

A rule's id is its `name`, or, where it has none, its place in the domain's tree: the keys and values on the way to it,
`user>path=/login`. So it stays what it is while the file around the rule changes, and is the same on every node.
Ids are printable ASCII without spaces, at most `MAX_ID_BYTES` long, and one domain's ids are apart from another's. Two
unnamed rules never share one; rules of a domain that have the same name do.
"""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

MAX_ID_BYTES: Final = 96
"""Ids stand in metric labels, headers and log lines. A longer one is cut, and ends with `~` and a digest of it."""

DIGEST_CHARS: Final = 16

NAMES_KEPT: Final = 16_384
"""Names that are made once and then looked up. A million rules with a value each take turns; that is bounded too."""

REQUEST_RULE: Final = "(request)"
"""The id of a limit that came with the request: no rule's, because a rule's id has no parentheses."""

_STEP: Final = ">"
_UNSAFE: Final = re.compile(r"[^!#$&'*+,\-./0-9:;?@A-Z\[\]^_a-z|]")
"""Characters that are written as %XX in an id: all but printable ASCII, and what joins the parts of ids."""

Steps = tuple[tuple[str, str], ...]
"""The way to a rule: the key of each level, and the value or pattern there, empty for a key alone."""


class RuleName(NamedTuple):
    """One rule of one domain, as metrics, logs and answers name it."""

    domain: str
    id: str
    text: str
    """For people, e.g. `user=* > path=/login`."""


NO_NAME: Final = RuleName("", "", "")


@lru_cache(maxsize=NAMES_KEPT)
def rule_name(domain: str, name: str, steps: Steps) -> RuleName:
    """The rule that stands at `steps` in a domain, and that its file calls `name`, or nothing."""
    return RuleName(domain, rule_id(name, steps), steps_text(steps))


@lru_cache(maxsize=NAMES_KEPT)
def request_rule(domain: str) -> RuleName:
    """A limit that came with a request of this domain."""
    return RuleName(domain, REQUEST_RULE, "a limit in the request")


def rule_id(name: str, steps: Steps) -> str:
    """The rule's name, or its place in the tree."""
    whole = _escaped(name) if name else _STEP.join(map(_step_id, steps))
    if len(whole) <= MAX_ID_BYTES:
        return whole
    digest = blake2b(whole.encode(), digest_size=DIGEST_CHARS // 2).hexdigest()
    return f"{whole[: MAX_ID_BYTES - DIGEST_CHARS - 1]}~{digest}"


def steps_text(steps: Steps) -> str:
    """The way to a rule, for people."""
    return " > ".join([f"{key}={value}" if value else key for key, value in steps])


def _step_id(step: tuple[str, str]) -> str:
    key, value = step
    return f"{_escaped(key)}={_escaped(value)}" if value else _escaped(key)


def _escaped(text: str) -> str:
    return _UNSAFE.sub(_percent, text)


def _percent(found: re.Match[str]) -> str:
    # surrogatepass: a lone surrogate (JSON can carry one) is named like any other text.
    return "".join([f"%{byte:02X}" for byte in found.group().encode("utf-8", "surrogatepass")])
