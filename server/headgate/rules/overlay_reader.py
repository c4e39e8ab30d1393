"""Overlay files: their YAML checked against the grammar, every problem with its line.

overlay:
  - domain: default/eg/*                    # every domain, if left out
    path: httproute/default/checkout/*      # every rule, if left out
    algorithm: sliding_window
    on_error: closed
"""

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml
from yaml.events import DocumentStartEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from headgate.limiter.limit import MAX_UINT32
from headgate.rules import fields as kinds
from headgate.rules.fields import FieldError, found, shown
from headgate.rules.grammar import (
    DESCRIPTOR,
    OVERLAY_ENTRY,
    OVERLAY_FLAGS,
    OVERLAY_LIMIT_FIELDS,
    OVERLAY_ROOT,
    RATE_LIMIT,
    ROOT,
    LevelGrammar,
)
from headgate.rules.limits import RateLimitBlock, build_limit
from headgate.rules.mappings import MappingReader
from headgate.rules.overlay import ANYTHING, STEP, Glob, OverlayEntry, Step, step_of
from headgate.rules.problems import Problem
from headgate.rules.source import SourceFile
from headgate.rules.yaml_events import Event, EventStream, YamlError, fault_of, file_stream, is_null, line_of

MAX_OVERLAY_BYTES: Final = 1024 * 1024
"""Size of one overlay file: a ConfigMap's."""

MAX_ENTRIES: Final = 1_000
"""Entries of all files together: each is held against every rule, in the thread that loads."""

MAX_STEPS: Final = 64
"""Longest path, as deep as rules may be nested."""

_ACCEPTED: Final = ", ".join((*OVERLAY_LIMIT_FIELDS, *OVERLAY_FLAGS))


def read_overlay(files: Sequence[SourceFile]) -> tuple[list[OverlayEntry], list[Problem]]:
    """Read all files of an overlay; return its entries in the order in which they are laid, and its problems."""
    entries: list[OverlayEntry] = []
    problems: list[Problem] = []
    for file in files:
        reader = _FileReader(file, problems)
        entries += reader.read()
    if len(entries) > MAX_ENTRIES:
        last = entries[MAX_ENTRIES]
        problems.append(Problem(last.file, last.line, f"more than {MAX_ENTRIES} entries in all overlay files together"))
    return entries, sorted(set(problems))


class _FileReader:
    """Reads one file."""

    def __init__(self, file: SourceFile, problems: list[Problem]) -> None:
        self._file = file
        self._problems = problems

    def read(self) -> list[OverlayEntry]:
        if len(self._file.data) > MAX_OVERLAY_BYTES:
            self._report(1, f"larger than {MAX_OVERLAY_BYTES // 1024} KiB")
            return []
        try:
            return _EntryReader(file_stream(self._file.data), self._file.path, self._report).read()
        except YamlError as fault:
            self._report(fault.line, fault.reason)
        except yaml.YAMLError as error:
            located = fault_of(error, self._file.data)
            self._report(located.line, located.reason)
        return []

    def _report(self, line: int, reason: str) -> None:
        self._problems.append(Problem(self._file.path, line, reason))


