"""Records and events as JSON objects, both ways, by the table of schema.py; and lines as log stores give them back."""

import json
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from headgate.decision_log.schema import (
    DERIVED_FIRST,
    DERIVED_LAST,
    LAST_MS,
    SCHEMA,
    DecisionRecord,
    Entry,
    Event,
    Flag,
    Form,
    NodeRun,
    SchemaField,
    checked_parts,
    text_of_time,
)

DECISION: Final = "decision"
"""The `kind` of a line that is a record; any other is an event's."""


def _flags_from_json(names: Any) -> Flag:
    flags = Flag(0)
    for name in names:
        flags |= Flag[str(name).upper()]
    return flags


_WRITE: Final[Mapping[Form, Callable[[Any], Any]]] = {
    Form.HEX: "{:016x}".format,
    Form.TRACE: lambda trace_id: f"{trace_id:032x}" if trace_id else None,
    Form.FLAGS: lambda flags: [flag.name.lower() for flag in Flag if flag in flags and flag.name],
    Form.ENTRIES: lambda entries: [list(pair) for pair in entries] or None,
}
"""A value as JSON has it; None is left out."""

_READ: Final[Mapping[Form, Callable[[Any], Any]]] = {
    Form.HEX: lambda text: int(text, 16),
    Form.TRACE: lambda text: int(text, 16),
    Form.FLAGS: _flags_from_json,
    Form.ENTRIES: lambda pairs: tuple([(str(key), str(value)) for key, value in pairs]),
}

_LEFT_OUT: Final = (Form.TRACE, Form.ENTRIES)
"""Forms that a line may lack."""


def part_kinds(line: SchemaField) -> list[tuple[str, type]]:
    """The attribute and type of each JSON name of a field: the field itself, or its parts."""
    if len(line.column.json) == 1:
        return [(line.name, line.kind)]
    hints = line.kind.__annotations__
    return [(f"{line.name}.{part}", hints[part].__origin__) for part in line.kind._fields]  # type: ignore[attr-defined]


def _leaves() -> list[tuple[str, str, Form]]:
    """JSON name, attribute and form of every value of a line."""
    found = [(each.json, each.attribute, Form.PLAIN) for each in DERIVED_FIRST]
    for line in SCHEMA:
        parts = zip(line.column.json, part_kinds(line), strict=True)
        found += [(name, attribute, line.column.form) for name, (attribute, _) in parts]
    return found + [(each.json, each.attribute, Form.PLAIN) for each in DERIVED_LAST]


_LEAVES: Final = _leaves()
_VALUES: Final = attrgetter(*[attribute for _, attribute, _ in _LEAVES])
_PLACES: Final = [(*name.rpartition(".")[::2], _WRITE.get(form)) for name, _, form in _LEAVES]


def record_to_json(record: DecisionRecord) -> dict[str, Any]:
    """A record as one JSON object, which `record_from_json` reads back."""
    line: dict[str, Any] = {"kind": DECISION}
    for (outer, inner, write), value in zip(_PLACES, _VALUES(record), strict=True):
        shown = value if write is None else write(value)
        if shown is not None:
            (line.setdefault(outer, {}) if outer else line)[inner] = shown
    return line


def record_from_json(line: Mapping[str, Any]) -> DecisionRecord:
    """The record of a JSON line. Raises KeyError, TypeError or ValueError for what is none."""
    return DecisionRecord(**{each.name: value for each in SCHEMA if (value := _read(each, line)) is not None})


def _read(each: SchemaField, line: Mapping[str, Any]) -> Any:
    names, form = each.column.json, each.column.form
    if form in _LEFT_OUT and names[0] not in line:
        return None
    parts = [
        _READ.get(form, kind)(_value_at(line, name)) for name, (_, kind) in zip(names, part_kinds(each), strict=True)
    ]
    return parts[0] if len(names) == 1 else checked_parts(each.kind(*parts))


def _value_at(line: Mapping[str, Any], name: str) -> Any:
    outer, _, inner = name.rpartition(".")
    return (line[outer] if outer else line)[inner]


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as one JSON object, which `event_from_json` reads back."""
    return {
        "kind": event.kind,
        "time": text_of_time(event.time_ms),
        "time_ms": event.time_ms,
        "fields": dict(event.fields),
        **event.source._asdict(),
    }


def event_from_json(line: Mapping[str, Any]) -> Event:
    """The event of a JSON line. Raises KeyError, TypeError or ValueError for what is none."""
    source = NodeRun(str(line["region"]), str(line["node"]), int(line["run"]))
    time_ms = int(line["time_ms"])
    if not 0 <= time_ms <= LAST_MS:
        raise ValueError(f"time_ms is {time_ms}")
    return Event(time_ms, str(line["kind"]), dict(line["fields"]), source)


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """A record or an event as one JSON object."""
    return record_to_json(entry) if isinstance(entry, DecisionRecord) else event_to_json(entry)


# Lines as others give them back


def entries_of_line(text: str) -> list[Entry]:
    """The entries of a line: one of ours, or all of a batch as an OpenTelemetry collector writes it to a file."""
    if '"resourceLogs"' not in text:
        entry = entry_of_line(text)
        return [] if entry is None else [entry]
    try:
        batch = json.loads(text)
        scopes = [scope for resource in batch["resourceLogs"] for scope in resource["scopeLogs"]]
        found = [entry_of_json(log) for scope in scopes for log in scope["logRecords"]]
    except (ValueError, KeyError, TypeError, OverflowError):
        return []
    return [entry for entry in found if entry is not None]


def entry_of_line(text: str) -> Entry | None:
    """A line of ours, as it was written or wrapped by a log store; None for any other."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return entry_of_json(line)


def entry_of_json(line: Any) -> Entry | None:
    """A line that was parsed already; None if it is not ours. Shippers wrap lines in `log`, `message`, `body`."""
    if isinstance(line, str):
        return entry_of_line(line) if line.startswith("{") else None
    if not isinstance(line, Mapping):
        return None
    try:
        if line.get("kind") == DECISION:
            return record_from_json(line)
        if "kind" in line and "fields" in line and "time_ms" in line:
            return event_from_json(line)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    for name in ("log", "message", "body", "stringValue", "_raw", "line"):
        if name in line:
            return entry_of_json(line[name])
    return None
