"""One rules file: its events checked against the grammar and compiled on the way.

The file passes through once. Every problem is reported and reading goes on behind it; only YAML that does not parse
ends a file early. The result is a level of compiled rules without a domain: `domain` may stand at the end of the file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    DocumentEndEvent,
    DocumentStartEvent,
    MappingStartEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from headgate.rules import fields as kinds
from headgate.rules.defaults import PROGRAM, Defaults
from headgate.rules.fields import FieldError, found, shown
from headgate.rules.grammar import DESCRIPTOR, RATE_LIMIT, REPLACES, ROOT
from headgate.rules.limits import MODES, Draft, RateLimitBlock, build_limit
from headgate.rules.mappings import MappingReader
from headgate.rules.metadata import plain_mapping
from headgate.rules.pace import Pace
from headgate.rules.plain_events import plain_stream
from headgate.rules.problems import Problem
from headgate.rules.request_limits import RequestLimits
from headgate.rules.tree import Leaves, LevelBuilder, RuleNode, pack_place, rule_name, unpack_place
from headgate.rules.wildcards import is_pattern
from headgate.rules.yaml_events import Event, EventStream, YamlError, fault_of, file_stream, is_null, line_of

MAX_FILE_BYTES = 256 * 1024 * 1024
"""Far above a million rules; a larger file is a mistake, and would be read into memory."""

MAX_PROBLEMS = 1_000
"""Per file, then only their number: a generator's slip in a million rules must not fill the log."""

REQUEST_LIMITS: Mapping[str, RequestLimits] = {item.value: item for item in RequestLimits}

MAX_LEVELS = 64
"""Deepest nesting of descriptors: more entries than any request has, and far from the end of the stack."""


@dataclass(slots=True)
class FileRules:
    """The outcome of reading one file: its domain, its compiled rules and its problems."""

    path: str
    domain: str = ""
    domain_line: int = 1
    shard_by: str = ""
    shard_by_line: int = 1
    request_limits: RequestLimits | None = None
    """None: as the server is set."""
    request_limits_line: int = 1
    rules: LevelBuilder = field(default_factory=LevelBuilder)
    count: int = 0
    problems: list[Problem] = field(default_factory=list)


