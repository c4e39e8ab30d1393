"""One entry of the decision log, as writers make it, as readers get it, and as a JSON line.

A request that is logged leaves one record per limit that it met, all with one decision id. What happened to the node
itself (new rules, a breaker, a peer) is an `Event` in the same store, by the same clock.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntFlag
from typing import Any, Final, NamedTuple, TypeAlias

Entries: TypeAlias = tuple[tuple[str, str], ...]


class Flag(IntFlag):
    """What else is true of a record, one bit each."""

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
    """What the rule said, as this region enforced it."""

    limit: int
    window_ms: int
    algorithm: str
    burst: int
    precision: int
    on_error: str
    scope: str
    unit: str

    @property
    def capacity(self) -> int:
        """What may be counted at most."""
        return self.burst if self.algorithm == "gcra" else self.limit


TERMS: Final = ("limit", "window_ms", "algorithm", "burst", "precision", "on_error", "scope", "unit")


class Rule(NamedTuple):
    """Which rule, by the names of limiter/rule_name.py."""

    domain: str
    id: str
    text: str


COLUMNS: Final = (
    ("time_ms", "q"),
    ("number", "Q"),
    ("key", "Q"),
    ("who", "Q"),
    ("trace_high", "Q"),
    ("trace_low", "Q"),
    ("own", "q"),
    ("others", "q"),
    ("foreign", "q"),
    ("previous", "q"),
    ("cost", "I"),
    ("remaining", "I"),
    ("wait_ms", "q"),
    ("weight", "I"),
    ("shard", "h"),
    ("live_nodes", "H"),
    ("flags", "H"),
)
"""Of every record, with how each is stored (typecodes of `array`)."""

INTERNED: Final = ("rule", "terms", "version", "path", "entries")
"""Stored once per block, and by number in each record."""
INTERNED_CODE: Final = "H"

RECORD_BYTES: Final = 8 * 11 + 4 * 3 + 2 * 3 + 2 * len(INTERNED)
"""What a record takes before compression."""

FIELDS: Final = (*(name for name, _ in COLUMNS), *INTERNED)


@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """Some records as they are stored: by column."""

    count: int
    columns: "Sequence[array[Any]]"
    """One per line of `COLUMNS`, then one per name of `INTERNED`, with numbers into its table."""
    tables: Mapping[str, Sequence[Any]]
    """Of each name of `INTERNED`, what its numbers stand for."""

    def column(self, name: str) -> "array[Any]":
        """One column, by its name."""
        return self.columns[FIELDS.index(name)]

    def records(self, source: "NodeRun", rows: Sequence[int] | None = None) -> "Iterator[DecisionRecord]":
        """The records one by one: all, or those of some rows."""
        rules = [Rule(*rule) for rule in self.tables["rule"]]
        terms = [LimitTerms(*terms) for terms in self.tables["terms"]]
        entries = [tuple([(key, value) for key, value in pairs]) for pairs in self.tables["entries"]]
        tables: tuple[Sequence[Any], ...] = (rules, terms, self.tables["version"], self.tables["path"], entries)
        plain = len(COLUMNS)
        numbers = range(self.count) if rows is None else rows
        for row in ([column[number] for column in self.columns] for number in numbers):
            fields: dict[str, Any] = dict(zip(FIELDS, row[:plain], strict=False))
            fields["flags"] = Flag(fields["flags"])
            for name, table, number in zip(INTERNED, tables, row[plain:], strict=True):
                fields[name] = table[number]
            yield DecisionRecord(**fields, source=source)


NO_SHARD: Final = -1
"""The node counts by itself."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """Who wrote a record or an event."""

    region: str = ""
    node: str = ""
    run: int = 0


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One limit that a logged request met."""

    time_ms: int
    """The time of the key's shard."""
    number: int
    """The decision's id: the same in all records of one request, in its answer and in its header."""
    key: int
    """A hash of the limit key: equal where requests share a counter."""
    who: int
    """A hash of domain and descriptor, as the request had them."""
    trace_high: int
    trace_low: int
    """With `trace_high`: the id of the trace that the request is part of. Both 0 where it is not traced."""
    own: int
    """What this node had counted in the current window; for gcra, what the bucket had in use."""
    others: int
    """What the other nodes of the region had."""
    foreign: int
    """What the other regions had."""
    previous: int
    """What the window before this one had, of all of them together, at its full weight."""
    cost: int
    remaining: int
    wait_ms: int
    """Of a limit without room: until it would have had some. Of others: until the window ends."""
    weight: int
    """How many decisions the record stands for: 1, or the sampling of allowances."""
    shard: int
    live_nodes: int
    flags: Flag
    rule: Rule
    terms: LimitTerms
    version: str
    """Of the rule set."""
    path: str
    entries: Entries = ()
    """The descriptor, where values are logged."""
    source: NodeRun = field(default_factory=NodeRun)

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
    def id(self) -> str:
        """The decision id, as answers have it."""
        return decision_id(self.number)

    @property
    def trace(self) -> str:
        """The trace id, as callers write it: 32 hex digits; empty where the request was not traced."""
        return f"{self.trace_high:016x}{self.trace_low:016x}" if self.trace_high or self.trace_low else ""

    @property
    def previous_weight(self) -> int:
        """What of the previous window still counted at that instant."""
        window_ms = self.terms.window_ms
        if self.terms.algorithm != "sliding_window" or not window_ms:
            return 0
        return self.previous * (window_ms - self.time_ms % window_ms) // window_ms

    @property
    def counted(self) -> int:
        """All that counted against the limit, without the request's own cost where it was denied."""
        return self.own + self.others + self.foreign + self.previous_weight

    @property
    def capacity(self) -> int:
        """What may be counted at most."""
        return self.terms.capacity


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which decisions a reader is after: of a descriptor, a counter or an id, in a stretch of time."""

    who: frozenset[int] = frozenset()
    keys: frozenset[int] = frozenset()
    numbers: frozenset[int] = frozenset()
    since_ms: int = 0
    until_ms: int = 1 << 62

    def wants(self, record: DecisionRecord) -> bool:
        """Whether it is one of them. Without a descriptor, counter or id, all of the time are."""
        if not self.since_ms <= record.time_ms <= self.until_ms:
            return False
        return self._any or record.who in self.who or record.key in self.keys or record.number in self.numbers

    def rows(self, batch: DecisionBatch) -> list[int]:
        """Of a batch, those rows; a batch without any costs next to nothing."""
        times = batch.column("time_ms")
        if not batch.count or max(times) < self.since_ms or min(times) > self.until_ms:
            return []
        found: set[int] = set(range(batch.count)) if self._any else set()
        for name, wanted in (("who", self.who), ("key", self.keys), ("number", self.numbers)):
            if wanted:
                found.update([row for row, value in enumerate(batch.column(name)) if value in wanted])
        return [row for row in sorted(found) if self.since_ms <= times[row] <= self.until_ms]

    @property
    def _any(self) -> bool:
        return not (self.who or self.keys or self.numbers)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a node: it started, took new rules, lost a shard, heard of another region."""

    time_ms: int
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    source: NodeRun = field(default_factory=NodeRun)


