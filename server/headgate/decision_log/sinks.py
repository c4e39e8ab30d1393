"""Destinations of the decision log: segments in the data directory, JSON lines on stdout."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.block import encode_decisions, encode_events
from headgate.decision_log.index import facts_of_decisions, facts_of_events
from headgate.decision_log.json_lines import entry_to_json
from headgate.decision_log.schema import Entry, Event, NodeRun
from headgate.decision_log.segments import Bounds, SegmentWriter, write_all


class SegmentSink:
    """Compressed segments below the data directory. See segments.py."""

    def __init__(self, data_dir: Path, source: NodeRun, bounds: Bounds) -> None:
        self._source = source
        self._writer = SegmentWriter(data_dir, source.run, bounds)

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        self._writer.write(encode_decisions(batch, self._source), facts_of_decisions(batch), now_ms)

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        self._writer.write(encode_events(events), facts_of_events(events), now_ms)

    def close(self) -> None:
        self._writer.close()


class LineSink:
    """JSON lines to a file descriptor: for a log shipper that reads stdout."""

    def __init__(self, fd: int, source: NodeRun) -> None:
        self._fd = fd
        self._source = source

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        self._write(batch.records(self._source))

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        self._write(events)

    def close(self) -> None:
        """The descriptor is not ours."""

    def _write(self, entries: Iterable[Entry]) -> None:
        data = "".join([json.dumps(entry_to_json(entry), ensure_ascii=False) + "\n" for entry in entries])
        write_all(self._fd, data.encode("utf-8", "backslashreplace"))
