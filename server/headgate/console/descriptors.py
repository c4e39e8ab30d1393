r"""Descriptors as arguments: `key=value,key=value`.

The first `=` ends a key, so values may hold more of them. `\,`, `\=` and `\\` stand for
the characters themselves; any other backslash is one.
"""

import argparse
import re

from headgate.errors import ConfigError

HELP = r"entries of one descriptor, in the order of the rules; write \, \= \\ for a comma, an = in a key, a backslash"
_CHARACTER = re.compile(r"\\([,=\\])|(.)", re.DOTALL)
"""A character that stands for itself only, behind its backslash, or any other one."""

Pairs = list[tuple[str, str]]


def add_one(parser: argparse.ArgumentParser, about: str = HELP) -> None:
    """Add the argument of a command that is about one descriptor. `--descriptor` is how versions before had it."""
    parser.add_argument("entries", nargs="?", metavar="key=value[,key=value]", help=about)
    parser.add_argument("--descriptor", help=argparse.SUPPRESS)


def one_of(args: argparse.Namespace) -> tuple[tuple[str, str], ...] | None:
    """The entries of that descriptor; None where none was given. Raises ConfigError."""
    given = [text for text in (args.entries, args.descriptor) if text is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]!r} and --descriptor {given[1]!r}: one descriptor is expected")
    return tuple(parse_descriptor(given[0])) if given else None


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
