"""Decisions as they are made: what is appended to the segments of a data directory, whoever writes them."""

import contextlib
from pathlib import Path
from typing import Final

from headgate.decision_log import block
from headgate.decision_log.schema import DecisionRecord, Event
from headgate.decision_log.segments import log_directory, next_block, segment_sizes

MOST_BYTES: Final = 16 * 1024 * 1024
"""Read at once, of one segment: a follower that fell behind catches up in steps."""


class Follower:
    """Reads what is written after it was made."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._read_to = segment_sizes(log_directory(data_dir))
        """Bytes of every segment that have been read."""

    def read(self) -> list[DecisionRecord | Event]:
        """All whole blocks that have come since; in the order of time."""
        sizes = segment_sizes(log_directory(self._data_dir))
        found: list[DecisionRecord | Event] = []
        for path, size in sizes.items():
            begin = self._read_to.get(path, 0)
            if size > begin:
                self._read_to[path] = begin + self._read(path, begin, found)
        for gone in self._read_to.keys() - sizes.keys():
            del self._read_to[gone]
        return sorted(found, key=lambda entry: entry.time_ms)

    def _read(self, path: Path, begin: int, found: list[DecisionRecord | Event]) -> int:
        """Read whole blocks and return their size: what is being written now is left for the next look."""
        try:
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read(MOST_BYTES)
        except FileNotFoundError:
            return 0
        position = 0
        while position < len(data):
            try:
                body, after = block.decode(data, position)
            except block.BadBlock:
                after = next_block(data, position)
                if after == len(data):
                    break
            else:
                with contextlib.suppress(block.BadBlock):
                    found += block.entries_of(body)
            position = after
        return position
