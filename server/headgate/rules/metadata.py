"""`metadata` of a rule: any YAML mapping, as the plain values that JSON and protobuf can carry."""

import math
import re
from collections.abc import Callable
from typing import Any

from yaml.events import (
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)

from headgate.rules import fields as kinds
from headgate.rules.fields import FieldError, found
from headgate.rules.yaml_events import Event, is_null, is_plain, line_of, skip_node

_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
MAX_DEPTH = 32
"""Nested deeper, metadata is refused: it must pass through protobuf, whose readers stop at 100."""

_MAX_INT_DIGITS = 300
"""Longer ones stay text: a number that no double can hold is an identifier."""


def plain_mapping(next_event: Callable[[], Event], report: Callable[[int, str], None]) -> dict[str, Any]:
    """The mapping whose start has been read."""
    return _Plain(next_event, report).mapping(1)


class _Plain:
    def __init__(self, next_event: Callable[[], Event], report: Callable[[int, str], None]) -> None:
        self._next = next_event
        self._report = report

    def mapping(self, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while type(event := self._next()) is not MappingEndEvent:
            name = event.value if type(event) is ScalarEvent else None
            if name is None:
                self._report(line_of(event), f"a key of metadata must be text, found {found(event)}")
                skip_node(event, self._next)
            elif name in mapping:
                self._report(line_of(event), f"duplicate key `{name}` in metadata")
            value = self._value(self._next(), depth)
            if name is not None:
                mapping[name] = value
        return mapping

    def _value(self, event: Event, depth: int) -> Any:
        if type(event) is ScalarEvent:
            return _scalar(event)
        if depth == MAX_DEPTH:
            self._report(line_of(event), f"metadata is nested deeper than {MAX_DEPTH} levels")
            skip_node(event, self._next)
            return None
        if type(event) is MappingStartEvent:
            return self.mapping(depth + 1)
        items = []
        while type(item := self._next()) is not SequenceEndEvent:
            items.append(self._value(item, depth + 1))
        return items


def _scalar(event: Event) -> Any:
    written: str = event.value
    if not is_plain(event):
        return written
    if is_null(event):
        return None
    try:
        return kinds.boolean("", event)
    except FieldError:
        pass
    if len(written) > _MAX_INT_DIGITS or not _NUMBER.fullmatch(written):
        return written
    if re.fullmatch(r"[+-]?\d+", written):
        return int(written)
    value = float(written)
    return value if math.isfinite(value) else written