class _Problems:
    """The problems of one file, up to a bound."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._shown: list[Problem] = []
        self.count = 0

    def report(self, line: int, reason: str) -> None:
        self.count += 1
        if len(self._shown) < MAX_PROBLEMS:
            self._shown.append(Problem(self._path, line, reason))

    def in_order(self) -> list[Problem]:
        # A block behind several aliases is read several times; its problems are named once.
        problems = sorted(dict.fromkeys(self._shown), key=lambda problem: problem.line)
        if unshown := self.count - len(self._shown):
            reason = f"{unshown} more problems in this file are not shown"
            problems.append(Problem(self._path, problems[-1].line, reason))
        return problems


def read_file(
    path: str,
    data: bytes,
    *,
    number: int,
    leaves: Leaves,
    pace: Pace,
    defaults: Defaults = PROGRAM,
) -> FileRules:
    """Read one file. `number` stands in the places of its rules; `leaves` are shared by the files that are read
    together; `pace` hears of every descriptor.
    """
    result = FileRules(path)
    problems = _Problems(path)
    try:
        _Reader(file_stream(data, pace.breathe), problems, result, number, leaves, pace.tick, defaults).read()
    except YamlError as fault:
        problems.report(fault.line, fault.reason)
    except yaml.YAMLError as error:
        located = fault_of(error, data)
        problems.report(located.line, located.reason)
    result.problems = problems.in_order()
    return result


def read_descriptor(values: Mapping[str, Any]) -> FileRules:
    """Read one descriptor that is at hand as plain values, as one of a file."""
    result = FileRules("")
    problems = _Problems("")
    try:
        reader = _Reader(plain_stream(values), problems, result, 0, Leaves(), lambda _: None, PROGRAM)
        result.rules = reader.descriptor()
    except YamlError as fault:
        problems.report(fault.line, fault.reason)
    result.problems = problems.in_order()
    return result


class _Reader(MappingReader):
    def __init__(
        self,
        stream: EventStream,
        problems: _Problems,
        result: FileRules,
        number: int,
        leaves: Leaves,
        tick: Callable[[int], None],
        defaults: Defaults,
    ) -> None:
        super().__init__(stream, problems.report)
        self._problems = problems
        self._result = result
        self._number = number
        self._leaves = leaves
        self._tick = tick
        self._defaults = defaults
        self._levels = 0

    # The document

    def read(self) -> None:
        self._next()  # the stream's start
        event = self._next()
        if type(event) is not DocumentStartEvent:
            self._report(1, "the file is empty: it needs a `domain` and `descriptors`")
            return
        self._root(self._next())
        self._next()  # the document's end
        self._end_of_stream()

    def _end_of_stream(self) -> None:
        while type(event := self._next()) is not StreamEndEvent:
            content = self._next()
            if not is_null(content):
                self._report(line_of(event), "a second YAML document: one file holds one domain")
            self._skip(content)
            while type(self._next()) is not DocumentEndEvent:
                pass

    def _root(self, event: Event) -> None:
        if type(event) is not MappingStartEvent:
            # Not what it says: a name may be a link to any file, and messages are logged.
            what = "a list" if type(event) is SequenceStartEvent else "nothing" if is_null(event) else "text"
            self._refuse(event, f"a rules file is a mapping with `domain` and `descriptors`, found {what}")
            return
        fields: dict[str, Any] = {}
        try:
            _, broken = self._mapping(ROOT, fields)
        finally:
            # Even of a file that breaks off: its problems are that domain's.
            self._read_domain(fields.get("domain"))
        if "domain" not in fields and "domain" not in broken:
            self._report(line_of(event), "the file has no `domain`")
        shard_by = fields.get("shard_by")
        if shard_by is not None:
            self._result.shard_by = shard_by.value
            self._result.shard_by_line = line_of(shard_by)
            if not shard_by.value:
                self._report(line_of(shard_by), "`shard_by` is empty: it is the key of a descriptor's entry")
        self._read_request_limits(fields.get("request_limits"))
        self._result.rules = fields.get("descriptors") or LevelBuilder()

    def _read_domain(self, event: Event | None) -> None:
        if event is None:
            return
        self._result.domain = event.value
        self._result.domain_line = line_of(event)
        if not event.value:
            self._report(line_of(event), "`domain` is empty")

    def _read_request_limits(self, event: Event | None) -> None:
        if event is None:
            return
        self._result.request_limits_line = line_of(event)
        try:
            self._result.request_limits = kinds.one_of("request_limits", event, REQUEST_LIMITS)
        except FieldError as refused:
            self._report(line_of(event), str(refused))

    # Descriptors

    def descriptor(self) -> LevelBuilder:
        """Read one descriptor that stands alone."""
        level = LevelBuilder()
        self._descriptor(self._next(), level)
        return level

    def _descriptors(self, key: Event) -> LevelBuilder | None:
        event = self._next()
        if type(event) is not SequenceStartEvent:
            if is_null(event):
                return LevelBuilder()
            self._refuse(event, f"`descriptors` must be a list, found {found(event)}")
            return None
        if self._levels == MAX_LEVELS:
            self._report(line_of(key), f"descriptors are nested deeper than {MAX_LEVELS} levels")
            self._skip(event)
            return None
        self._levels += 1
        level = LevelBuilder()
        self._descriptor_list(level)
        self._levels -= 1
        return level

    def _descriptor_list(self, level: LevelBuilder) -> None:
        while type(event := self._next()) is not SequenceEndEvent:
            if type(event) is MappingStartEvent:
                self._descriptor(event, level)
            else:
                self._refuse(event, f"a descriptor is a mapping with a `key`, found {found(event)}")

    def _descriptor(self, start: Event, level: LevelBuilder) -> None:
        self._tick(start.start_mark.index)
        fields, broken = self._mapping(DESCRIPTOR)
        line = line_of(start)
        key, value = fields.get("key"), fields.get("value")
        key_text = "" if key is None else key.value
        value_text = "" if value is None else value.value
        if not key_text and "key" not in broken:
            at, reason = (line, "a descriptor has no `key`") if key is None else (line_of(key), "`key` is empty")
            self._report(at, reason)
        shared = "value" not in broken and self._shared(fields, key_text, value_text)
        node = self._node(fields, shared=shared)
        if not key_text or "value" in broken:
            return
        first = level.add(key_text, value_text, node, pack_place(self._number, line), shared=shared)
        if first is not None:
            _, first_line = unpack_place(first)
            self._report(
                line, f"duplicate descriptor {shown(rule_name(key_text, value_text))}, first at line {first_line}"
            )

    def _shared(self, fields: dict[str, Any], key: str, value: str) -> bool:
        event = fields.get("share_threshold")
        if event is None or not self._flag(fields, "share_threshold"):
            return False
        if not is_pattern(key, value):
            self._report(line_of(event), "`share_threshold: true` needs a `value` with a `*` in it")
        return True

    def _flag(self, fields: dict[str, Any], name: str) -> bool:
        event = fields.get(name)
        if event is None or is_null(event):
            return False
        try:
            return kinds.boolean(name, event)
        except FieldError as refused:
            self._report(line_of(event), str(refused))
            return False

    def _node(self, fields: dict[str, Any], *, shared: bool) -> RuleNode:
        """Node of the rule; one without children is shared by all rules with the same limit."""
        block: RateLimitBlock | None = fields.get("rate_limit")
        builder: LevelBuilder | None = fields.get("descriptors")
        children = builder.finish() if builder else None
        if block is None or block is _NO_BLOCK:
            self._beside(fields)
            if children is not None:
                return RuleNode(None, children, is_rule=shared)
            return self._leaves.make(None, None)
        self._result.count += 1
        leaf = self._leaf(block, fields)
        return leaf if children is None else self._leaves.with_children(leaf, children)

    def _leaf(self, block: RateLimitBlock, fields: dict[str, Any]) -> RuleNode:
        written = _as_written(block, fields)
        leaf = self._leaves.find(written) if written is not None else None
        if leaf is not None:
            return leaf
        before = self._problems.count
        draft = Draft(block, self._beside(fields))
        limit = build_limit(block, draft.beside, self._report, self._defaults)
        # Whatever its spelling, an equal limit of the same fields is one object.
        given = frozenset(block.scalars)
        origins = {} if limit is None else self._defaults.taken(given, limit)
        leaf = self._leaves.make((repr(limit), given), limit, origins, draft)
        if written is not None and self._problems.count == before:
            self._leaves.name(written, leaf)
        return leaf

    def _beside(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields of the limit that stand beside its `rate_limit`."""
        modes = {name: self._flag(fields, written) for written, name in MODES.items()}
        return {**modes, "metadata": fields.get("metadata")}

    # Fields that are not scalars

    def _rate_limit(self, key: Event) -> RateLimitBlock | None:
        event = self._next()
        if type(event) is MappingStartEvent:
            fields, broken = self._mapping(RATE_LIMIT)
            replaces = fields.pop("replaces", ())
            return RateLimitBlock(line_of(key), fields, replaces, frozenset(broken))
        if is_null(event):
            return _NO_BLOCK
        self._refuse(event, f"`rate_limit` must be a mapping, found {found(event)}")
        return None

    def _replaces(self, key: Event) -> tuple[str, ...] | None:
        event = self._next()
        if is_null(event):
            return ()
        if type(event) is not SequenceStartEvent:
            self._refuse(event, f"`replaces` must be a list of `name: …` entries, found {found(event)}")
            return None
        names: dict[str, None] = {}
        while type(event := self._next()) is not SequenceEndEvent:
            names |= self._replaced_name(event)
        return tuple(names)

    def _replaced_name(self, event: Event) -> dict[str, None]:
        line = line_of(event)
        if type(event) is MappingStartEvent:
            fields, broken = self._mapping(REPLACES)
            name = fields.get("name")
            if name is not None and name.value:
                return {name.value: None}
            if not broken:
                self._report(line, "an entry of `replaces` has no name")
        elif is_null(event):
            self._report(line, "an entry of `replaces` has no name")
        else:
            self._refuse(event, f"an entry of `replaces` is a mapping with a `name`, found {found(event)}")
        return {}

    def _metadata(self, key: Event) -> Mapping[str, Any] | None:
        event = self._next()
        if is_null(event):
            return {}
        if type(event) is MappingStartEvent:
            return plain_mapping(self._next, self._report)
        self._refuse(event, f"`metadata` must be a mapping, found {found(event)}")
        return None


_NO_BLOCK = RateLimitBlock(0, {})
"""`rate_limit:` with nothing behind it: no limit, as in the field."""


def _as_written(block: RateLimitBlock, fields: dict[str, Any]) -> Any | None:
    """A key under which a block that was checked once is found again; None for the rare fields."""
    if block.replaces or block.broken or "metadata" in fields:
        return None
    modes = [(name, fields[name].value, fields[name].implicit) for name in MODES if name in fields]
    return (*((name, event.value, event.implicit) for name, event in block.scalars.items()), *modes)
