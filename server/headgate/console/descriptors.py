r"""Descriptors as arguments: `key=value,key=value`.

The first `=` ends a key, so values may hold more of them. `\,`, `\=` and `\\` stand for
the characters themselves; any other backslash is one.
"""

import re

from headgate.errors import ConfigError

HELP = r"entries of one descriptor, in the order of the rules; write \, \= \\ for a comma, an = in a key, a backslash"
_CHARACTER = re.compile(r"\\([,=\\])|(.)", re.DOTALL)
"""A character that stands for itself only, behind its backslash, or any other one."""

Pairs = list[tuple[str, str]]


def parse_descriptor(text: str) -> Pairs:
    """The entries of one argument, or ConfigError."""
    pairs: Pairs = []
    key: str | None = None
    part: list[str] = []
    for literal, character in _CHARACTER.findall(text):
        if character == "=" and key is None:
            key, part = "".join(part), []
        elif character == ",":
            pairs.append(_pair(key, part, text))
            key, part = None, []
        else:
            part.append(literal or character)
    pairs.append(_pair(key, part, text))
    return pairs


def _pair(key: str | None, part: list[str], text: str) -> tuple[str, str]:
    if not key:
        raise ConfigError(f"{text!r}: expected key=value, got {''.join(part)!r}")
    return key, "".join(part)
