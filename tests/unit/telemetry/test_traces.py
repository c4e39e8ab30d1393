"""Traces: W3C context in, sampled spans out; off costs nothing, and a bad collector is not noticed."""

import random
import threading
from typing import Any

import pytest
import structlog
from headgate.pending import PendingAnswer
from headgate.telemetry.histogram import HistogramCounts
from headgate.telemetry.traces import MAX_WAITING, Tracing, parse_parent
from headgate.transport.answers import Failures
from headgate.transport.interface import TransportStats
from headgate.transport.traced import answer_traced
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from tests.support.handlers import FunctionHandler

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


class Exporter:
    def __init__(self, hold: threading.Event | None = None) -> None:
        self.spans: list[ReadableSpan] = []
        self._hold = hold

    def export(self, spans: list[ReadableSpan]) -> SpanExportResult:
        if self._hold is not None:
            self._hold.wait()
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


def tracing(share: float = 0.0, hold: threading.Event | None = None) -> tuple[Tracing, Exporter]:
    exporter = Exporter(hold)
    return Tracing("", share, Resource({"service.name": "headgate"}), random.Random(1), exporter=exporter), exporter


def answered(it: Tracing, parent: str | None, *, fails: bool = False) -> None:
    def handler(payload: bytes) -> bytes:
        if fails:
            raise ValueError("broken")
        return payload

    if fails:
        with pytest.raises(ValueError, match="broken"):
            answer_traced(it, parent, FunctionHandler(handler), b"x", "", TransportStats())
    else:
        assert answer_traced(it, parent, FunctionHandler(handler), b"x", "", TransportStats()) == b"x"


def test_what_comes_later_is_traced_until_it_comes() -> None:
    it, exporter = tracing()
    outcomes: list[bytes | BaseException] = []
    for parent, outcome in ((SAMPLED, b"x"), (SAMPLED, ValueError("broken")), (UNSAMPLED, ValueError("broken too"))):
        answer = PendingAnswer()
        traced = answer_traced(it, parent, FunctionHandler(lambda _, answer=answer: answer), b"x", "", TransportStats())  # type: ignore[misc]
        assert isinstance(traced, PendingAnswer)
        traced.on_answer = outcomes.append
        answer.on_answer(outcome)
    it.close()
    assert [str(outcome) for outcome in outcomes] == ["b'x'", "broken", "broken too"]
    assert [span.status.description for span in exporter.spans] == [None, "broken", "broken too"]


def test_callers_choose_and_a_share_of_the_rest_is_traced() -> None:
    it, exporter = tracing(share=0.25)
    answered(it, SAMPLED)
    answered(it, UNSAMPLED)
    for _ in range(400):
        answered(it, None)
    it.close()
    first, *rest = exporter.spans
    assert first.context is not None
    assert first.parent is not None
    assert (f"{first.context.trace_id:032x}", f"{first.parent.span_id:016x}") == (TRACE, PARENT)
    assert 60 < len(rest) < 140
    assert all(span.parent is None for span in rest)
    assert len({span.context.trace_id for span in rest if span.context}) == len(rest)


@pytest.mark.parametrize("parent", [None, UNSAMPLED, SAMPLED])
def test_what_fails_is_traced_in_any_case(parent: str | None) -> None:
    it, exporter = tracing()
    answered(it, parent, fails=True)
    it.close()
    (span,) = exporter.spans
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "broken")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"


@pytest.mark.parametrize("parent", [UNSAMPLED, SAMPLED])
def test_the_log_line_of_a_failure_names_its_trace(parent: str) -> None:
    def handler(payload: bytes) -> bytes:
        raise ValueError("broken")

    it, _ = tracing()
    with structlog.testing.capture_logs() as lines:
        failures = Failures(TransportStats(), structlog.get_logger())
        with pytest.raises(ValueError, match="broken") as raised:
            answer_traced(it, parent, FunctionHandler(handler), b"x", "", TransportStats())
        failures.answer(raised.value)
        failures.answer(ValueError("not traced"))
    it.close()
    assert [line.get("trace_id") for line in lines] == [TRACE, None]


def test_what_a_collector_does_not_take_is_dropped_and_counted() -> None:
    hold = threading.Event()
    it, _ = tracing(share=1.0, hold=hold)
    for _ in range(3 * MAX_WAITING):
        answered(it, None)
    assert it.dropped >= MAX_WAITING
    hold.set()
    it.close()
    assert it.sent + it.dropped == 3 * MAX_WAITING


def test_a_traced_decision_is_an_exemplar_of_its_bucket() -> None:
    it, _ = tracing()
    span = it.begin(SAMPLED)
    assert span is not None
    durations = HistogramCounts((1.0, 2.0))
    it.end(span, None, durations)
    it.close()
    (exemplar,) = [exemplar for exemplar in durations.read().exemplars if exemplar is not None]
    assert exemplar.trace_id == TRACE


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (SAMPLED, (int(TRACE, 16), int(PARENT, 16), True)),
        (SAMPLED.encode(), (int(TRACE, 16), int(PARENT, 16), True)),
        (f"01-{TRACE}-{PARENT}-01-later", (int(TRACE, 16), int(PARENT, 16), True)),
        (f"{SAMPLED}-more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (SAMPLED.upper(), None),
        ("", None),
        (None, None),
    ],
)
def test_trace_contexts_are_read_as_the_standard_has_them(text: Any, parsed: Any) -> None:
    assert parse_parent(text) == parsed