def decision_id(number: int) -> str:
    """A decision's id as text: 16 hex digits."""
    return f"{number:016x}"


def text_of_time(time_ms: int) -> str:
    """UTC, to the millisecond."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_to_json(record: DecisionRecord) -> dict[str, Any]:
    """A record as one JSON object, which `record_from_json` reads back."""
    terms = record.terms
    line: dict[str, Any] = {
        "kind": "decision",
        "time": text_of_time(record.time_ms),
        "time_ms": record.time_ms,
        "id": record.id,
        "domain": record.rule.domain,
        "rule": record.rule.id,
        "rule_text": record.rule.text,
        "version": record.version,
        "path": record.path,
        "allowed": record.allowed,
        "over": record.over,
        "flags": [flag.name.lower() for flag in Flag if flag in record.flags and flag.name],
        "cost": record.cost,
        "remaining": record.remaining,
        "wait_ms": record.wait_ms,
        "counted": {
            "own": record.own,
            "others": record.others,
            "foreign": record.foreign,
            "previous": record.previous,
            "previous_weight": record.previous_weight,
        },
        "terms": dict(zip(TERMS, terms, strict=True)),
        "shard": record.shard,
        "live_nodes": record.live_nodes,
        "weight": record.weight,
        "key": f"{record.key:016x}",
        "who": f"{record.who:016x}",
        **_source_to_json(record.source),
    }
    if record.entries:
        line["entries"] = [list(pair) for pair in record.entries]
    if record.trace:
        line["trace_id"] = record.trace
    return line


def record_from_json(line: Mapping[str, Any]) -> DecisionRecord:
    """The record of a JSON line. Raises KeyError, TypeError or ValueError for what is none."""
    counted, trace = line["counted"], str(line.get("trace_id", "")) or "0"
    return DecisionRecord(
        time_ms=int(line["time_ms"]),
        number=int(line["id"], 16),
        key=int(line["key"], 16),
        who=int(line["who"], 16),
        trace_high=int(trace, 16) >> 64,
        trace_low=int(trace, 16) & (1 << 64) - 1,
        own=int(counted["own"]),
        others=int(counted["others"]),
        foreign=int(counted["foreign"]),
        previous=int(counted["previous"]),
        cost=int(line["cost"]),
        remaining=int(line["remaining"]),
        wait_ms=int(line["wait_ms"]),
        weight=int(line["weight"]),
        shard=int(line["shard"]),
        live_nodes=int(line["live_nodes"]),
        flags=_flags(line["flags"]),
        rule=Rule(line["domain"], line["rule"], line["rule_text"]),
        terms=LimitTerms(**line["terms"]),
        version=line["version"],
        path=line["path"],
        entries=tuple([(str(key), str(value)) for key, value in line.get("entries", ())]),
        source=_source_from_json(line),
    )


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as one JSON object, which `event_from_json` reads back."""
    return {
        "kind": event.kind,
        "time": text_of_time(event.time_ms),
        "time_ms": event.time_ms,
        "fields": dict(event.fields),
        **_source_to_json(event.source),
    }


def event_from_json(line: Mapping[str, Any]) -> Event:
    """The event of a JSON line. Raises KeyError, TypeError or ValueError for what is none."""
    return Event(int(line["time_ms"]), str(line["kind"]), dict(line["fields"]), _source_from_json(line))


def _flags(names: Any) -> Flag:
    flags = Flag(0)
    for name in names:
        flags |= Flag[str(name).upper()]
    return flags


def _source_to_json(source: NodeRun) -> dict[str, Any]:
    return {"region": source.region, "node": source.node, "run": source.run}


def _source_from_json(line: Mapping[str, Any]) -> NodeRun:
    return NodeRun(str(line["region"]), str(line["node"]), int(line["run"]))
