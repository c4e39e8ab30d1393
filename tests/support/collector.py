"""An OpenTelemetry collector for tests: takes what is pushed over OTLP/HTTP, or is as bad as a collector can be."""

import gzip
import http.server
import socket
import threading
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """`behaviour`: `takes` all, `errors` on all, `stalls` (accepts, reads, never answers), or `refuses` connections."""

    def __init__(self, behaviour: str = "takes") -> None:
        self.paths: list[str] = []
        self.pushes: list[ExportMetricsServiceRequest] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.log_pushes: list[ExportLogsServiceRequest] = []
        self.connections = 0
        self._behaviour = behaviour
        self._ended = threading.Event()
        if behaviour == "refuses":
            # Bound, so that nobody else gets the port, and not listening.
            self._deaf = socket.socket()
            self._deaf.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self._deaf.getsockname()[1]}"
            return
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def spans(self) -> list[Any]:
        """All spans that came."""
        scopes = [scope for push in self.traces for resource in push.resource_spans for scope in resource.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    @property
    def logs(self) -> list[Any]:
        """All log records that came."""
        scopes = [scope for push in self.log_pushes for resource in push.resource_logs for scope in resource.scope_logs]
        return [log for scope in scopes for log in scope.log_records]

    def value(self, name: str) -> int:
        """The sum of a metric's points in the newest push."""
        points = [
            point
            for resource in self.pushes[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in (*metric.sum.data_points, *metric.gauge.data_points)
        ]
        assert points, f"{name} was not pushed"
        return sum(int(point.as_int or point.as_double) for point in points)

    def __enter__(self) -> "Collector":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._behaviour == "refuses":
            self._deaf.close()
        else:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.connections += 1
                body = self.rfile.read(int(self.headers["content-length"]))
                if collector._behaviour == "stalls":
                    collector._ended.wait()
                    return
                if collector._behaviour == "takes":
                    if self.headers.get("content-encoding") == "gzip":
                        body = gzip.decompress(body)
                    if self.path.endswith("/v1/traces"):
                        collector.traces.append(ExportTraceServiceRequest.FromString(body))
                    elif self.path.endswith("/v1/logs"):
                        collector.log_pushes.append(ExportLogsServiceRequest.FromString(body))
                    else:
                        collector.paths.append(self.path)
                        collector.pushes.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200 if collector._behaviour == "takes" else 503)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the standard library's name

        return Handler


def attributes_of(push: ExportMetricsServiceRequest) -> dict[str, str]:
    """Whose metrics they are."""
    return {attribute.key: attribute.value.string_value for attribute in push.resource_metrics[0].resource.attributes}
