"""Segments: the files of the decision log, one writer each, bounded together in bytes and in age.

A process writes to a segment of its own and begins another when it is full or old. Before it begins one it removes the
oldest of all segments in the directory until they are within their bounds, whoever wrote them. A segment that a crash
left behind is read up to where it was cut. Rule sets are files beside the segments, one per version.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.decision_log import block
from headgate.decision_log.batch import RecordFilter
from headgate.decision_log.schema import DecisionRecord, Event

DIRECTORY: Final = "decisions"
"""Below `data_dir`."""
SUFFIX: Final = ".hgd"
SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""What is removed at once when the log is full; half an hour of 20,000 denials a second."""
SEGMENT_MS: Final = 6 * 3_600_000
"""A segment is removed whole, so none may hold much more than the oldest hours that are still to be kept."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the log may take of the disk."""

    max_bytes: int
    max_age_ms: int


class SegmentWriter:
    """Appends blocks to this process's own segment. For one thread."""

    def __init__(self, data_dir: Path, run: int, bounds: Bounds) -> None:
        self._directory = data_dir / DIRECTORY
        self._run = run
        self._bounds = bounds
        self._count = 0
        self._fd: int | None = None
        self._size = 0
        self._began_ms = 0

    def write(self, data: bytes, now_ms: int) -> None:
        """Append one block. Raises OSError; then what was written of it is cut off again."""
        if self._fd is None or self._size >= SEGMENT_BYTES or now_ms - self._began_ms >= SEGMENT_MS:
            self._begin(now_ms)
        assert self._fd is not None  # noqa: S101 - `_begin` raised otherwise
        try:
            _write_all(self._fd, data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """End the segment."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _begin(self, now_ms: int) -> None:
        self.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make_room(now_ms)
        path = self._directory / f"{now_ms:015d}-{self._run:x}-{self._count}{SUFFIX}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._count += 1
        self._size = os.fstat(self._fd).st_size
        self._began_ms = now_ms

    def _make_room(self, now_ms: int) -> None:
        """Remove the oldest segments, by when they were last written, until one more fits."""
        files = sorted((info.st_mtime_ns, path, info.st_size) for path, info in _segments(self._directory))
        total = sum(size for _, _, size in files)
        for modified_ns, path, size in files:
            too_old = now_ms - modified_ns // 1_000_000 > self._bounds.max_age_ms
            if not too_old and total + SEGMENT_BYTES <= self._bounds.max_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def _segments(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        paths = list(directory.glob(f"*{SUFFIX}"))
    except OSError:
        return
    for path in paths:
        with contextlib.suppress(OSError):  # another process may have removed it
            yield path, path.stat()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@dataclass(slots=True)
class ReadStats:
    """What a reader met: said with every explanation, so that nobody trusts a log that has holes."""

    segments: int = 0
    records: int = 0
    events: int = 0
    skipped_bytes: int = 0
    """Behind a block that was cut off or harmed: a process was killed while it wrote, or a disk was full."""
    skipped_lines: int = 0
    """Of JSON lines that are none of ours."""


def log_directory(path: Path) -> Path:
    """Where the segments are: in `path`, or below it if it is a data directory."""
    below = path / DIRECTORY
    return below if below.is_dir() else path


def segment_sizes(directory: Path) -> dict[Path, int]:
    """Every segment, and how long it is now."""
    return {path: info.st_size for path, info in _segments(directory)}


def read_segments(path: Path, stats: ReadStats, want: RecordFilter | None = None) -> Iterator[DecisionRecord | Event]:
    """What the segments of a data directory hold, one after the other: all, or all events and the decisions wanted."""
    for segment, _ in sorted(_segments(log_directory(path))):
        with contextlib.suppress(FileNotFoundError):  # removed while others were read
            data = segment.read_bytes()
            stats.segments += 1
            yield from _read(data, stats, want)


def _read(data: bytes, stats: ReadStats, want: RecordFilter | None) -> Iterator[DecisionRecord | Event]:
    position = 0
    while position < len(data):
        try:
            body, after = block.decode(data, position)
        except block.BadBlock:
            # The next whole block may follow: a full disk cuts one off in the middle of a segment.
            found = data.find(block.MAGIC, position + 1)
            after = len(data) if found < 0 else found
            stats.skipped_bytes += after - position
            position = after
            continue
        for entry in block.entries_of(body, want):
            if isinstance(entry, DecisionRecord):
                stats.records += 1
            else:
                stats.events += 1
            yield entry
        position = after
