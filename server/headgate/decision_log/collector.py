"""The decision log, sent to an OpenTelemetry collector as log records over OTLP/HTTP.

The body of each is the JSON line that stdout would have got, so `headgate explain` reads it back. A thread of its own
sends; what waits for it is bounded, in batches that are still packed. What a slow or dead collector does not take is
dropped, counted and said once per outage: neither decisions nor the other sinks wait for it.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource

from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.json_lines import entry_to_json
from headgate.decision_log.schema import DecisionRecord, Entry, Event, NodeRun
from headgate.telemetry.bounded_sender import BoundedSender
from headgate.telemetry.sending import SEND_TIMEOUT_S, end_sending, export, signal_url

MAX_WAITING: Final = 50_000
"""Records and events that wait to be sent, some 6 MB: two seconds of 20,000 denials a second."""
BATCH: Final = 512
"""Records of one request: about a megabyte before compression."""


Packed = tuple[DecisionBatch | Sequence[Event], range]
"""Content of one request: rows of a batch, or some events."""


class CollectorSink:
    """Takes records from the log's thread and sends them by its own."""

    def __init__(
        self,
        endpoint: str,
        source: NodeRun,
        resource: Resource,
        warn: Callable[[str, Exception], None] = lambda sink, error: None,
        *,
        exporter: Any = None,
    ) -> None:
        self._source = source
        self._resource = resource
        self._exporter = exporter or _exporter(endpoint)
        self._sender: BoundedSender[Packed] = BoundedSender(
            "headgate-decisions-otlp",
            self._send,
            max_items=MAX_WAITING,
            on_outage=lambda error: warn(type(self).__name__, error),
        )
        self._sender.start()

    @property
    def sent(self) -> int:
        """Records and events that the collector took."""
        return self._sender.sent

    @property
    def failed(self) -> int:
        """Those that it did not take, of those that it was sent."""
        return self._sender.failed

    # The log's thread

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        self._take(batch, batch.count)

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        self._take(events, len(events))

    def close(self) -> None:
        """Send what waits, for a moment, and end."""
        end_sending(self._sender, self._exporter)

    def _take(self, some: DecisionBatch | Sequence[Event], count: int) -> None:
        if not self._sender.has_room(count):
            # The log counts it, and says so once per outage.
            raise OSError("the collector takes less than is logged")
        for first in range(0, count, BATCH):
            rows = range(first, min(first + BATCH, count))
            self._sender.offer((some, rows), weight=len(rows))

    # Its own thread

    def _send(self, requests: list[Packed]) -> None:
        """Raises OSError where they are not taken."""
        for some, rows in requests:
            if isinstance(some, DecisionBatch):
                entries: list[Entry] = list(some.records(self._source, rows))
            else:
                entries = [some[row] for row in rows]
            export(self._exporter, [_readable(entry, self._resource) for entry in entries])


def _readable(entry: Entry, resource: Resource) -> Any:
    # Here, because they are needed only where there is a collector.
    from opentelemetry._logs import LogRecord, SeverityNumber  # noqa: PLC0415
    from opentelemetry.sdk._logs import ReadableLogRecord  # noqa: PLC0415
    from opentelemetry.trace import TraceFlags  # noqa: PLC0415

    line = entry_to_json(entry)
    time_ns = int(line["time_ms"]) * 1_000_000
    log_record = LogRecord(
        timestamp=time_ns,
        observed_timestamp=time_ns,
        trace_id=entry.trace_id if isinstance(entry, DecisionRecord) else 0,
        span_id=0,
        trace_flags=TraceFlags(TraceFlags.DEFAULT),
        severity_text="INFO",
        severity_number=SeverityNumber.INFO,
        body=json.dumps(line, ensure_ascii=True),
        attributes=_attributes(entry, line),
    )
    log_record.event_name = f"headgate.{line['kind']}"
    return ReadableLogRecord(log_record, resource)


def _attributes(entry: Entry, line: dict[str, Any]) -> dict[str, Any]:
    """Attributes by which a log store finds it, without looking into the body."""
    kind = {"headgate.kind": line["kind"]}
    if isinstance(entry, Event):
        return kind
    names = ("id", "domain", "rule", "version", "path", "allowed", "key", "who")
    return {**kind, **{f"headgate.{name}": line[name] for name in names}}


def _exporter(endpoint: str) -> Any:
    # Here, because it is needed only where there is a collector.
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415

    return OTLPLogExporter(signal_url(endpoint, "logs"), timeout=SEND_TIMEOUT_S, compression=Compression.Gzip)