class _EntryReader(MappingReader):
    def __init__(self, stream: EventStream, path: str, report: Callable[[int, str], None]) -> None:
        super().__init__(stream, report)
        self._path = path
        self._unknown_keys = 0

    def read(self) -> list[OverlayEntry]:
        self._next()  # the stream's start
        if type(self._next()) is not DocumentStartEvent:
            self._report(1, "the file is empty: an overlay that changes nothing is `overlay: []`")
            return []
        root = self._next()
        if type(root) is not MappingStartEvent:
            self._refuse(root, f"an overlay file is a mapping with `overlay`, found {found(root)}")
            return []
        fields, broken = self._mapping(OVERLAY_ROOT)
        if "overlay" not in fields and "overlay" not in broken:
            self._report(line_of(root), "the file has no `overlay`: a list of entries")
        self._next()  # the document's end
        if type(event := self._next()) is DocumentStartEvent:
            self._report(line_of(event), "a second YAML document: an overlay file is one")
        entries: list[OverlayEntry] = fields.get("overlay", [])
        return entries

    def _refuse_key(self, event: Event, grammar: LevelGrammar, *, known: bool) -> None:
        if known or type(event) is not ScalarEvent:
            super()._refuse_key(event, grammar, known=known)
            return
        self._unknown_keys += 1
        self._report(line_of(event), _unknown(event.value, grammar))
        self._skip(self._next())

    # Entries

    def _entries(self, key: Event) -> list[OverlayEntry] | None:
        event = self._next()
        if is_null(event):
            self._report(
                line_of(key), "`overlay` has nothing behind it: an overlay that changes nothing is `overlay: []`"
            )
            return None
        if type(event) is not SequenceStartEvent:
            self._refuse(event, f"`overlay` must be a list of entries, found {found(event)}")
            return None
        entries = []
        while type(item := self._next()) is not SequenceEndEvent:
            if type(item) is not MappingStartEvent:
                self._refuse(item, f"an entry of an overlay is a mapping, found {found(item)}")
            elif (entry := self._entry(item)) is not None:
                entries.append(entry)
        return entries

    def _entry(self, start: Event) -> OverlayEntry | None:
        unknown_before = self._unknown_keys
        said, broken = self._mapping(OVERLAY_ENTRY)
        domain, path = self._domain(said.pop("domain", None)), self._steps(said.pop("path", None))
        if not said and not broken and self._unknown_keys == unknown_before:
            self._report(line_of(start), f"the entry lays no field over the rules that it names; accepted: {_ACCEPTED}")
        fields = {name: said[name] for name in OVERLAY_LIMIT_FIELDS if name in said}
        flags = {name: self._flag(name, said[name]) for name in OVERLAY_FLAGS if name in said}
        _check_alone(line_of(start), fields, self._report)
        lines = {name: line_of(event) for name, event in said.items()}
        return OverlayEntry(self._path, line_of(start), domain, path, fields, flags, lines)

    def _domain(self, event: Event | None) -> Glob:
        if event is None:
            return ANYTHING
        if not event.value:
            self._report(line_of(event), "`domain` is empty: leave it out to mean every domain")
        return Glob(event.value)

    def _steps(self, event: Event | None) -> tuple[Step, ...]:
        if event is None:
            return ()
        texts = [text.strip() for text in event.value.split(STEP)]
        if not all(texts) or any(text[0] in "=>" for text in texts):
            self._report(
                line_of(event),
                f"`path` must be steps of `key` or `key=value` with `>` between them, like "
                f"`path=/login > user`, found {found(event)}; leave it out to mean every rule",
            )
        if len(texts) > MAX_STEPS:
            self._report(line_of(event), f"`path` has more than {MAX_STEPS} steps")
        return tuple(map(step_of, texts))

    def _flag(self, name: str, event: Event) -> bool:
        try:
            return not is_null(event) and kinds.boolean(name, event)
        except FieldError as refused:
            self._report(line_of(event), str(refused))
            return False


def _unknown(name: str, grammar: LevelGrammar) -> str:
    """Return the reason for refusing a key: a rule's own, or none at all."""
    accepted = f"accepted: {', '.join(grammar.keys)}"
    if grammar is OVERLAY_ENTRY and any(name in level.keys for level in (RATE_LIMIT, DESCRIPTOR, ROOT)):
        return f"`{name}` is the rule's own: an overlay says how a limit is kept, not how much it is; {accepted}"
    close = difflib.get_close_matches(name, grammar.keys, 1)
    return f"unknown key {shown(name)} {grammar.here}{f'; did you mean `{close[0]}`?' if close else ''}; {accepted}"


def _check_alone(line: int, fields: dict[str, Any], report: Callable[[int, str], None]) -> None:
    """Report values that no rule accepts, and fields that make no sense together, whatever rule they are laid over."""
    # Over a limit that goes with anything, and with the fields that these may find in the rule.
    needed = {"burst": ("algorithm", "gcra"), "force_global": ("scope", "global")}
    around = dict(needed[name] for name in fields if name in needed)
    around |= {"unit": "day", "requests_per_unit": str(MAX_UINT32)}
    scalars = {name: ScalarEvent(None, None, (True, False), value) for name, value in around.items()}
    build_limit(RateLimitBlock(line, {**scalars, **fields}), {}, report)
