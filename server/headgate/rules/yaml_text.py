"""Values as YAML on one line, such that a reader gets the same values back."""

from typing import Any

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def flow(value: Any) -> str:
    """A plain value in flow style: mappings in braces, lists in brackets, text in quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(name)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return quoted(value) if isinstance(value, str) else plain(value)


def plain(value: Any) -> str:
    """Scalar without quotes: a number, true, false or null."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(int(value)) if value == value // 1 else repr(value)


def quoted(text: str) -> str:
    """Scalar in double quotes; what YAML does not print is escaped."""
    return '"' + "".join(map(_escaped, text)) + '"' if not text.isalnum() or not text.isascii() else f'"{text}"'


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable() and character != "\ufeff":
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
