"""YAML as a stream of events with line numbers: bounded, and without a tree in memory.

libyaml's events are the fastest form that keeps lines (benchmarks/rules.py compares),
and a stream lets a file of a million rules pass through without a node for each
scalar. Without libyaml PyYAML's own parser gives the same events, slower.

Aliases are replayed from the recorded events of their anchor, up to a budget, so a
few lines can't expand into gigabytes.
"""

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, Final, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    NodeEvent,
    ScalarEvent,
)

Event: TypeAlias = Any
"""An event of PyYAML: its classes carry no types for what they hold."""

USE_LIBYAML: bool = yaml.__with_libyaml__
"""Wheels of PyYAML have it; builds from source may not."""

MAX_ALIAS_EVENTS = 1_000_000
"""Events that all aliases of one file may expand to: ample for shared blocks, a second of work for a bomb."""

MAX_NESTING = 200
"""YAML levels in what no rule has a use for; libyaml's time grows with the square of the depth."""

_PIECE = 1 << 20
_SPECIAL = (b"&", b"!", b"<<")
_ALIAS = re.compile(rb"(?:^|[\s\[{,:?-])\*\S")
"""A star that may begin an alias: not one inside a path, nor one behind a quote."""

STR_TAG = "tag:yaml.org,2002:str"
_KNOWN_TAGS = frozenset({None, "!"} | {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "bool", "map", "seq")})


STAR_HINT: Final = " (a value that begins with a star is put in quotes: '*.jpg')"
"""YAML takes what begins with a star for an alias, and wildcards do."""

DASH_HINT: Final = " (a line at the level of a list's dashes: indent it further, or begin it with a dash)"


class YamlError(Exception):
    """Reason why a file can't be read any further, and the place."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def line_of(event: Event) -> int:
    """The line on which an event begins, from 1."""
    line: int = event.start_mark.line + 1
    return line


def is_null(event: Event) -> bool:
    """Return true if a scalar says "nothing here" to a field that is not text."""
    return type(event) is ScalarEvent and is_plain(event) and event.value in ("", "~", "null", "Null", "NULL")


def is_plain(event: Event) -> bool:
    """Return true if a scalar was written without quotes, so that it may be a number or a boolean."""
    plain: bool = event.implicit[0] or (event.tag is not None and event.tag not in ("!", STR_TAG))
    return plain


def whole_node(first: Event, next_event: Callable[[], Event]) -> Iterator[Event]:
    """All events of a node whose first one has been read."""
    yield first
    depth = int(isinstance(first, CollectionStartEvent))
    while depth:
        event = next_event()
        yield event
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_NESTING:
            raise YamlError(line_of(event), f"nested deeper than {MAX_NESTING} levels of YAML")


def skip_node(first: Event, next_event: Callable[[], Event]) -> None:
    """Read past a node whose first event has been read."""
    deque(whole_node(first, next_event), maxlen=0)


def file_stream(data: bytes, breathe: Callable[[], None] = lambda: None) -> "EventStream":
    """Return the events of a file."""
    is_special = survey(data, breathe)
    loader = yaml.CSafeLoader(data) if USE_LIBYAML else yaml.SafeLoader(data)
    return EventStream(loader.get_event, is_special=is_special)


class EventStream:
    """The events of one document; `next` is the whole interface."""

    def __init__(self, parser_next: Callable[[], Event], *, is_special: bool) -> None:
        """`is_special`: there may be anchors, tags or merge keys."""
        self._parser_next = parser_next
        self.next: Callable[[], Event] = self._parser_next
        self._anchors: dict[str, list[Event]] = {}
        self._recording: list[tuple[str, list[Event], int]] = []
        self._replay: deque[Event] = deque()
        self._alias_budget = MAX_ALIAS_EVENTS
        self._anchor_budget = MAX_ALIAS_EVENTS
        self._depth = 0
        # Most files hold no anchor, tag or merge key, and their events need no looking at.
        if is_special:
            self.next = self._checked_next

    def push(self, events: list[Event]) -> None:
        """Let recorded events come next."""
        self._spend(len(events), events)
        self._replay.extendleft(reversed(events))

    def resolve(self, name: str | None, line: int) -> list[Event]:
        """The events that an anchor stands for."""
        events = self._anchors.get(name or "")
        if events is None:
            raise YamlError(line, f"alias `*{name}` has no anchor before it, or stands inside its own{STAR_HINT}")
        return events

    def next_raw(self) -> Event:
        """The next event, an alias as itself: for merge keys."""
        if self._replay:
            return self._track(self._replay.popleft())
        return self._track(self._read())

    def _checked_next(self) -> Event:
        while True:
            event = self.next_raw()
            if type(event) is not AliasEvent:
                return event
            first, *others = self.resolve(event.anchor, line_of(event))
            # What stands here through an alias stands on the alias's line.
            first = copy(first)
            first.start_mark = event.start_mark
            self.push([first, *others])

    def _read(self) -> Event:
        event = self._parser_next()
        if isinstance(event, NodeEvent) and type(event) is not AliasEvent:
            self._check_tag(event)
            if event.anchor is not None:
                self._recording.append((event.anchor, [], self._depth))
        self._record(event)
        return event

    def _check_tag(self, event: Event) -> None:
        if event.tag not in _KNOWN_TAGS:
            raise YamlError(line_of(event), f"tag `{event.tag}` is not supported; write the plain value")

    def _record(self, event: Event) -> None:
        if not self._recording:
            return
        self._anchor_budget -= len(self._recording)
        if self._anchor_budget < 0:
            raise YamlError(line_of(event), f"anchors hold more than {MAX_ALIAS_EVENTS} YAML nodes; write smaller ones")
        for _, events, _ in self._recording:
            events.append(event)
        if isinstance(event, CollectionStartEvent):
            return
        depth = self._depth - isinstance(event, CollectionEndEvent)
        while self._recording and self._recording[-1][2] == depth:
            name, events, _ = self._recording.pop()
            self._anchors[name] = events

    def _track(self, event: Event) -> Event:
        if isinstance(event, CollectionStartEvent):
            self._depth += 1
        elif isinstance(event, CollectionEndEvent):
            self._depth -= 1
        return event

    def _spend(self, count: int, events: list[Event]) -> None:
        self._alias_budget -= count
        if self._alias_budget < 0:
            raise YamlError(
                line_of(events[0]),
                f"aliases expand to more than {MAX_ALIAS_EVENTS} YAML nodes; write fewer or smaller ones",
            )


def fault_of(error: yaml.YAMLError, data: bytes) -> YamlError:
    """A parser's error as a line and a reason."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        line = mark.line if mark else 0
        hint = tab_hint(data.splitlines(), line) + (STAR_HINT if "an alias" in problem else "") + _opened(error, line)
        hint += DASH_HINT if "expected '-' indicator" in problem else ""
        return YamlError(line + 1, f"not valid YAML: {problem}{hint}")
    position = getattr(error, "position", 0) or 0
    reason = getattr(error, "reason", None) or str(error)
    return YamlError(data.count(b"\n", 0, position) + 1, f"not valid YAML: {reason}")


