"""Protobuf messages as JSON for people: what commands print, and what operators are told over HTTP."""

from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.message import Message

_TIMES: Final = ("until_ms", "made_ms", "time_ms", "arrival_ms")
"""Fields that are points in time: shown for people too."""


def as_json(message: Message) -> dict[str, Any]:
    """Every field that is set or a plain number, with times for people beside those in milliseconds."""
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            shown[field.name] = [as_json(item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            continue
        elif field.message_type is not None:
            shown[field.name] = as_json(value)
        else:
            shown[field.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if field.name in _TIMES and value:
                shown[field.name.removesuffix("_ms")] = shown_time(value)
    return shown


def shown_time(time_ms: int) -> str:
    """A point in time, for people: UTC."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return "beyond the calendar"
