"""Finds entries in the segments of a data directory by their indexes: blocks that can't hold them are not read."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.decision_log import block
from headgate.decision_log.batch import FOREVER_MS, RecordFilter
from headgate.decision_log.index import (
    EVENTS,
    IndexEntry,
    SegmentFacts,
    Wanted,
    index_path,
    pack_entry,
    read_index,
    read_segment_facts,
    save_index,
    scan,
)
from headgate.decision_log.schema import DecisionRecord, Entry, Event
from headgate.decision_log.segments import (
    SEGMENT_MS,
    ReadStats,
    begun_at_ms,
    log_directory,
    segment_sizes,
    walk_blocks,
)

MOST_BLOCKS: Final = 4_000
MOST_BYTES: Final = 32 * 1024 * 1024
"""Read for one search, the nearest first: about a second's work. What is left out is counted."""
MOST_RECORDS: Final = 100_000
"""Records that one search finds, the nearest first."""

_Place = tuple[int, int]
"""Offset and length of a block."""


class SegmentIndex:
    """Finds blocks of one segment without reading all of it. For one reader, and not for long."""

    def __init__(self, segment: Path, size: int, stats: ReadStats) -> None:
        self.segment = segment
        self._size = size
        self._stats = stats
        self._facts: SegmentFacts | None = read_segment_facts(segment)
        self._tail = b""
        """Entries for the blocks that the index lacks, packed as it has them; they begin at `_covered`."""
        self._covered = 0
        if self._facts is None:
            self._walk_tail()

    def _walk_tail(self) -> None:
        entries, covered = scan(read_index(self.segment))
        self._stats.skipped_bytes += covered - sum([entry.length for entry in entries])
        missing = list(walk_blocks(self.segment, covered, self._stats)) if covered < self._size else []
        self._covered, self._tail = covered, b"".join(map(pack_entry, missing))
        if missing and not index_path(self.segment).exists():
            save_index(self.segment, missing)

    def event_blocks(self) -> list[_Place]:
        """The places of the blocks of events."""
        if self._facts is not None:
            return list(self._facts.event_blocks)
        return [(entry.offset, entry.length) for entry in self._entries(None) if entry.facts.kind == EVENTS]

    def candidates(self, wanted: Wanted) -> list[IndexEntry]:
        """Blocks that may hold wanted decisions."""
        if self._facts is not None and not wanted.in_segment(self._facts.decisions):
            return []
        return self._entries(wanted)

    def span(self) -> tuple[int, int] | None:
        """First and last time of its blocks; None where it has none."""
        facts = [entry.facts for entry in self._entries(None)]
        return (min(each.first_ms for each in facts), max(each.last_ms for each in facts)) if facts else None

    def _entries(self, wanted: Wanted | None) -> list[IndexEntry]:
        entries, covered = scan(read_index(self.segment), wanted)
        if self._facts is not None and covered < self._facts.covered:
            # Its last entry is whole, and another one is not.
            self._facts = None
            self._walk_tail()
        if not self._tail:
            return entries
        # The index may have grown since the tail was walked.
        return [entry for entry in entries if entry.offset < self._covered] + scan(self._tail, wanted).entries


class LogSearch:
    """The segments of one data directory, as they are now."""

    def __init__(self, path: Path, stats: ReadStats) -> None:
        self._stats = stats
        self._sizes = dict(sorted(segment_sizes(log_directory(path)).items()))
        self._indexes: dict[Path, SegmentIndex] = {}
        """Indexes of the segments that were needed so far."""
        stats.segments += len(self._sizes)

    def _needed(self, since_ms: int = 0, until_ms: int = FOREVER_MS) -> Iterator[SegmentIndex]:
        """Yield those of the segments that may hold something of that time, by when they were begun."""
        for segment, size in self._sizes.items():
            begun_ms = begun_at_ms(segment)
            if begun_ms is not None and not since_ms - 2 * SEGMENT_MS <= begun_ms <= until_ms + SEGMENT_MS:
                continue
            self._stats.on_block()
            if segment not in self._indexes:
                with contextlib.suppress(FileNotFoundError):  # removed while others were read
                    self._indexes[segment] = SegmentIndex(segment, size, self._stats)
            if segment in self._indexes:
                yield self._indexes[segment]

    def spans(self) -> Iterator[tuple[int, int]]:
        """First and last times of the oldest and the newest segments; those between them are not looked at."""
        begun = [begun_ms for segment in self._sizes if (begun_ms := begun_at_ms(segment)) is not None]
        ends = [(0, min(begun)), (max(begun), FOREVER_MS)] if begun else [(0, FOREVER_MS)]
        for since_ms, until_ms in ends:
            for index in self._needed(since_ms, until_ms):
                if (span := index.span()) is not None:
                    yield span

    def events(self) -> Iterator[Event]:
        """All events."""
        for index in self._needed():
            places = index.event_blocks()
            for entry in self._read(index.segment, places) if places else ():
                if isinstance(entry, Event):
                    self._stats.events += 1
                    yield entry

    def decisions(self, want: RecordFilter, near_ms: int) -> Iterator[DecisionRecord]:
        """Wanted decisions, block by block, the nearest to a time first; a bounded number of blocks."""
        wanted = Wanted(want)
        needed = self._needed(want.since_ms, want.until_ms)
        found = [(entry, index.segment) for index in needed for entry in index.candidates(wanted)]
        found.sort(key=lambda item: _distance_ms(item[0], near_ms))
        left_bytes, records = MOST_BYTES, 0
        for number, (entry, segment) in enumerate(found):
            left_bytes -= entry.length
            most = number >= MOST_BLOCKS or left_bytes < 0 or records >= MOST_RECORDS
            if number and (most or self._stats.enough()):
                self._stats.left_blocks += len(found) - number
                return
            for record in self._read(segment, [(entry.offset, entry.length)], want):
                if isinstance(record, DecisionRecord):
                    records += 1
                    self._stats.records += 1
                    yield record

    def _read(self, segment: Path, places: list[_Place], want: RecordFilter | None = None) -> Iterator[Entry]:
        with contextlib.suppress(FileNotFoundError), segment.open("rb", buffering=0) as file:
            for offset, length in places:
                self._stats.read_block(length)
                data = os.pread(file.fileno(), length, offset)
                try:
                    body, _ = block.decode(data, 0)
                    entries = block.entries_of(body, want)
                except block.BadBlock:
                    self._stats.skipped_bytes += len(data)
                else:
                    yield from entries


def _distance_ms(entry: IndexEntry, near_ms: int) -> int:
    """The distance of a block's decisions from a time; 0 where they are around it."""
    return max(entry.facts.first_ms - near_ms, near_ms - entry.facts.last_ms, 0)
