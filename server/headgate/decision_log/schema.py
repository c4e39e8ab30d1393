"""The schema of the decision log: what a record holds, in one table.

A request that is logged leaves one record per limit that it met, all with one decision id. `DecisionRecord` is the
table: each attribute says where it is noted, how a block stores it, what JSON calls it and what it means. The rows of a
page (log.py), the columns of a block (batch.py), JSON both ways (json_lines.py) and the table of docs/explain.md
follow from it. What happened to the node itself (new rules, a breaker, a peer) is an `Event` in the same store, by the
same clock.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum, IntFlag
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, get_type_hints

from headgate.window import weighted

Entries: TypeAlias = tuple[tuple[str, str], ...]


class Flag(IntFlag):
    """Properties of a record, one bit each."""

    ALLOWED = 1
    """The request was admitted."""
    OVER = 2
    """This limit had no room."""
    SHADOW = 4
    """The rule never denies: it is in shadow mode."""
    QUOTA = 8
    """The rule is one of `quota_mode`: it denies only together with the request's other such rules."""
    SHARD_AWAY = 16
    """The breaker of the key's shard was not closed."""
    NO_COUNTER = 32
    """The key had no counter of its own any more: there was no room for one, or it has just gone."""
    REFUND = 64
    """The request gave its cost back."""


class LimitTerms(NamedTuple):
    """The terms of the rule, as this region enforced them."""

    limit: Annotated[int, "requests, or units of cost, per window"]
    window_ms: Annotated[int, "the window's length in ms"]
    algorithm: Annotated[str, "`sliding_window`, `fixed_window` or `gcra`"]
    burst: Annotated[int, "tokens of the bucket; `gcra` alone"]
    precision: Annotated[int, "the rule's `precision`"]
    on_error: Annotated[str, "the rule's failure policy"]
    scope: Annotated[str, "the rule's scope in force"]
    unit: Annotated[str, "the window as the rule says it, such as `minute`"]

    @property
    def capacity(self) -> int:
        """The most that may be counted."""
        return self.burst if self.algorithm == "gcra" else self.limit


class Rule(NamedTuple):
    """The rule that applied, by the names of limiter/rule_name.py."""

    domain: Annotated[str, "the request's domain"]
    id: Annotated[str, "the rule's id"]
    text: Annotated[str, "the rule for people, such as `user=* > path=/login`"]


class NodeRun(NamedTuple):
    """The process that wrote a record or an event."""

    region: Annotated[str, "the region of the node that decided"] = ""
    node: Annotated[str, "its name"] = ""
    run: Annotated[int, "a number that is new at every start of the node"] = 0


NOBODY: Final = NodeRun()

Parts = TypeVar("Parts", bound=tuple[Any, ...])


def checked_parts(parts: Parts) -> Parts:
    """Return the terms, rule or run, if each part is of its type: others' files are read too. Raises TypeError,
    ValueError."""
    for name, hint in _types(type(parts)).items():
        if type(getattr(parts, name)) is not hint:
            raise TypeError(f"{name} is no {hint.__name__}")
    if isinstance(parts, LimitTerms) and parts.window_ms < 1:
        raise ValueError(f"window_ms is {parts.window_ms}")
    return parts


@cache
def _types(kind: type) -> dict[str, type]:
    return get_type_hints(kind)


class Per(Enum):
    """Frequency with which a field's value is noted: once per …"""

    DECISION = "decision"
    """… charge of every logged decision: a number in a row of the page."""
    CHARGE = "charge"
    """… charge of the page, however often that is decided."""
    TRACE = "trace"
    """… decision of the page that is traced."""
    BLOCK = "block"
    """… block."""


class Form(Enum):
    """Form of a value in JSON."""

    PLAIN = "as it is"
    HEX = "16 hex digits"
    TRACE = "32 hex digits; left out where the request was not traced"
    FLAGS = "list of names"
    ENTRIES = "list of [key, value]; left out where values are not logged"


