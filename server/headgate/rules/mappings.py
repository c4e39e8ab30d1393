"""Mappings of a rules file: known keys to their readers, all others refused; merge keys as in YAML 1.1."""

from collections.abc import Callable
from typing import Any

from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from headgate.rules.fields import found
from headgate.rules.grammar import SCALAR, LevelGrammar, unknown_key
from headgate.rules.yaml_events import Event, EventStream, line_of, skip_node, whole_node

MERGE_KEY = "<<"


class MappingReader:
    """Reads mappings by their grammar; a subclass has a method for each key that is not a scalar."""

    def __init__(self, stream: EventStream, report: Callable[[int, str], None]) -> None:
        self._stream = stream
        self._next = stream.next
        self._report = report

    def _mapping(self, grammar: LevelGrammar, into: dict[str, Any] | None = None) -> tuple[dict[str, Any], set[str]]:
        """Read a mapping after its start; return its fields, and the names of those that were refused.

        `into` holds the fields so far, even if the file ends in the middle.
        """
        fields: dict[str, Any] = {} if into is None else into
        broken: set[str] = set()
        merges: list[tuple[int, list[Event]]] = []
        keys = grammar.keys
        next_event = self._next
        while type(event := next_event()) is not MappingEndEvent:
            reader = keys.get(event.value) if type(event) is ScalarEvent else None
            if reader is None or event.value in fields or event.value in broken:
                if type(event) is ScalarEvent and event.value == MERGE_KEY:
                    merges += [(line_of(event), events) for events in self._merged()]
                else:
                    self._refuse_key(event, grammar, known=reader is not None)
                continue
            name = event.value
            if reader is SCALAR:
                value = next_event()
                if type(value) is ScalarEvent:
                    fields[name] = value
                    continue
                self._refuse(value, f"`{name}` must be a single value, found {found(value)}")
                broken.add(name)
                continue
            value = getattr(self, reader)(event)
            if value is None:
                broken.add(name)
            else:
                fields[name] = value
        for line, events in merges:
            self._apply_merge(line, events, grammar, fields, broken)
        return fields, broken

    def _refuse_key(self, event: Event, grammar: LevelGrammar, *, known: bool) -> None:
        if type(event) is not ScalarEvent:
            self._refuse(event, f"a key must be text, found {found(event)}")
        elif known:
            self._report(line_of(event), f"duplicate key `{event.value}` {grammar.here}")
        else:
            self._report(line_of(event), unknown_key(event.value, grammar))
        self._skip(self._next())

    def _merged(self) -> list[list[Event]]:
        """The mappings behind a `<<`, as their events; the first named wins."""
        event = self._stream.next_raw()
        if type(event) is AliasEvent:
            return [self._stream.resolve(event.anchor, line_of(event))]
        if type(event) is SequenceStartEvent:
            merged = []
            while type(item := self._stream.next_raw()) is not SequenceEndEvent:
                if type(item) is AliasEvent:
                    merged.append(self._stream.resolve(item.anchor, line_of(item)))
                else:
                    merged.append(self._collect(item))
            return merged
        return [self._collect(event)]

    def _apply_merge(
        self, line: int, events: list[Event], grammar: LevelGrammar, fields: dict[str, Any], broken: set[str]
    ) -> None:
        if type(events[0]) is not MappingStartEvent:
            self._report(line, f"`<<` merges mappings only, found {found(events[0])}")
            return
        self._stream.push(events)
        self._next()
        merged, refused = self._mapping(grammar)
        for name, value in merged.items():
            fields.setdefault(name, value)
        broken |= refused

    def _collect(self, event: Event) -> list[Event]:
        """A whole node, from its first event to its last."""
        return list(whole_node(event, self._next))

    def _refuse(self, event: Event, reason: str) -> None:
        """Report a node whose first event has been read, and read past it."""
        self._report(line_of(event), reason)
        self._skip(event)

    def _skip(self, event: Event) -> None:
        skip_node(event, self._next)
