"""One domain as lines of JSON, for the disk. JSON, because a file can be changed by others; lines, because millions of
rules in one call would hold the interpreter for seconds.

Lines are lists, after a head; the first item says of which kind:

    [[path, name, digest], text]              a file that the domain was made of, packed
    [slot number, {value: node number}]       a part of a large slot
    [false, values]                           the next limit
    [null, limit, is_rule, level, origins]    the next node (limit: its number, or null)
    [true, level]                             the domain's own level: the last line

A level is a list of [key, values, wildcards, any], where values is a dict, or the number of a large slot whose parts
came before, and nodes are named by their numbers. A node comes after those that its level names, and after its limit;
so lines are made and read one after the other, and never held all at once.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterator
from dataclasses import fields
from itertools import islice
from typing import Any

from headgate.limiter.limit import Algorithm, Limit, OnError, Scope, TrafficClass, Unit
from headgate.rules.changes import marked, unmarked
from headgate.rules.problems import Problem
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import Domain, Under
from headgate.rules.saved_marks import marks_json, marks_of
from headgate.rules.source import SourceFile
from headgate.rules.text_map import text_map
from headgate.rules.tree import NO_ORIGINS, NOWHERE, KeySlot, Level, RuleNode, Wildcard
from headgate.rules.wildcards import WildcardIndex

CHUNK = 500
"""Rules per line: about half a millisecond of work, between which others may run."""

_LIMIT_FIELDS = tuple(item.name for item in fields(Limit) if item.init)
_ENUMS: dict[str, Callable[[Any], Any]] = {
    "unit": Unit,
    "algorithm": Algorithm,
    "on_error": OnError,
    "scope": lambda value: None if value is None else Scope(value),
    "traffic_class": lambda value: None if value is None else TrafficClass(value),
    "replaces": tuple,
}


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


# Writing


def encode_domain(domain: Domain, pause: Callable[[], None]) -> Iterator[bytes]:
    """Write a domain, line by line; `pause` is called between them."""
    yield _dump(
        {
            "domain": domain.name,
            "shard_by": domain.shard_by,
            "request_limits": domain.request_limits,
            "total": f"{unmarked(domain).total:x}",
            "count": domain.count,
            "layers": domain.under.layers,
            "clashes": [[item.file, item.line, item.reason] for item in domain.under.clashes],
            "met": sorted(domain.under.met),
            "marks": marks_json(domain.marks),
        }
    )
    for file in domain.files:
        yield _dump([[file.path, file.name, file.digest], b64encode(file.packed).decode()])
    for record in _Encoder().records(domain.level):
        yield _dump(record)
        pause()


class _Encoder:
    """Numbers nodes in the order in which they are written: children first."""

    def __init__(self) -> None:
        self._limits: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._large_slots = 0

    def records(self, level: Level) -> Iterator[Any]:
        yield [True, (yield from self._level(level))]

    def _level(self, level: Level) -> Generator[Any, None, Any]:
        encoded = []
        for slot in level.values():
            values = yield from self._values(slot)
            for item in slot.ordered:
                yield from self._node(item.node)
            wildcards = [[item.pattern, item.shared, self._numbers[id(item.node)]] for item in slot.ordered]
            number = None if slot.any_node is None else (yield from self._node(slot.any_node))
            encoded.append([slot.key, values, wildcards, number])
        return encoded

    def _values(self, slot: KeySlot) -> Generator[Any, None, Any]:
        """Small slots as a dict; large ones in parts of their own, and then by number."""
        for node in slot.distinct():
            yield from self._node(node)
        items = iter(slot.values.items())
        first = self._part(items)
        if len(slot.values) <= CHUNK:
            return first
        number, part = self._large_slots, first
        self._large_slots += 1
        while part:
            yield [number, part]
            part = self._part(items)
        return number

    def _part(self, items: Iterator[tuple[str, RuleNode]]) -> dict[str, int]:
        return {value: self._numbers[id(node)] for value, node in islice(items, CHUNK)}

    def _node(self, node: RuleNode) -> Generator[Any, None, int]:
        number = self._numbers.get(id(node))
        if number is None:
            level = None if node.children is None else (yield from self._level(node.children))
            limit = None if node.limit is None else (yield from self._limit(node.limit))
            number = self._numbers[id(node)] = len(self._numbers)
            yield [None, limit, node.is_rule, level, dict(node.origins)]
        return number

    def _limit(self, limit: Limit) -> Generator[Any, None, int]:
        number = self._limits.get(id(limit))
        if number is None:
            number = self._limits[id(limit)] = len(self._limits)
            yield [False, [getattr(limit, name) for name in _LIMIT_FIELDS]]
        return number


# Reading


def decode_domain(lines: Iterator[bytes], pause: Callable[[], None]) -> Domain:
    """Read a domain. Raises RulesError, or one of the errors of reading JSON that is not what it should be."""
    head = json.loads(next(lines))
    decoder = _Decoder()
    for line in lines:
        decoder.record(*json.loads(line))
        pause()
    if decoder.root is None:
        raise ValueError("the domain's level is missing")
    said = head["request_limits"]
    name = str(head["domain"])
    domain = Domain(
        name,
        decoder.root,
        total=int(head["total"], 16),
        count=int(head["count"]),
        shard_by=str(head["shard_by"]),
        request_limits=None if said is None else RequestLimits(said),
        files=tuple(decoder.files),
        under=_under(head),
    )
    return marked(domain, marks_of(name, head["marks"]))


def _under(head: dict[str, Any]) -> Under:
    return Under(
        tuple((str(name), str(digest)) for name, digest in head["layers"]),
        tuple(Problem(*item) for item in head["clashes"]),
        frozenset((str(file), int(line)) for file, line in head["met"]),
    )


class _Decoder:
    def __init__(self) -> None:
        self._limits: list[Limit] = []
        self._large_slots: dict[int, dict[str, RuleNode]] = {}
        self._nodes: list[RuleNode] = []
        self.root: Level | None = None
        self.files: list[SourceFile] = []

    def record(self, kind: bool | int | list[str] | None, *content: Any) -> None:
        if isinstance(kind, list):
            path, name, digest = kind
            self.files.append(SourceFile.saved(path, b64decode(*content), name, digest))
        elif kind is None:
            limit, is_rule, level, origins = content
            children = None if level is None else self._level(level)
            own = None if limit is None else self._limits[limit]
            self._nodes.append(RuleNode(own, children, is_rule=is_rule, origins=origins or NO_ORIGINS))
        elif kind is True:
            self.root = self._level(*content)
        elif kind is False:
            self._limits.append(_limit(*content))
        else:
            self._large_slots.setdefault(kind, {}).update(self._values(*content))

    def _values(self, numbers: dict[str, int]) -> dict[str, RuleNode]:
        nodes = self._nodes
        return {value: nodes[number] for value, number in numbers.items()}

    def _level(self, encoded: list[Any]) -> Level:
        return {key: self._slot(key, *content) for key, *content in encoded}

    def _slot(self, key: str, values: Any, wildcards: list[Any], any_number: int | None) -> KeySlot:
        exact = self._large_slots.pop(values) if isinstance(values, int) else self._values(values)
        index = WildcardIndex([self._wildcard(key, *item) for item in wildcards]) if wildcards else None
        return KeySlot(key, text_map(exact), index, None if any_number is None else self._nodes[any_number])

    def _wildcard(self, key: str, pattern: str, shared: bool, number: int) -> Wildcard:
        return Wildcard(key, pattern, shared=shared, node=self._nodes[number], place=NOWHERE)


def _limit(values: list[Any]) -> Limit:
    named = dict(zip(_LIMIT_FIELDS, values, strict=True))
    for name, kind in _ENUMS.items():
        named[name] = kind(named[name])
    return Limit(**named)
