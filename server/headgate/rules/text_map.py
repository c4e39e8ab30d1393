"""A map from text to values that is changed by making another one, which shares all but the changed part.

The entries lie in buckets, small dicts, by the low bits of their texts' hashes; the buckets stand in rows. A change
copies one bucket, its row and the list of rows: some kilobytes, with five entries or five million. A bucket that is
full is split in two by one more bit. Where the table has no place of its own for the halves it is doubled, which copies
references only: its second half begins as a copy of the first. (This is extendible hashing.)

A lookup costs one step more than that of a dict. Buckets are never joined: a map that lost most of its entries keeps
small ones, until it is built anew.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

BUCKET_ENTRIES: Final = 85
"""Most entries of a bucket: as many as a dict of 128 places holds, 2 KB. Larger makes a change dearer, smaller the
table."""

BUILT_ENTRIES: Final = 70
"""Entries, at most and on the average, of the buckets of a map that is built at once: few are full."""

ROW_BITS: Final = 8
"""Bits of a hash that choose a bucket within its row: 256 buckets, some 14,000 entries."""

MOST_BITS: Final = 24
"""Bits of a hash by which buckets are split: a billion entries. Texts of one hash can't double the table for ever."""

V = TypeVar("V")


class TextBucket(Generic[V]):
    """Entries whose texts' hashes end with the same bits."""

    __slots__ = ("bits", "entries", "notes")

    def __init__(self, bits: int, entries: dict[str, V], notes: "array[int] | None" = None) -> None:
        self.bits = bits
        """The number of bits that they have in common."""
        self.entries = entries
        self.notes = notes
        """One number for each entry, in the dict's order; None: they are not known."""


class TextMap(Generic[V]):
    """An immutable map from text to values."""

    __slots__ = ("_column_mask", "_count", "_row_mask", "_rows")

    def __init__(self, rows: tuple[tuple[TextBucket[V], ...], ...], count: int) -> None:
        """`rows` have all the same length; use `text_map`."""
        self._rows = rows
        self._row_mask = len(rows) - 1
        self._column_mask = len(rows[0]) - 1
        self._count = count

    def __len__(self) -> int:
        return self._count

    def get(self, text: str) -> V | None:
        """Return the value of a text, or None."""
        place = hash(text)
        return self._rows[(place >> ROW_BITS) & self._row_mask][place & self._column_mask].entries.get(text)

    def items(self) -> Iterator[tuple[str, V]]:
        """Every entry: in the order in which they came while one bucket holds them all, else in any order."""
        for bucket in self._buckets():
            yield from bucket.entries.items()

    def values(self) -> Iterator[V]:
        """Every value, as often as it occurs, in the order of `items`."""
        for bucket in self._buckets():
            yield from bucket.entries.values()

    def noted(self) -> Iterator[tuple[str, V, int]]:
        """Every entry with its number, which is 0 where it is not known; in the order of `items`."""
        for bucket in self._buckets():
            notes = [0] * len(bucket.entries) if bucket.notes is None else bucket.notes
            for (text, value), note in zip(bucket.entries.items(), notes, strict=True):
                yield text, value, note

    def note_of(self, text: str) -> int:
        """Return the number that was kept with an entry that is there, or 0; slow, for messages."""
        bucket = self._bucket(hash(text))
        return 0 if bucket.notes is None else bucket.notes[list(bucket.entries).index(text)]

    def put(self, text: str, value: V) -> "TextMap[V]":
        """Return a map in which the text has this value; the numbers of its bucket are not known any more."""
        return self.changed({text: value})

    def changed(self, values: Mapping[str, V | None]) -> "TextMap[V]":
        """Return a map in which each of these texts has its value, or, with None, is not there: each bucket and each
        row that they are in is copied once. The numbers of these buckets are not known any more."""
        edit = _Edit(self._rows)
        for text, value in values.items():
            entries = edit.entries(hash(text))
            if value is None:
                entries.pop(text, None)
            else:
                entries[text] = value
        made = TextMap(edit.rows(), self._count + edit.added())
        full = edit.full()
        while full:
            place = full.pop()
            bucket = made._bucket(place)
            if len(bucket.entries) > BUCKET_ENTRIES and bucket.bits < MOST_BITS:
                made = made._split(place)
                full += (place, place ^ (1 << bucket.bits))
        return made

    def _buckets(self) -> Iterator[TextBucket[V]]:
        """Each bucket once: at the first of its places in the table."""
        columns = self._column_mask + 1
        for line, row in enumerate(self._rows):
            for column, bucket in enumerate(row):
                if (line * columns + column) >> bucket.bits == 0:
                    yield bucket

    def _bucket(self, place: int) -> TextBucket[V]:
        return self._rows[(place >> ROW_BITS) & self._row_mask][place & self._column_mask]

    def _with(self, place: int, low: TextBucket[V], high: TextBucket[V] | None, count: int) -> "TextMap[V]":
        """Put a bucket, or the two halves of one, in the place of the bucket that is there."""
        bits = self._bucket(place).bits
        rows = list(self._rows)
        size = len(rows) * (self._column_mask + 1)
        for position in range(place & ((1 << bits) - 1), size, 1 << bits):
            line = position >> ROW_BITS
            row = list(rows[line])
            row[position & self._column_mask] = low if high is None or not (position >> bits) & 1 else high
            rows[line] = tuple(row)
        return TextMap(tuple(rows), count)

    def _split(self, place: int) -> "TextMap[V]":
        bucket = self._bucket(place)
        if 1 << bucket.bits == len(self._rows) * (self._column_mask + 1):
            return self._doubled()._split(place)
        halves: tuple[dict[str, V], dict[str, V]] = ({}, {})
        for text, value in bucket.entries.items():
            halves[(hash(text) >> bucket.bits) & 1][text] = value
        low, high = (TextBucket(bucket.bits + 1, half) for half in halves)
        return self._with(place, low, high, self._count)

    def _doubled(self) -> "TextMap[V]":
        """Double the places: each bucket stands at twice as many."""
        if self._column_mask + 1 < 1 << ROW_BITS:
            row = self._rows[0]
            return TextMap((row + row,), self._count)
        return TextMap(self._rows + self._rows, self._count)


