"""The grammar as a JSON Schema, for editors: completion, and most mistakes marked while one types.

    python -m headgate.rules.schema rules > docs/rules.schema.json
    python -m headgate.rules.schema overlay > docs/overlay.schema.json

Made from the tables that the reader itself goes by, and never stricter than it: what `headgate rules check` accepts,
this accepts. It is not as strict either: what depends on two fields, or on other rules, only the reader knows.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from headgate.limiter.limit import MAX_UINT32
from headgate.rules.grammar import DESCRIPTOR, OVERLAY_ENTRY, RATE_LIMIT, REPLACES, ROOT
from headgate.rules.limits import ALGORITHMS, CLASSES, ON_ERROR, SCOPES, UNITS
from headgate.rules.request_limits import RequestLimits

Schema = dict[str, Any]

_TEXT: Schema = {"type": ["string", "number", "boolean", "null"]}
"""Text is taken as written, and what YAML makes of `404`, `yes` or `~` is text too."""
_BOOLEAN: Schema = {"type": ["boolean", "null"]}


def _whole(low: int, high: int) -> Schema:
    return {"type": ["integer", "null"], "minimum": low, "maximum": high}


def _words(accepted: Mapping[str, object]) -> Schema:
    return {"enum": [*accepted, None]}


_UNITS: Schema = {"enum": [spelling for unit in UNITS for spelling in (unit, unit.upper(), unit.capitalize())] + [None]}

_FIELDS: Mapping[str, tuple[str, Schema]] = {
    "domain": ("What requests name; one domain, one file.", _TEXT),
    "descriptors": (
        "Rules, tried in their order.",
        {"type": ["array", "null"], "items": {"$ref": "#/$defs/descriptor"}},
    ),
    "shard_by": ("The key whose value chooses the Redis server.", _TEXT),
    "request_limits": ("Limits that come with a request.", {"enum": [item.value for item in RequestLimits]}),
    "key": ("The descriptor entry's key.", _TEXT),
    "value": ("Its value; `*` stands for any characters; without one every value has a counter of its own.", _TEXT),
    "rate_limit": ("The limit.", {"$ref": "#/$defs/rate_limit"}),
    "shadow_mode": ("Count and never deny.", _BOOLEAN),
    "quota_mode": ("Accepted as it is in envoyproxy/ratelimit.", _BOOLEAN),
    "detailed_metric": ("Metrics by the descriptor's values.", _BOOLEAN),
    "value_to_metric": ("The value stands in the metric's name.", _BOOLEAN),
    "share_threshold": ("All values that a wildcard matches share one counter.", _BOOLEAN),
    "metadata": ("Returned as dynamic metadata.", {"type": ["object", "null"]}),
    "unit": ("The window.", _UNITS),
    "requests_per_unit": ("What a window admits; 0 denies always.", _whole(0, MAX_UINT32)),
    "unlimited": ("No limit at all.", _BOOLEAN),
    "name": ("What `replaces` and metrics call it.", {"type": ["string", "number", "boolean", "null"]}),
    "replaces": (
        "Rules that do not count when this one applies.",
        {"type": ["array", "null"], "items": {"$ref": "#/$defs/replaces"}},
    ),
    "unit_multiplier": ("Windows of so many units: 5 with `minute` is five minutes.", _whole(1, MAX_UINT32)),
    "algorithm": ("How it counts; sliding_window by default.", _words(ALGORITHMS)),
    "burst": ("How much at once, with gcra.", _whole(1, MAX_UINT32)),
    "precision": (
        "What may be admitted beyond the limit: `5%` by default, 0 is exact.",
        {"type": ["string", "number", "null"]},
    ),
    "on_error": ("What decides while Redis can't be asked.", _words(ON_ERROR)),
    "class": ("Sets sensible defaults.", _words(CLASSES)),
    "scope": ("What the limit means across regions.", _words(SCOPES)),
    "force_global": ("scope: global with a window under 60 s.", _BOOLEAN),
    "overdraft": ("Costs that are known when a request is over are always charged.", _BOOLEAN),
    "refund": ("What was charged may be given back: descriptors with is_negative_hits.", _BOOLEAN),
}
"""Meaning and type of each field; a field of the grammar that is not here may be anything."""


def _level(keys: Mapping[str, object], required: tuple[str, ...] = ()) -> Schema:
    described = {}
    for name in keys:
        meaning, schema = _FIELDS.get(name, ("", {}))
        described[name] = {**({"description": meaning} if meaning and "$ref" not in schema else {}), **schema}
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": described}


def rules_schema() -> Schema:
    """JSON schema of one rules file."""
    limit = _level(RATE_LIMIT.keys)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://raw.githubusercontent.com/headgate/headgate/main/docs/rules.schema.json",
        "title": "Rules of Headgate (and of envoyproxy/ratelimit)",
        **_level(ROOT.keys, ("domain",)),
        "$defs": {
            "descriptor": _level(DESCRIPTOR.keys, ("key",)),
            "rate_limit": {**limit, "type": ["object", "null"]},
            "replaces": _level(REPLACES.keys),
        },
    }


def overlay_schema() -> Schema:
    """JSON schema of one overlay file."""
    entry = _level(OVERLAY_ENTRY.keys)
    entry["properties"] |= {
        "domain": {"description": "The domains; `*` stands for any characters. Every domain, if left out.", **_TEXT},
        "path": {"description": "The rules, as `key=value > key`, and all below. Every rule, if left out.", **_TEXT},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://raw.githubusercontent.com/headgate/headgate/main/docs/overlay.schema.json",
        "title": "Overlay over rules of Headgate",
        "type": "object",
        "additionalProperties": False,
        "required": ["overlay"],
        "properties": {"overlay": {"type": "array", "items": {"$ref": "#/$defs/entry"}}},
        "$defs": {"entry": entry},
    }


SCHEMAS = {"rules": rules_schema, "overlay": overlay_schema}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCHEMAS[sys.argv[1]](), indent=2) + "\n")
