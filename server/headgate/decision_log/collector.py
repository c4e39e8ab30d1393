"""The decision log, sent to an OpenTelemetry collector as log records over OTLP/HTTP.

The body of each is the JSON line that stdout would have got, so `headgate explain` reads it back. A thread of its own
sends; what waits for it is bounded, in batches that are still packed. What a slow or dead collector does not take is
dropped, counted and said once per outage: neither decisions nor the other sinks wait for it.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource

from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.json_lines import event_to_json, record_to_json
from headgate.decision_log.schema import DecisionRecord, Event, NodeRun
from headgate.telemetry.sending import SEND_TIMEOUT_S, end_sending, signal_url

MAX_WAITING: Final = 50_000
"""Records and events that wait to be sent, some 6 MB: two seconds of 20,000 denials a second."""
BATCH: Final = 512
"""Records of one request: about a megabyte before compression."""

Entry = tuple[DecisionRecord | None, dict[str, Any]]
"""What is sent as one log record: the JSON line, and the decision that it is of, if it is of one."""


class CollectorSink:
    """Takes records from the log's thread and sends them by its own. `failed`: what was not taken."""

    def __init__(
        self,
        endpoint: str,
        source: NodeRun,
        resource: Resource,
        warn: Callable[[str, Exception], None] = lambda sink, error: None,
        *,
        exporter: Any = None,
    ) -> None:
        self.sent = 0
        self.failed = 0
        self._source = source
        self._resource = resource
        self._warn = warn
        self._exporter = exporter or _exporter(endpoint)
        self._failing = False
        self._queue: deque[DecisionBatch | Sequence[Event]] = deque()
        # Each is written by one thread: what came in by the log's, what went out by our own.
        self._came_in = 0
        self._went_out = 0
        self._work = threading.Event()
        self._closing = False
        # A daemon: a collector that never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="headgate-decisions-otlp", daemon=True)
        self._thread.start()

    # The log's thread

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        self._take(batch, batch.count)

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        self._take(events, len(events))

    def close(self) -> None:
        """Send what waits, for a moment, and end."""
        self._closing = True
        self._work.set()
        end_sending(self._thread, self._exporter)

    def _take(self, some: DecisionBatch | Sequence[Event], count: int) -> None:
        if self._came_in - self._went_out + count > MAX_WAITING:
            # The log counts it, and says so once per outage.
            raise OSError("the collector takes less than is logged")
        self._came_in += count
        self._queue.append(some)
        self._work.set()

    # Its own thread

    def _run(self) -> None:
        while not self._closing:
            self._work.wait()
            self._work.clear()
            self._empty()
        self._empty()

    def _empty(self) -> None:
        while self._queue:
            entries = list(self._entries(self._queue.popleft()))
            for first in range(0, len(entries), BATCH):
                some = entries[first : first + BATCH]
                self._note(self._send(some), len(some))
                self._went_out += len(some)

    def _entries(self, some: DecisionBatch | Sequence[Event]) -> Iterator[Entry]:
        if isinstance(some, DecisionBatch):
            for record in some.records(self._source):
                yield record, record_to_json(record)
        else:
            for event in some:
                yield None, event_to_json(event)

    def _send(self, entries: Sequence[Entry]) -> OSError | None:
        """None where they were taken."""
        try:
            result = self._exporter.export([_readable(record, line, self._resource) for record, line in entries])
        except Exception as error:  # it is not ours
            return OSError(str(error))
        return None if result.name == "SUCCESS" else OSError("the collector did not take them")

    def _note(self, error: OSError | None, count: int) -> None:
        if error is None:
            self.sent += count
        else:
            self.failed += count
            if not self._failing:
                self._warn(type(self).__name__, error)
        self._failing = error is not None


def _readable(record: DecisionRecord | None, line: dict[str, Any], resource: Resource) -> Any:
    # Here, because they are needed only where there is a collector.
    from opentelemetry._logs import LogRecord, SeverityNumber  # noqa: PLC0415
    from opentelemetry.sdk._logs import ReadableLogRecord  # noqa: PLC0415
    from opentelemetry.trace import TraceFlags  # noqa: PLC0415

    time_ns = int(line["time_ms"]) * 1_000_000
    log_record = LogRecord(
        timestamp=time_ns,
        observed_timestamp=time_ns,
        trace_id=0 if record is None else record.trace_id,
        span_id=0,
        trace_flags=TraceFlags(TraceFlags.DEFAULT),
        severity_text="INFO",
        severity_number=SeverityNumber.INFO,
        body=json.dumps(line, ensure_ascii=True),
        attributes=_attributes(record, line),
    )
    log_record.event_name = f"headgate.{line['kind']}"
    return ReadableLogRecord(log_record, resource)


def _attributes(record: DecisionRecord | None, line: dict[str, Any]) -> dict[str, Any]:
    """What a log store finds it by, without looking into the body."""
    kind = {"headgate.kind": line["kind"]}
    if record is None:
        return kind
    names = ("id", "domain", "rule", "version", "path", "allowed", "key", "who")
    return {**kind, **{f"headgate.{name}": line[name] for name in names}}


def _exporter(endpoint: str) -> Any:
    # Here, because it is needed only where there is a collector.
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415

    return OTLPLogExporter(signal_url(endpoint, "logs"), timeout=SEND_TIMEOUT_S, compression=Compression.Gzip)
