"""Spans of decisions, for OpenTelemetry: W3C context in from callers, sampled spans out to a collector.

Whether a decision is traced is its caller's choice, if the caller sends a `traceparent`; of the others a share is. What
fails is traced in any case. A span is a few plain values until a thread sends it; what a slow or dead collector does
not take is dropped and counted. Where traces are off none of this exists, and nothing on a decision's way asks for it.
"""

import random
import re
import time
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from headgate.telemetry.bounded_sender import BoundedSender
from headgate.telemetry.histogram import Exemplar, HistogramCounts
from headgate.telemetry.sending import SEND_TIMEOUT_S, end_sending, export, signal_url

TRACEPARENT: Final = "traceparent"
NAME: Final = "headgate.decide"
MAX_WAITING: Final = 2_048
"""Spans that wait to be sent: OpenTelemetry's own default. Beyond it they are dropped."""
BATCH: Final = 512
EVERY_S: Final = 1.0

_PARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_OF_ERROR: Final = "_headgate_trace"
_SCOPE: Final = InstrumentationScope("headgate")


class Span:
    """One decision that is traced, from its call to its answer."""

    __slots__ = ("attributes", "parent_id", "span_id", "started_ns", "trace_id")

    def __init__(self, trace_id: int, parent_id: int, span_id: int) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        """0 where it has none."""
        self.span_id = span_id
        self.started_ns = time.time_ns()
        self.attributes: dict[str, Any] = {}


CURRENT: Final[ContextVar[Span | None]] = ContextVar("headgate_span", default=None)
"""The span of the decision that is being made; a decision that is made later, by a callback, keeps its own."""


class Tracing:
    """Begins and ends spans, and sends them. Construct it where traces are on, `close` it at the end."""

    def __init__(
        self, endpoint: str, share: float, resource: Resource, rng: random.Random, *, exporter: Any = None
    ) -> None:
        self._share = share
        self._resource = resource
        self._random = rng
        self._exporter = exporter or _exporter(endpoint)
        self._sender: BoundedSender[ReadableSpan] = BoundedSender(
            "headgate-traces", partial(export, self._exporter), max_items=MAX_WAITING, batch=BATCH, gather_s=EVERY_S
        )
        self._sender.start()

    @property
    def sent(self) -> int:
        """Spans that the collector took."""
        return self._sender.sent

    @property
    def dropped(self) -> int:
        """Spans that it did not take, or for which there was no room."""
        return self._sender.dropped + self._sender.failed

    def begin(self, traceparent: str | bytes | None) -> Span | None:
        """A span, if this decision is traced: as its caller says, else for a share of them."""
        parent = parse_parent(traceparent)
        if parent is not None:
            trace_id, span_id, sampled = parent
            return Span(trace_id, span_id, self._new_id(64)) if sampled else None
        return self._root() if self._random.random() < self._share else None

    def failed(self, traceparent: str | bytes | None, error: BaseException) -> None:
        """A decision that was not traced has failed: now it is."""
        parent = parse_parent(traceparent)
        self.end(self._root() if parent is None else Span(parent[0], parent[1], self._new_id(64)), error)

    def end(self, span: Span, error: BaseException | None = None, durations: HistogramCounts | None = None) -> None:
        """The answer is there, or the error that stands for it, which is told the trace for whoever logs it."""
        ended_ns = time.time_ns()
        if error is not None:
            setattr(error, _OF_ERROR, (span.trace_id, span.span_id))
        if durations is not None:
            took_s = max(0, ended_ns - span.started_ns) / 1e9
            ids = f"{span.trace_id:032x}", f"{span.span_id:016x}"
            durations.example(Exemplar(took_s, *ids, ended_ns / 1e9))
        self._sender.offer(self._readable(span, ended_ns, error))

    def close(self) -> None:
        """Send what waits, for a moment, and end."""
        end_sending(self._sender, self._exporter)

    def _root(self) -> Span:
        return Span(self._new_id(128), 0, self._new_id(64))

    def _new_id(self, bits: int) -> int:
        return self._random.getrandbits(bits) or 1

    def _readable(self, span: Span, ended_ns: int, error: BaseException | None) -> ReadableSpan:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        parent = SpanContext(span.trace_id, span.parent_id, True, sampled) if span.parent_id else None
        attributes = span.attributes if error is None else {**span.attributes, "error.type": type(error).__name__}
        return ReadableSpan(
            NAME,
            context=SpanContext(span.trace_id, span.span_id, False, sampled),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=SpanKind.SERVER,
            status=Status(StatusCode.UNSET) if error is None else Status(StatusCode.ERROR, str(error)),
            start_time=span.started_ns,
            end_time=max(ended_ns, span.started_ns),
            instrumentation_scope=_SCOPE,
        )


def trace_of(error: BaseException) -> dict[str, str]:
    """The trace that an error ended, as fields of a log line; none, where it was not traced."""
    ids: tuple[int, int] | None = getattr(error, _OF_ERROR, None)
    return {} if ids is None else {"trace_id": f"{ids[0]:032x}", "span_id": f"{ids[1]:016x}"}


def parse_parent(traceparent: str | bytes | None) -> tuple[int, int, bool] | None:
    """Trace id, span id and whether it is sampled; None where there is none, or it says nothing (W3C, section 3.2)."""
    if traceparent is None:
        return None
    text = traceparent.decode("latin-1") if isinstance(traceparent, bytes) else traceparent
    found = _PARENT.fullmatch(text)
    if found is None or text.startswith("ff") or (text.startswith("00") and len(text) != 55):
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return (trace_id, span_id, bool(flags & 1)) if trace_id and span_id else None


def parent_of(metadata: Any) -> str | bytes | None:
    """The `traceparent` among a call's metadata."""
    for name, value in metadata or ():
        if name == TRACEPARENT:
            return value  # type: ignore[no-any-return]
    return None


def _exporter(endpoint: str) -> Any:
    # Here, because it is needed only where traces are on.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return OTLPSpanExporter(signal_url(endpoint, "traces"), timeout=SEND_TIMEOUT_S)