class _Edit(Generic[V]):
    """Rows of a map that is being made from another: what is touched is copied first."""

    def __init__(self, rows: tuple[tuple[TextBucket[V], ...], ...]) -> None:
        self._rows = rows
        self._columns = len(rows[0])
        self._changed: dict[int, list[TextBucket[V]]] = {}
        self._made: dict[TextBucket[V], tuple[int, int]] = {}
        """Buckets that are new, each with a place of it, and how many entries it had."""

    def entries(self, place: int) -> dict[str, V]:
        """Return the entries of a place, to be changed."""
        line, column = (place >> ROW_BITS) & (len(self._rows) - 1), place & (self._columns - 1)
        bucket = self._changed.get(line, self._rows[line])[column]
        if bucket not in self._made:
            made: TextBucket[V] = TextBucket(bucket.bits, bucket.entries.copy())
            self._made[made] = (place, len(bucket.entries))
            for position in range(place & ((1 << bucket.bits) - 1), len(self._rows) * self._columns, 1 << bucket.bits):
                self._row(position >> ROW_BITS)[position & (self._columns - 1)] = made
            bucket = made
        return bucket.entries

    def _row(self, line: int) -> list[TextBucket[V]]:
        row = self._changed.get(line)
        if row is None:
            row = self._changed[line] = list(self._rows[line])
        return row

    def rows(self) -> tuple[tuple[TextBucket[V], ...], ...]:
        """Return all rows."""
        rows = list(self._rows)
        for line, row in self._changed.items():
            rows[line] = tuple(row)
        return tuple(rows)

    def added(self) -> int:
        """Return by how many entries there are more."""
        return sum(len(bucket.entries) - count for bucket, (_, count) in self._made.items())

    def full(self) -> list[int]:
        """Return a place of each bucket that has too many entries."""
        return [place for bucket, (place, _) in self._made.items() if len(bucket.entries) > BUCKET_ENTRIES]


def text_map(entries: dict[str, V], notes: "array[int] | None" = None) -> TextMap[V]:
    """Build a map of these entries; `notes` has a number for each, in their order."""
    bits = 0
    while len(entries) > BUILT_ENTRIES << bits and bits < MOST_BITS:
        bits += 1
    if bits == 0:
        return TextMap(((TextBucket(0, entries, notes),),), len(entries))
    buckets: list[TextBucket[V]] = [
        TextBucket(bits, {}, None if notes is None else array("Q")) for _ in range(1 << bits)
    ]
    for number, (text, value) in enumerate(entries.items()):
        bucket = buckets[hash(text) & (1 << bits) - 1]
        bucket.entries[text] = value
        if notes is not None and bucket.notes is not None:
            bucket.notes.append(notes[number])
    columns = min(1 << bits, 1 << ROW_BITS)
    rows = [tuple(buckets[first : first + columns]) for first in range(0, len(buckets), columns)]
    return TextMap(tuple(rows), len(entries))
