"""One decision with a span around it, for every transport. The recorder of decisions puts into the span what was
decided (`CURRENT` in telemetry/traces.py); log lines from within carry its trace id.
"""

from contextvars import copy_context
from functools import partial

from structlog.contextvars import bound_contextvars

from headgate.pending import PendingAnswer
from headgate.telemetry.traces import CURRENT, Span, Tracing
from headgate.transport.interface import Handler, TransportStats


def answer_traced(
    tracing: Tracing,
    traceparent: str | bytes | None,
    handler: Handler,
    payload: bytes,
    caller: str,
    stats: TransportStats,
) -> bytes | PendingAnswer:
    """Answer a request as the handler does; with a span, if the decision is sampled or fails."""
    span = tracing.begin(traceparent)
    if span is None:
        return _answer_unsampled(tracing, traceparent, handler, payload, caller)
    token = CURRENT.set(span)
    try:
        with bound_contextvars(trace_id=f"{span.trace_id:032x}", span_id=f"{span.span_id:016x}"):
            answer = handler.answer(payload, caller)
            if isinstance(answer, PendingAnswer):
                answer.context = copy_context()  # what is recorded later belongs to this span
    except Exception as error:
        tracing.end(span, error)
        raise
    finally:
        CURRENT.reset(token)
    if isinstance(answer, PendingAnswer):
        traced = PendingAnswer()
        answer.on_answer = partial(_end_span, tracing, span, stats, traced)
        return traced
    # The recorder does not hear of requests that no rule limits: they pass.
    span.attributes = span.attributes or {"headgate.outcome": "admitted"}
    tracing.end(span, None, stats.durations)
    return answer


def _answer_unsampled(
    tracing: Tracing, traceparent: str | bytes | None, handler: Handler, payload: bytes, caller: str
) -> bytes | PendingAnswer:
    try:
        answer = handler.answer(payload, caller)
    except Exception as error:
        tracing.failed(traceparent, error)
        raise
    if not isinstance(answer, PendingAnswer):
        return answer
    traced = PendingAnswer()
    answer.on_answer = partial(_note_failure, tracing, traceparent, traced)
    return traced


def _end_span(
    tracing: Tracing, span: Span, stats: TransportStats, traced: PendingAnswer, answer: bytes | Exception
) -> None:
    tracing.end(span, answer if isinstance(answer, Exception) else None, stats.durations)
    traced.on_answer(answer)


def _note_failure(
    tracing: Tracing, traceparent: str | bytes | None, traced: PendingAnswer, answer: bytes | Exception
) -> None:
    if isinstance(answer, Exception):
        tracing.failed(traceparent, answer)
    traced.on_answer(answer)