class Column(NamedTuple):
    """One field of a record: how it is noted, stored and shown."""

    json: tuple[str, ...]
    """Its name in JSON; for a field of several parts, one name per part. `a.b` is `b` of the object `a`."""
    meaning: str
    """Its sentence in the docs. Empty for a field of several parts: each part has its own."""
    codes: str
    """Typecodes of `array`, one per column of a block; INTERNED stores a value once per block."""
    position: int
    """Position of its first column in a block. Fixed for ever: files that others wrote are read by it."""
    per: Per = Per.DECISION
    form: Form = Form.PLAIN


INTERNED: Final = "H*"
"""Stored once per block, and by number in each record."""
INTERNED_CODE: Final = "H"
IN_HEAD: Final = ""
"""Stored in the head of the block: all of its records share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One limit that a logged request met. The order is that of JSON."""

    time_ms: Annotated[int, Column(("time_ms",), "the time of the key's shard when it was decided, unix ms", "q", 0)]
    number: Annotated[
        int,
        Column(
            ("id",),
            "the decision's id: the same in all records of one request, in its answer and in its header",
            "Q",
            1,
            form=Form.HEX,
        ),
    ]
    rule: Annotated[Rule, Column(("domain", "rule", "rule_text"), "", INTERNED, 17, Per.CHARGE)]
    version: Annotated[str, Column(("version",), "version of the rule set", INTERNED, 19, Per.CHARGE)]
    path: Annotated[str, Column(("path",), "which way it was decided; the glossary lists them", INTERNED, 20)]
    flags: Annotated[
        Flag,
        Column(("flags",), ", ".join([str(flag.name).lower() for flag in Flag]), "H", 16, form=Form.FLAGS),
    ]
    cost: Annotated[int, Column(("cost",), "what the request costs under this limit", "I", 10, Per.CHARGE)]
    remaining: Annotated[int, Column(("remaining",), "what the limit still had room for", "I", 11)]
    wait_ms: Annotated[
        int, Column(("wait_ms",), "over: ms until there would have been room; else until the window ends", "q", 12)
    ]
    own: Annotated[
        int,
        Column(("counted.own",), "counted by this node in the current window; `gcra`: in use of the bucket", "q", 6),
    ]
    others: Annotated[int, Column(("counted.others",), "counted by the other nodes of the region", "q", 7)]
    foreign: Annotated[int, Column(("counted.foreign",), "counted by the other regions", "q", 8)]
    previous: Annotated[
        int, Column(("counted.previous",), "counted in the window before, by all of them, at its full weight", "q", 9)
    ]
    terms: Annotated[
        LimitTerms, Column(tuple([f"terms.{name}" for name in LimitTerms._fields]), "", INTERNED, 18, Per.CHARGE)
    ]
    shard: Annotated[int, Column(("shard",), "the key's shard; -1: the node counts by itself", "h", 14)]
    live_nodes: Annotated[int, Column(("live_nodes",), "nodes of the region, as this one knew", "H", 15)]
    weight: Annotated[
        int, Column(("weight",), "decisions that the record stands for: 1, or the sampling of allowances", "I", 13)
    ]
    key: Annotated[
        int,
        Column(("key",), "a hash of the limit key: equal where requests share a counter", "Q", 2, Per.CHARGE, Form.HEX),
    ]
    descriptor_hash: Annotated[
        int, Column(("who",), "a hash of domain and descriptor, as the request had them", "Q", 3, Per.CHARGE, Form.HEX)
    ]
    source: Annotated[NodeRun, Column(("region", "node", "run"), "", IN_HEAD, -1, Per.BLOCK)] = NOBODY
    entries: Annotated[
        Entries, Column(("entries",), "the descriptor (`decision_log_values`)", INTERNED, 21, Per.CHARGE, Form.ENTRIES)
    ] = ()
    trace_id: Annotated[
        int,
        Column(("trace_id",), "the trace that the request is part of", "QQ", 4, Per.TRACE, Form.TRACE),
    ] = 0

    @property
    def allowed(self) -> bool:
        return bool(self.flags & Flag.ALLOWED)

    @property
    def over(self) -> bool:
        return bool(self.flags & Flag.OVER)

    @property
    def shadow(self) -> bool:
        return bool(self.flags & Flag.SHADOW)

    @property
    def time(self) -> str:
        """The time as text: UTC, to the millisecond."""
        return text_of_time(self.time_ms)

    @property
    def id(self) -> str:
        """The decision id, as answers have it."""
        return decision_id(self.number)

    @property
    def trace(self) -> str:
        """The trace id, as callers write it: 32 hex digits; empty where the request was not traced."""
        return f"{self.trace_id:032x}" if self.trace_id else ""

    @property
    def previous_weight(self) -> int:
        """The part of the previous window that still counted at that instant."""
        window_ms = self.terms.window_ms
        if self.terms.algorithm != "sliding_window" or not window_ms:
            return 0
        return weighted(self.previous, window_ms - self.time_ms % window_ms, window_ms)

    @property
    def counted(self) -> int:
        """All that counted against the limit, without the request's own cost where it was denied."""
        return self.own + self.others + self.foreign + self.previous_weight

    @property
    def capacity(self) -> int:
        """The most that may be counted."""
        return self.terms.capacity


