"""JSON for logs and terminals: letters of all languages as they are, and nothing that steers whoever shows it.

`json` writes ASCII alone, or everything raw but the first 32 signs: also those that turn the direction of what follows,
hide, or begin a terminal's command in one byte (C1). In strings, where alone they can be, they are written as escapes.
"""

import json
import re
from typing import Any

_NOT_PLAIN = re.compile(r"[^\x00-\x7e]+")


def dumps(value: Any, **options: Any) -> str:
    """Write JSON as `json.dumps` does, readable and harmless."""
    return _NOT_PLAIN.sub(_escaped, json.dumps(value, ensure_ascii=False, **options))


def _escaped(match: re.Match[str]) -> str:
    text = match[0]
    if text.isprintable():
        return text
    # ASCII escapes of what can't be shown; quotes and backslashes are not among it.
    return "".join([sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text]).replace("\x7f", "\\u007f")