def _opened(error: yaml.MarkedYAMLError, line: int) -> str:
    """Hint beside an error at the end of a text in quotes that are not closed: it may be much further up."""
    mark = error.context_mark
    if mark is None or mark.line == line or "quoted scalar" not in (error.context or ""):
        return ""
    return f" (the quote was opened in line {mark.line + 1})"


def tab_hint(lines: Sequence[bytes], line: int) -> str:
    """Hint beside a parser's error on a line that is indented with a tab, which YAML never takes."""
    text = lines[line] if line < len(lines) else b""
    indent = text[: len(text) - len(text.lstrip())]
    return " (the line is indented with a tab: YAML takes spaces only)" if b"\t" in indent else ""


def survey(data: bytes, breathe: Callable[[], None]) -> bool:
    """Return true if the events need a closer look: for anchors, tags and merge keys. Raises unless it is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    special = False
    try:
        # In pieces: one call over a large file would hold the interpreter.
        for start in range(0, len(data), _PIECE):
            # Two bytes more, because a mark may lie across two pieces; they are decoded once.
            piece = data[start : start + _PIECE + 2]
            decoder.decode(piece[:_PIECE])
            special = special or _is_special(piece)
            breathe()
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise _not_utf8(data) from None
    return special


def _is_special(piece: bytes) -> bool:
    return any(mark in piece for mark in _SPECIAL) or (b"*" in piece and _ALIAS.search(piece) is not None)


def _not_utf8(data: bytes) -> YamlError:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return YamlError(line, f"not UTF-8: byte 0x{data[error.start]:02x} can't be decoded")
    raise AssertionError("the pieces did not decode, so the whole can't")