class Derived(NamedTuple):
    """A value of JSON that follows from others, and is neither stored nor read back."""

    json: str
    attribute: str
    kind: type
    meaning: str


DERIVED_FIRST: Final = (
    Derived("time", "time", str, "when it was decided, as text, UTC"),
    Derived("allowed", "allowed", bool, "whether the request was admitted"),
    Derived("over", "over", bool, "whether this limit had no room"),
)
"""They begin every line."""
DERIVED_LAST: Final = (
    Derived("counted.previous_weight", "previous_weight", int, "what of `counted.previous` still counted at that time"),
)


class SchemaField(NamedTuple):
    """One line of the table: an attribute of `DecisionRecord` with its type and its column."""

    name: str
    kind: type
    column: Column


def _schema() -> tuple[SchemaField, ...]:
    hints = get_type_hints(DecisionRecord, include_extras=True)
    found = []
    for attribute in fields(DecisionRecord):
        hint = hints[attribute.name]
        kind = hint.__origin__
        found.append(SchemaField(attribute.name, getattr(kind, "__origin__", kind), hint.__metadata__[0]))
    return tuple(found)


SCHEMA: Final = _schema()
"""All fields of a record, in the order of JSON."""

STORED: Final = tuple(
    sorted([line for line in SCHEMA if line.column.codes != IN_HEAD], key=lambda line: line.column.position)
)
"""Fields that have a column of their own, or two, in the order of the block."""

ROW: Final = ("charge", *[line.name for line in SCHEMA if line.column.per is Per.DECISION])
"""The numbers of one row of a page, in their order: first the charge's number on the page."""

CODES: Final = tuple(
    [code for line in STORED for code in (INTERNED_CODE if line.column.codes == INTERNED else line.column.codes)]
)
"""The typecode of each column of a block."""

RECORD_BYTES: Final = sum([array(code).itemsize for code in CODES])
"""The size of a record before compression."""

LAST_MS: Final = 253_402_300_799_999
"""The end of the calendar: the year 9999."""
NO_SHARD: Final = -1
"""The node counts by itself."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a node: it started, took new rules, lost a shard, heard of another region."""

    time_ms: int
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    source: NodeRun = NOBODY

    def number(self, name: str, default: int) -> int:
        """Return a field that is a whole number; the default where it is something else."""
        try:
            return int(self.fields.get(name, default))
        except (TypeError, ValueError, OverflowError):
            return default


Entry: TypeAlias = DecisionRecord | Event
"""One entry of the log."""


def decision_id(number: int) -> str:
    """A decision's id as text: 16 hex digits."""
    return f"{number:016x}"


def text_of_time(time_ms: int) -> str:
    """UTC, to the millisecond; a time that no calendar has, as its number."""
    if not 0 <= time_ms <= LAST_MS:
        return f"{time_ms} ms"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
