"""The grammar as data: which keys each level of a rules file has, and what reads them."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from headgate.rules.fields import shown
from headgate.spelling import did_you_mean


class LevelGrammar(NamedTuple):
    """The keys of one level of the file, each with the name of its reader; scalars have none."""

    here: str
    """Place of the level, for messages: `unknown key x <here>`."""
    keys: Mapping[str, str]


SCALAR = ""
ROOT = LevelGrammar(
    "at the top level of the file",
    {"domain": SCALAR, "shard_by": SCALAR, "request_limits": SCALAR, "descriptors": "_descriptors"},
)
DESCRIPTOR = LevelGrammar(
    "in a descriptor",
    {
        "key": SCALAR,
        "value": SCALAR,
        "rate_limit": "_rate_limit",
        "descriptors": "_descriptors",
        "shadow_mode": SCALAR,
        "quota_mode": SCALAR,
        "detailed_metric": SCALAR,
        "value_to_metric": SCALAR,
        "share_threshold": SCALAR,
        "metadata": "_metadata",
    },
)
RATE_LIMIT = LevelGrammar(
    "in rate_limit",
    {
        **dict.fromkeys(("unit", "requests_per_unit", "unlimited", "name"), SCALAR),
        "replaces": "_replaces",
        **dict.fromkeys(
            (
                *("unit_multiplier", "algorithm", "burst", "precision", "on_error", "class", "scope", "force_global"),
                "overdraft",
                "refund",
            ),
            SCALAR,
        ),
    },
)
REPLACES = LevelGrammar("in an entry of replaces", {"name": SCALAR})
OVERLAY_ROOT = LevelGrammar("at the top level of an overlay file", {"overlay": "_entries"})
OVERLAY_LIMIT_FIELDS = (
    *("algorithm", "burst", "precision", "on_error", "class", "scope", "force_global", "overdraft", "refund", "name"),
)
"""Fields of `rate_limit` that an overlay may say: how a limit is kept. How much it is, is its rule's own."""
OVERLAY_FLAGS = ("shadow_mode", "detailed_metric", "value_to_metric")
"""Flags of a descriptor that an overlay may say."""
OVERLAY_ENTRY = LevelGrammar(
    "in an entry of an overlay", dict.fromkeys(("domain", "path", *OVERLAY_LIMIT_FIELDS, *OVERLAY_FLAGS), SCALAR)
)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_. -]{0,31}")
"""A key as somebody would misspell one."""
_LEVELS = (DESCRIPTOR, RATE_LIMIT, ROOT)


def unknown_key(name: str, grammar: LevelGrammar) -> str:
    """The reason for refusing a key: known elsewhere, or not at all."""
    for other in _LEVELS:
        if other is not grammar and name in other.keys:
            return f"key `{name}` is at the wrong level: it belongs {other.here}, not {grammar.here}"
    # Of a file that is no rules file, its words are nobody's business: messages are logged.
    quoted = "that is no word" if grammar is ROOT and not _WORD.fullmatch(name) else shown(name)
    hint = did_you_mean(name.lower(), grammar.keys)
    return f"unknown key {quoted} {grammar.here}; accepted: {', '.join(grammar.keys)}{hint}"
