r"""Descriptors as arguments: `key=value,key=value`.

The first `=` ends a key, so values may hold more of them. `\,`, `\=` and `\\` stand for
the characters themselves; any other backslash is one.
"""

from headgate.errors import ConfigError

HELP = r"entries of one descriptor, in the order of the rules; write \, \= \\ for a comma, an = in a key, a backslash"
_SPECIAL = frozenset(",=\\")

Pairs = list[tuple[str, str]]


def parse_descriptor(text: str) -> Pairs:
    """The entries of one argument, or ConfigError."""
    pairs: Pairs = []
    key: str | None = None
    part: list[str] = []
    characters = iter(_unescaped(text))
    for character, literal in characters:
        if character == "=" and not literal and key is None:
            key, part = "".join(part), []
        elif character == "," and not literal:
            pairs.append(_pair(key, part, text))
            key, part = None, []
        else:
            part.append(character)
    pairs.append(_pair(key, part, text))
    return pairs


def _pair(key: str | None, part: list[str], text: str) -> tuple[str, str]:
    if not key:
        raise ConfigError(f"{text!r}: expected key=value, got {''.join(part)!r}")
    return key, "".join(part)


def _unescaped(text: str) -> list[tuple[str, bool]]:
    """Characters, each with whether it stands for itself only."""
    result: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        escaped = text[position] == "\\" and text[position + 1 : position + 2] in _SPECIAL
        position += escaped
        result.append((text[position], bool(escaped)))
        position += 1
    return result
