"""Plain values as the events of a YAML file that says them, without the file: for a rule that comes by itself, as JSON.

The same readers check both, so a rule means the same either way.
"""

from typing import Any, Final

import yaml
from yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from headgate.rules.mappings import MERGE_KEY
from headgate.rules.yaml_events import Event, EventStream, YamlError
from headgate.rules.yaml_text import plain

_BEGIN: Final = yaml.Mark("", 0, 0, 0, None, 0)
"""The place of all events: there is one line."""
_MAPPING: Final = MappingStartEvent(None, None, True, _BEGIN)
_MAPPING_END: Final = MappingEndEvent(_BEGIN)
_SEQUENCE: Final = SequenceStartEvent(None, None, True, _BEGIN)
_SEQUENCE_END: Final = SequenceEndEvent(_BEGIN)


def plain_stream(value: Any) -> EventStream:
    """Return the events of a plain value. Raises YamlError for text that is not Unicode."""
    events, is_special = _events(value)
    return EventStream(iter(events).__next__, is_special=is_special)


def _events(value: Any) -> tuple[list[Event], bool]:
    """All events of a value; and if there may be merge keys among them."""
    events: list[Event] = []
    is_special = False
    # A list and no recursion: whoever reads the events bounds how deep they go.
    left: list[Any] = [value]
    while left:
        item = left.pop()
        if item is _MAPPING_END or item is _SEQUENCE_END:
            events.append(item)
        elif isinstance(item, dict):
            events.append(_MAPPING)
            left.append(_MAPPING_END)
            for name, inner in reversed(item.items()):
                left += (inner, name)
                is_special = is_special or name == MERGE_KEY
        elif isinstance(item, list):
            events.append(_SEQUENCE)
            left.append(_SEQUENCE_END)
            left += reversed(item)
        else:
            events.append(_scalar(item))
    return events, is_special


def _scalar(value: Any) -> Event:
    if not isinstance(value, str):
        return ScalarEvent(None, None, (True, False), plain(value), _BEGIN)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise YamlError(1, f"text that is not Unicode: {error.reason}") from None
    return ScalarEvent(None, None, (False, True), value, _BEGIN)
