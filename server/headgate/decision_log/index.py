"""The index of a segment: what each of its blocks may hold, in a file beside it, so that readers leave out the rest.

One entry per block is appended behind the block itself: when and by which ids its decisions were made, and two bytes of
each descriptor's hash in it. So an index may lack the last blocks of its segment, after a crash or on a full disk, and
never says of one that is there that it is not: readers walk the blocks behind the last entry. When a segment is full,
an entry for the whole of it ends its index: most segments are left out by that alone. A segment without an index, of
an earlier version, is walked once, and the reader leaves an index behind.
"""

import contextlib
import os
import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headgate.decision_log.batch import DecisionBatch, RecordFilter
from headgate.decision_log.files import create_log_file
from headgate.decision_log.schema import Event

SUFFIX: Final = ".hgx"
MAGIC: Final = b"HGX1" if sys.byteorder == "little" else b"HGXB"
"""An index is read on machines of its writer's byte order; elsewhere the segment is walked."""
DECISIONS: Final = b"D"
EVENTS: Final = b"E"
_SEGMENT: Final = b"S"

_FIXED: Final = struct.Struct("<IIcqIQIH")
"""Offset and length of the block, its kind, first time and span, first id and span, number of hash parts."""
_SUM: Final = struct.Struct("<I")
_SPAN_UNKNOWN: Final = 0xFFFF_FFFF
_NO_END: Final = (1 << 64) - 1
_HASH_SHIFT: Final = 48
"""Bits of a descriptor's hash that an index leaves out; it keeps the highest 16. Of blocks with 1,024 descriptors one
in 64 is read in vain."""
_MOST_PARTS: Final = 0xFFFF
_PART: Final = "H"


class BlockFacts(NamedTuple):
    """Contents that a block, or all blocks of a segment, may have."""

    kind: bytes
    first_ms: int
    last_ms: int
    first_number: int = 0
    last_number: int = 0
    hash_parts: bytes = b""
    """The beginnings of descriptors' hashes, sorted, 16 bits each."""


class Wanted:
    """A search, as it is put to indexes."""

    __slots__ = ("_hash_parts", "_numbers", "any_caller", "since_ms", "until_ms")

    def __init__(self, want: RecordFilter) -> None:
        self.since_ms, self.until_ms = want.since_ms, want.until_ms
        self.any_caller = want.any_caller
        self._numbers = sorted(want.numbers)
        self._hash_parts = [array(_PART, [value >> _HASH_SHIFT]).tobytes() for value in want.descriptor_hashes]

    def in_segment(self, facts: BlockFacts) -> bool:
        """Tell whether a segment may hold wanted decisions; False is certain. Of a segment nobody knows the hashes."""
        if facts.first_ms > self.until_ms or facts.last_ms < self.since_ms:
            return False
        return self.any_caller or bool(self._hash_parts) or self.has_number(facts.first_number, facts.last_number)

    def has_number(self, first: int, last: int) -> bool:
        """Tell whether an id in this range is wanted."""
        at = bisect_left(self._numbers, first)
        return at < len(self._numbers) and self._numbers[at] <= last

    def has_hash(self, data: bytes, begin: int, end: int) -> bool:
        """Tell whether some wanted descriptor's hash begins as a part between `begin` and `end` of an index does."""
        for part in self._hash_parts:
            at = data.find(part, begin, end)
            while at >= 0:
                if (at - begin) % 2 == 0:
                    return True
                at = data.find(part, at + 1, end)  # it was half of one part and half of the next
        return False


class IndexEntry(NamedTuple):
    """One block of a segment."""

    offset: int
    length: int
    facts: BlockFacts

    @property
    def end(self) -> int:
        """The offset of the next block."""
        return self.offset + self.length


def facts_of_decisions(batch: DecisionBatch) -> BlockFacts:
    """The facts of a block of records."""
    times, numbers = batch.column("time_ms"), batch.column("number")
    parts = sorted({value >> _HASH_SHIFT for value in batch.column("descriptor_hash")})
    return BlockFacts(
        DECISIONS, min(times), max(times), min(numbers), max(numbers), array(_PART, parts[:_MOST_PARTS]).tobytes()
    )


def facts_of_events(events: Iterable[Event]) -> BlockFacts:
    """The facts of a block of events."""
    times = [event.time_ms for event in events]
    return BlockFacts(EVENTS, min(times), max(times))


class SegmentFacts(NamedTuple):
    """The last entry of a full segment's index."""

    covered: int
    """The segment's bytes that the index is about."""
    decisions: BlockFacts
    """The facts of all its blocks of records together, without hashes."""
    event_blocks: tuple[tuple[int, int], ...]
    """Offset and length of each block of events."""


class IndexWriter:
    """Appends entries to the index of one segment. Raises OSError; then the rest of the segment has no index."""

    def __init__(self, segment: Path) -> None:
        self._fd = create_log_file(index_path(segment), os.O_APPEND)
        self._entries = _Totals()
        os.write(self._fd, MAGIC)

    def add(self, entry: IndexEntry) -> None:
        """Write one entry. Its block is on disk."""
        self._entries.add(entry)
        os.write(self._fd, pack_entry(entry))

    def close(self, *, finished: bool) -> None:
        """End the index; if the segment is finished, with the entry for the whole of it."""
        try:
            if finished:
                os.write(self._fd, self._entries.packed())
        finally:
            os.close(self._fd)


