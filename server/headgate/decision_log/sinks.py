"""The decision log on stdout, as JSON lines. (On disk: segments.py; to a collector: collector.py.)"""

from collections.abc import Iterable, Sequence

from headgate import plain_json
from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.json_lines import entry_to_json
from headgate.decision_log.schema import Entry, Event, NodeRun
from headgate.decision_log.segments import write_all


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
        data = "".join([plain_json.dumps(entry_to_json(entry)) + "\n" for entry in entries])
        write_all(self._fd, data.encode("utf-8", "backslashreplace"))
