"""Traces of a serving process: made where they are on, told of decisions, counted."""

import random

from headgate.config import Settings
from headgate.decision_log.recorder import DecisionRecorder
from headgate.limiter.decision import Decision
from headgate.plan import Plan
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.traces import CURRENT, Tracing


def open_tracing(settings: Settings, metrics: Metrics, rng: random.Random) -> Tracing | None:
    """None where traces are off."""
    if not settings.traces or settings.otlp_endpoint is None:
        return None
    return Tracing(settings.otlp_endpoint, settings.trace_share, metrics.resource, rng)


class SpanRecorder:
    """Puts what was decided, and how, into the decision's span, and the span's trace into the decision's records."""

    def __init__(self, log: DecisionRecorder | None) -> None:
        """`log`: None where there is no decision log."""
        self._log = log

    def __call__(self, plan: Plan, decision: Decision) -> int:
        log = self._log
        number = 0 if log is None else log(plan, decision)
        span = CURRENT.get()
        if span is not None:
            if log is not None:
                log.traced(number, span.trace_id)
            span.attributes = {
                "headgate.outcome": "admitted" if decision.admitted else "denied",
                "headgate.path": decision.path.value,
                "headgate.domain": plan.charges[0].rule.domain,
                "headgate.rules": [charge.rule.id for charge in plan.charges],
                "headgate.over_limit": [
                    charge.rule.id
                    for charge, verdict in zip(plan.charges, decision.verdicts, strict=True)
                    if verdict[0]
                ],
                "headgate.rule_set": str(plan.version),
            }
        return number


def register(metrics: Metrics, tracing: Tracing) -> None:
    """Register the counts of spans that were sent or dropped."""
    metrics.labelled_counter(
        "headgate_trace_spans",
        "Spans of decisions, sent to the collector or dropped because it did not take them.",
        ("result",),
        lambda: [(tracing.sent, {"result": "sent"}), (tracing.dropped, {"result": "dropped"})],
    )