class _Totals:
    """Gathers the last entry of an index."""

    def __init__(self) -> None:
        self._covered = 0
        self._all = BlockFacts(DECISIONS, 1 << 62, -(1 << 62), _NO_END, 0)
        self._events = array("I")

    def add(self, entry: IndexEntry) -> None:
        self._covered = entry.end
        facts, total = entry.facts, self._all
        if facts.kind == EVENTS:
            self._events.extend((entry.offset, entry.length))
            return
        self._all = BlockFacts(
            DECISIONS,
            min(total.first_ms, facts.first_ms),
            max(total.last_ms, facts.last_ms),
            min(total.first_number, facts.first_number),
            max(total.last_number, facts.last_number),
        )

    def packed(self) -> bytes:
        """The entry, and behind it its size: it is found from the end. Nothing, where there are too many events."""
        blocks = self._events.tobytes()
        if len(blocks) // 2 > _MOST_PARTS:
            return b""
        facts = self._all
        if facts.first_ms > facts.last_ms:
            facts = BlockFacts(DECISIONS, 1 << 62, 1 << 62)  # no decisions: none is wanted then
        entry = pack_entry(IndexEntry(self._covered, 0, facts._replace(kind=_SEGMENT, hash_parts=blocks)))
        return entry + _SUM.pack(len(entry))


def pack_entry(entry: IndexEntry) -> bytes:
    """An entry as an index has it."""
    facts = entry.facts
    fixed = _FIXED.pack(
        entry.offset,
        entry.length,
        facts.kind,
        facts.first_ms,
        min(facts.last_ms - facts.first_ms, _SPAN_UNKNOWN),
        facts.first_number,
        min(facts.last_number - facts.first_number, _SPAN_UNKNOWN),
        len(facts.hash_parts) // 2,
    )
    data = fixed + facts.hash_parts
    return data + _SUM.pack(zlib.crc32(data))


class Scanned(NamedTuple):
    """Entries of an index."""

    entries: list[IndexEntry]
    covered: int
    """Up to where the segment's blocks have entries, wanted or not."""


def scan(data: bytes, wanted: Wanted | None = None) -> Scanned:
    """The entries of an index, up to the first that is not whole or is about the whole segment.

    With `wanted`, those of blocks that may hold it. A log may have a million entries: most are not even made.
    """
    found: list[IndexEntry] = []
    position = covered = 0
    fixed, size, unpack = _FIXED.size, len(data), _FIXED.unpack_from
    since_ms, until_ms = (0, 0) if wanted is None else (wanted.since_ms, wanted.until_ms)
    while position + fixed <= size:
        offset, length, kind, first_ms, span_ms, first_number, span, parts = unpack(data, position)
        begin = position + fixed
        end = begin + 2 * parts
        if offset < covered or kind == _SEGMENT or data[end : end + 4] != _SUM.pack(zlib.crc32(data[position:end])):
            break
        position, covered = end + 4, offset + length
        last_number = _last(first_number, span)
        if wanted is None or (
            first_ms <= until_ms
            and (first_ms + span_ms >= since_ms or span_ms == _SPAN_UNKNOWN)
            and kind == DECISIONS
            and (wanted.any_caller or wanted.has_number(first_number, last_number) or wanted.has_hash(data, begin, end))
        ):
            facts = BlockFacts(kind, first_ms, _last(first_ms, span_ms), first_number, last_number, data[begin:end])
            found.append(IndexEntry(offset, length, facts))
    return Scanned(found, covered)


def _last(first: int, span: int) -> int:
    return _NO_END if span == _SPAN_UNKNOWN else first + span


def index_path(segment: Path) -> Path:
    """The index beside a segment."""
    return segment.with_suffix(SUFFIX)


def read_segment_facts(segment: Path) -> SegmentFacts | None:
    """The last entry of a segment's index; None where it has none, or the segment has grown since."""
    try:
        with index_path(segment).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _SUM.size))
            length = int.from_bytes(file.read(), "little")
            if not _FIXED.size + _SUM.size <= length <= size - _SUM.size:
                return None
            file.seek(size - _SUM.size - length)
            data = file.read(length)
        return _segment_facts(data, segment.stat().st_size)
    except OSError:
        return None


def _segment_facts(data: bytes, size: int) -> SegmentFacts | None:
    fixed = data[: _FIXED.size]
    covered, _, kind, first_ms, span_ms, first_number, span, _ = _FIXED.unpack(fixed)
    blocks, checksum = data[_FIXED.size : -_SUM.size], data[-_SUM.size :]
    if kind != _SEGMENT or covered != size or checksum != _SUM.pack(zlib.crc32(fixed + blocks)):
        return None
    numbers = array("I", blocks)
    facts = BlockFacts(
        DECISIONS,
        first_ms,
        _last(first_ms, span_ms),
        first_number,
        _last(first_number, span),
    )
    return SegmentFacts(covered, facts, tuple(zip(numbers[::2], numbers[1::2], strict=True)))


def read_index(segment: Path) -> bytes:
    """The entries of a segment's index, packed; none where it has no index that can be read here."""
    try:
        data = index_path(segment).read_bytes()
    except OSError:
        return b""
    return data[len(MAGIC) :] if data[: len(MAGIC)] == MAGIC else b""


def save_index(segment: Path, entries: Sequence[IndexEntry]) -> None:
    """Leave an index beside a segment that has none, if the directory may be written to."""
    totals = _Totals()
    for entry in entries:
        totals.add(entry)
    path = index_path(segment)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        owner = segment.stat()
        with open(create_log_file(temporary, os.O_TRUNC), "wb") as file:
            file.write(MAGIC + b"".join(map(pack_entry, entries)) + totals.packed())
        # Whoever explains may be root: the index is to be its segment's owner's, like the segment.
        os.chown(temporary, owner.st_uid, owner.st_gid)
        temporary.replace(path)
