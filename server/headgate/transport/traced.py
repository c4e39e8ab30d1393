"""One decision with a span around it, for every transport. What a decision tells of itself is put into the span by
whoever is told of decisions (`CURRENT` in telemetry/traces.py); log lines from within carry its trace id.
"""

import asyncio
from functools import partial

from structlog.contextvars import bound_contextvars

from headgate.telemetry.traces import CURRENT, Span, Tracing
from headgate.transport.interface import Handler, TransportStats


def decide_traced(
    tracing: Tracing, traceparent: str | bytes | None, handler: Handler, payload: bytes, stats: TransportStats
) -> "bytes | asyncio.Future[bytes]":
    """What the handler answers; with a span, if the decision is sampled or fails."""
    span = tracing.begin(traceparent)
    if span is None:
        return _untraced(tracing, traceparent, handler, payload)
    token = CURRENT.set(span)
    try:
        with bound_contextvars(trace_id=f"{span.trace_id:032x}", span_id=f"{span.span_id:016x}"):
            answer = handler(payload)
    except Exception as error:
        tracing.end(span, error)
        raise
    finally:
        CURRENT.reset(token)
    if isinstance(answer, bytes):
        # Nobody is told of requests that no rule limits: they pass.
        span.attributes = span.attributes or {"headgate.outcome": "admitted"}
        tracing.end(span, None, stats.durations)
    else:
        answer.add_done_callback(partial(_ended, tracing, span, stats))
    return answer


def _untraced(
    tracing: Tracing, traceparent: str | bytes | None, handler: Handler, payload: bytes
) -> "bytes | asyncio.Future[bytes]":
    try:
        answer = handler(payload)
    except Exception as error:
        tracing.failed(traceparent, error)
        raise
    if not isinstance(answer, bytes):
        answer.add_done_callback(partial(_failed_later, tracing, traceparent))
    return answer


def _ended(tracing: Tracing, span: Span, stats: TransportStats, answer: "asyncio.Future[bytes]") -> None:
    error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
    tracing.end(span, error, stats.durations)


def _failed_later(tracing: Tracing, traceparent: str | bytes | None, answer: "asyncio.Future[bytes]") -> None:
    if not answer.cancelled() and (error := answer.exception()) is not None:
        tracing.failed(traceparent, error)
