"""Secrets stay out of the log: by the name of their field, and by what they look like inside a text.

Nothing should log a secret in the first place. This is for what a library, a URL in an error, or a later change says.
"""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

HIDDEN: Final = "***"

_SECRET_FIELD: Final = re.compile(
    r"(password|passwd|secret|authorization|cookie|private_key|api_key|(^|_)token)$", re.I
)
_USER_INFO: Final = re.compile(r"(\b[a-z][a-z0-9+.\-]*://)[^\s/@]+@", re.I)
"""`redis://user:password@host`, in any text: who it is for is of no use without the rest."""
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[\w\-.~+/]+=*", re.I)


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: the event with everything secret hidden."""
    for name, value in event.items():
        event[name] = HIDDEN if _SECRET_FIELD.search(name) and value else hidden(value)
    return event


def hidden(value: Any) -> Any:
    """Copy of a value without what looks like a secret; texts, and texts in lists and mappings."""
    if isinstance(value, str):
        if "://" in value and "@" in value:
            value = _USER_INFO.sub(rf"\1{HIDDEN}@", value)
        return _BEARER.sub(rf"\1 {HIDDEN}", value) if "ear" in value.lower() or "asic" in value.lower() else value
    if isinstance(value, Mapping):
        return {k: HIDDEN if _SECRET_FIELD.search(str(k)) and v else hidden(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(item) for item in value]
    return value
