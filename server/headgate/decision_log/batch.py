"""Records by column: how a page becomes a block, and how readers find rows in one."""

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.decision_log.schema import (
    CODES,
    INTERNED,
    STORED,
    DecisionRecord,
    Flag,
    NodeRun,
    Per,
    SchemaField,
    checked_parts,
)

_64_BITS: Final = (1 << 64) - 1
_FEW: Final = 8
FOREVER_MS: Final = 1 << 62
_PLACES: Final = {
    line.name: sum([len(before.column.codes.rstrip("*")) for before in STORED[:index]])
    for index, line in enumerate(STORED)
}
"""The first column of each stored field."""


@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """Some records as they are stored: by column."""

    count: int
    columns: "Sequence[array[Any]]"
    """One per typecode of `CODES`; an interned field's has numbers into its table."""
    tables: Mapping[str, Sequence[Any]]
    """The values of each interned field, by its name."""

    def column(self, name: str) -> "array[Any]":
        """One field's column; of a field with two, the first."""
        return self.columns[_PLACES[name]]

    def records(self, source: NodeRun, rows: Sequence[int] | None = None) -> Iterator[DecisionRecord]:
        """The records one by one: all, or those of some rows."""
        wanted = range(self.count) if rows is None else rows
        values = [self._values(line, wanted) for line in STORED]
        names = [line.name for line in STORED]
        for row in zip(*values, strict=True):
            yield DecisionRecord(**dict(zip(names, row, strict=True)), source=source)

    def _values(self, line: SchemaField, rows: Sequence[int]) -> list[Any]:
        """One field's value in each of the rows, as records have it."""
        column = self.column(line.name)
        if line.column.codes == INTERNED:
            table = self.tables[line.name]
            values = {number: _value(line, table[number]) for number in {column[row] for row in rows}}
            return [values[column[row]] for row in rows]
        if line.column.per is Per.TRACE:
            low = self.columns[_PLACES[line.name] + 1]
            return [column[row] << 64 | low[row] for row in rows]
        if line.kind is Flag:
            return [Flag(column[row]) for row in rows]
        return [column[row] for row in rows]

    def to_bytes(self) -> list[bytes]:
        """The columns, little-endian, one after the other."""
        return [_little_endian(column) for column in self.columns]


def _value(line: SchemaField, stored: Any) -> Any:
    """A value of an interned field's table as records have it: JSON knows neither tuples nor their names.

    Raises TypeError or ValueError for what is none.
    """
    if hasattr(line.kind, "_fields"):
        return checked_parts(line.kind(*stored))
    if line.kind is tuple:
        return tuple([(str(key), str(value)) for key, value in stored])
    if not isinstance(stored, line.kind):
        raise TypeError(f"{line.name}: {type(stored).__name__}")
    return stored


def batch_of(values: Mapping[str, Sequence[int]], tables: Mapping[str, Sequence[Any]]) -> DecisionBatch:
    """A batch of the columns that are given by field; of interned fields, the numbers into their tables."""
    columns: list[array[Any]] = []
    for line in STORED:
        if line.column.per is Per.TRACE:
            ids = values[line.name]
            columns.append(array("Q", [trace_id >> 64 for trace_id in ids]))
            columns.append(array("Q", [trace_id & _64_BITS for trace_id in ids]))
        else:
            columns.append(array(line.column.codes[0], values[line.name]))
    return DecisionBatch(len(columns[0]), columns, tables)


def batch_from_bytes(data: bytes, count: int, tables: Mapping[str, Sequence[Any]]) -> DecisionBatch:
    """A batch as `to_bytes` wrote it. Raises ValueError where there is less."""
    columns: list[array[Any]] = []
    position = 0
    for code in CODES:
        column = array(code)
        length = column.itemsize * count
        column.frombytes(data[position : position + length])
        if len(column) != count:
            raise ValueError(f"{count} records, and {len(column)} of a column")
        if sys.byteorder == "big":
            column.byteswap()
        columns.append(column)
        position += length
    return DecisionBatch(count, columns, tables)


def _little_endian(column: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _rows_of(column: "array[Any]", wanted: frozenset[int]) -> Iterator[int]:
    """Rows with one of these values. Few are looked for in the column's bytes: a search reads thousands of blocks."""
    if len(wanted) > _FEW:
        yield from (row for row, value in enumerate(column) if value in wanted)
        return
    data, size = column.tobytes(), column.itemsize
    for value in wanted:
        needle = value.to_bytes(size, sys.byteorder)
        at = data.find(needle)
        while at >= 0:
            if at % size == 0:
                yield at // size
            at = data.find(needle, at + 1)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The decisions that a reader is after: of a descriptor or an id, in a stretch of time."""

    descriptor_hashes: frozenset[int] = frozenset()
    numbers: frozenset[int] = frozenset()
    since_ms: int = 0
    until_ms: int = FOREVER_MS

    def wants(self, record: DecisionRecord) -> bool:
        """Tell whether it is one of them. Without a descriptor or an id, all of the time are."""
        if not self.since_ms <= record.time_ms <= self.until_ms:
            return False
        return self.any_caller or record.descriptor_hash in self.descriptor_hashes or record.number in self.numbers

    def rows(self, batch: DecisionBatch) -> list[int]:
        """The rows of a batch that are wanted; a batch without any costs next to nothing."""
        times = batch.column("time_ms")
        if not batch.count or max(times) < self.since_ms or min(times) > self.until_ms:
            return []
        found: set[int] = set(range(batch.count)) if self.any_caller else set()
        for name, wanted in (("descriptor_hash", self.descriptor_hashes), ("number", self.numbers)):
            if wanted:
                found.update(_rows_of(batch.column(name), wanted))
        return [row for row in sorted(found) if self.since_ms <= times[row] <= self.until_ms]

    @property
    def any_caller(self) -> bool:
        """True where it names neither a descriptor nor an id."""
        return not (self.descriptor_hashes or self.numbers)
