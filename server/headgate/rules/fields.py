"""Scalars of a rules file as values: each kind with the values it accepts, named when it refuses.

Where text is wanted a plain scalar is taken as written: `value: 404` and `value: yes`
are the strings. Where a number or a boolean is wanted, quotes make it text, and text is
refused.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TypeVar

from yaml.events import MappingStartEvent, ScalarEvent, SequenceStartEvent

from headgate.limiter.limit import MILLION
from headgate.rules.yaml_events import Event, is_null, is_plain

# What YAML 1.1 reads as a boolean, which is what rules files in the field use.
_TRUE = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"))
_FALSE = frozenset(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"))

_FLOAT = re.compile(r"[+-]?\d+\.?\d*(?:[eE][+-]?\d{1,2})?", re.ASCII)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,12})?)%", re.ASCII)

_LONGEST_SHOWN = 60
"""Longest value in a message, in characters; the rest is cut, so that lines stay readable."""

T = TypeVar("T")


class FieldError(Exception):
    """A value that a field does not accept; the message is the reason."""


def shown(text: str, longest: int = _LONGEST_SHOWN) -> str:
    """A value in the form in which messages quote it: short and printable."""
    if len(text) > longest:
        text = text[:longest] + "…"
    return "`" + text.encode("unicode_escape").decode() + "`" if not text.isprintable() else f"`{text}`"


def found(event: Event) -> str:
    """Describe the value at this place of the file, for a message that says what was expected there."""
    if isinstance(event, SequenceStartEvent):
        return "a list"
    if isinstance(event, MappingStartEvent):
        return "a mapping"
    if is_null(event):
        return "nothing"
    return shown(event.value) if is_plain(event) else f"the quoted text {shown(event.value)}"


def boolean(name: str, event: Event) -> bool:
    """True or false, in YAML 1.1's words. Raises FieldError."""
    if type(event) is ScalarEvent and is_plain(event):
        if event.value in _TRUE:
            return True
        if event.value in _FALSE:
            return False
    raise FieldError(f"`{name}` must be true or false, found {found(event)}")


def _parse_whole(written: str) -> int | None:
    if not written.isascii():
        return None
    try:
        # Base 0 knows 0x and 0o, and refuses 010: eight to some readers, ten to others.
        return int(written, 0)
    except ValueError:
        if not _FLOAT.fullmatch(written) or re.match(r"[+-]?0\d", written):
            return None
    value = float(written)
    return int(value) if value.is_integer() else None


def whole(name: str, event: Event, low: int, high: int) -> int:
    """A whole number from `low` to `high`. Raises FieldError."""
    value = _parse_whole(event.value) if type(event) is ScalarEvent and is_plain(event) else None
    if value is None or not low <= value <= high:
        raise FieldError(f"`{name}` must be a whole number from {low} to {high}, found {found(event)}")
    return value


def one_of(name: str, event: Event, accepted: Mapping[str, T], *, any_case: bool = False) -> T:
    """The value of one of the accepted words. Raises FieldError with all of them."""
    if type(event) is ScalarEvent:
        value = accepted.get(event.value.lower() if any_case else event.value)
        if value is not None:
            return value
    raise FieldError(f"`{name}` must be one of {', '.join(accepted)}, found {found(event)}")


def percentage(name: str, event: Event) -> int:
    """A share such as `5%`, in millionths. Raises FieldError."""
    written = event.value if type(event) is ScalarEvent else ""
    if written == "0":
        return 0
    match = _PERCENT.fullmatch(written)
    if not match or Decimal(match[1]) > 100:
        raise FieldError(f"`{name}` must be 0 or a percentage from 0% to 100%, like 5% or 0.5%, found {found(event)}")
    millionths = Decimal(match[1]) * (MILLION // 100)
    if millionths != int(millionths):
        raise FieldError(f"`{name}` must be a multiple of 0.0001%, found {found(event)}")
    return int(millionths)
