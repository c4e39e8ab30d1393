"""Segments: the files of the decision log, one writer each, bounded together in bytes and in age.

A process writes to a segment of its own and begins another when it is full or old. Before it begins one it removes the
oldest of all segments in the directory until they are within their bounds, whoever wrote them. A segment that a crash
left behind is read up to where it was cut. Beside each segment stands its index (index.py), and beside all of them rule
sets, one file per version.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from headgate.decision_log import block, index
from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.files import create_log_file, make_log_directory
from headgate.decision_log.index import BlockFacts, IndexEntry, IndexWriter, index_path
from headgate.decision_log.schema import DecisionRecord, Entry, Event, NodeRun

DIRECTORY: Final = "decisions"
"""Below `data_dir`."""
SUFFIX: Final = ".hgd"
SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""Size that is removed at once when the log is full: 40 seconds of 20,000 denials a second."""
SEGMENT_MS: Final = 6 * 3_600_000
"""A segment is removed whole, so none may hold much more than the oldest hours that are still to be kept."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the log on disk."""

    max_bytes: int
    max_age_ms: int


class SegmentSink:
    """Appends blocks to this process's own segment. For one thread."""

    def __init__(self, data_dir: Path, source: NodeRun, bounds: Bounds) -> None:
        self._directory = data_dir / DIRECTORY
        self._source = source
        self._bounds = bounds
        self._count = 0
        self._fd: int | None = None
        self._index: IndexWriter | None = None
        """None where it could not be written: the segment is readable without it."""
        self._size = 0
        self._began_ms = 0

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        self.write(block.encode_decisions(batch, self._source), index.facts_of_decisions(batch), now_ms)

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        self.write(block.encode_events(events), index.facts_of_events(events), now_ms)

    def write(self, data: bytes, facts: BlockFacts, now_ms: int) -> None:
        """Append one block. Raises OSError; then what was written of it is cut off again."""
        if self._fd is None or self._size >= SEGMENT_BYTES or now_ms - self._began_ms >= SEGMENT_MS:
            self._begin(now_ms)
        assert self._fd is not None  # noqa: S101 - `_begin` raised otherwise
        try:
            write_all(self._fd, data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        entry = IndexEntry(self._size, len(data), facts)
        self._size += len(data)
        if self._index is not None:
            try:
                self._index.add(entry)
            except OSError:
                self._end_index(finished=False)

    def close(self) -> None:
        """End the segment."""
        self._end_index(finished=True)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _end_index(self, *, finished: bool) -> None:
        if self._index is not None:
            with contextlib.suppress(OSError):
                self._index.close(finished=finished)
            self._index = None

    def _begin(self, now_ms: int) -> None:
        self.close()
        make_log_directory(self._directory)
        self._make_room(now_ms)
        path = self._directory / f"{now_ms:015d}-{self._source.run:x}-{self._count}{SUFFIX}"
        self._fd = create_log_file(path, os.O_APPEND)
        self._count += 1
        self._size = os.fstat(self._fd).st_size
        self._began_ms = now_ms
        with contextlib.suppress(OSError):
            self._index = IndexWriter(path)

    def _make_room(self, now_ms: int) -> None:
        """Remove the oldest segments, by when they were last written, until one more fits."""
        files = sorted((info.st_mtime_ns, path, info.st_size) for path, info in _segments(self._directory))
        sizes = {path: size + _index_bytes(path) for _, path, size in files}
        total = sum(sizes.values())
        for modified_ns, path, _ in files:
            too_old = now_ms - modified_ns // 1_000_000 > self._bounds.max_age_ms
            if not too_old and total + SEGMENT_BYTES <= self._bounds.max_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= sizes[path]
        for path in self._directory.glob(f"*{index.SUFFIX}"):
            if not path.with_suffix(SUFFIX).exists():
                path.unlink(missing_ok=True)


def _index_bytes(segment: Path) -> int:
    try:
        return index_path(segment).stat().st_size
    except OSError:
        return 0


def _segments(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        paths = list(directory.glob(f"*{SUFFIX}"))
    except OSError:
        return
    for path in paths:
        with contextlib.suppress(OSError):  # another process may have removed it
            yield path, path.stat()


def write_all(fd: int, data: bytes) -> None:
    """Write to the end, however little the system takes at once. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@dataclass(slots=True)
class ReadStats:
    """Counts of a reader: told with every explanation, so that nobody trusts a log that has holes."""

    segments: int = 0
    records: int = 0
    events: int = 0
    blocks: int = 0
    """Blocks that were inflated."""
    block_bytes: int = 0
    """The size of these, as they are stored."""
    left_blocks: int = 0
    """Blocks that a search left unread, because it had read so many that were nearer."""
    skipped_bytes: int = 0
    """Behind a block that was cut off or harmed: a process was killed while it wrote, or a disk was full."""
    skipped_lines: int = 0
    """JSON lines that are none of ours."""
    on_block: Callable[[], None] = lambda: None
    """Called before a block is inflated, or an index read; raises whatever is to end the reading."""
    enough: Callable[[], bool] = lambda: False
    """True when a search is to make do with what it has found: it begins with what is nearest."""

    def read_block(self, size: int) -> None:
        """Count a block that is to be inflated."""
        self.on_block()
        self.blocks += 1
        self.block_bytes += size


def log_directory(path: Path) -> Path:
    """The directory of the segments: `path`, or below it if it is a data directory."""
    below = path / DIRECTORY
    return below if below.is_dir() else path


def begun_at_ms(segment: Path) -> int | None:
    """Return when a segment was begun, by its name and its node's clock; None where the name does not say it.

    It holds what was decided in the `SEGMENT_MS` from then on, by the clock of a shard, which may be another one.
    """
    text = segment.name.partition("-")[0]
    return int(text) if text.isdecimal() else None


def segment_sizes(directory: Path) -> dict[Path, int]:
    """Every segment, and how long it is now."""
    return {path: info.st_size for path, info in _segments(directory)}


def read_segments(path: Path, stats: ReadStats) -> Iterator[Entry]:
    """Everything that the segments of a data directory hold, one after the other."""
    for segment, _ in sorted(_segments(log_directory(path))):
        with contextlib.suppress(FileNotFoundError):  # removed while others were read
            data = segment.read_bytes()
            stats.segments += 1
            for entries, _, _ in _blocks(data, 0, stats, block.entries_of):
                for entry in entries:
                    if isinstance(entry, DecisionRecord):
                        stats.records += 1
                    else:
                        stats.events += 1
                    yield entry


def walk_blocks(segment: Path, begin: int, stats: ReadStats) -> Iterator[IndexEntry]:
    """An index entry for each whole block of a segment from `begin` on."""
    with segment.open("rb") as file:
        file.seek(begin)
        data = file.read()
    for facts, position, after in _blocks(data, begin, stats, block.facts_of):
        if facts is not None:
            yield IndexEntry(position, after - position, facts)


Read = TypeVar("Read")


def _blocks(
    data: bytes, begin: int, stats: ReadStats, read: Callable[[bytes], Read]
) -> Iterator[tuple[Read, int, int]]:
    """Contents, begin and end in the segment of each whole block of `data`, which begins at `begin`."""
    position = 0
    while position < len(data):
        try:
            body, after = block.decode(data, position)
        except block.BadBlock:
            after = next_block(data, position)
            stats.skipped_bytes += after - position
        else:
            stats.read_block(after - position)
            try:
                contents = read(body)
            except block.BadBlock:
                stats.skipped_bytes += after - position
            else:
                yield contents, begin + position, begin + after
        position = after


def next_block(data: bytes, position: int) -> int:
    """Return where the next block may begin, behind one that is none: a full disk cuts one off in the middle."""
    found = data.find(block.MAGIC, position + 1)
    return len(data) if found < 0 else found
