"""The question and its answer: which decision it is about, why it came out so, in sentences and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from headgate.decision_log.batch import RecordFilter
from headgate.decision_log.coverage import Coverage
from headgate.decision_log.explain.causes import BY_POLICY, NEVER, Cause, causes_of
from headgate.decision_log.explain.history import EventHistory
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.explain.sentences import sentences_of
from headgate.decision_log.explain.surroundings import Ongoing, going_on
from headgate.decision_log.explain.unlogged import unlogged
from headgate.decision_log.json_lines import event_to_json, record_to_json
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.reader import LogView
from headgate.decision_log.schema import NO_SHARD, DecisionRecord, Event, text_of_time

MAX_EVIDENCE: Final = 50
"""Lines of each kind that are shown; the number of all is told."""


class DecisionOutcome(StrEnum):
    """Outcomes of a request."""

    DENIED = "denied"
    ADMITTED = "admitted"
    WOULD_DENY = "would_have_been_denied"
    NOT_LOGGED = "not_logged"


@dataclass(frozen=True, slots=True)
class DecisionExplanation:
    """The answer."""

    question: DecisionQuestion
    outcome: DecisionOutcome
    causes: tuple[Cause, ...] = ()
    record: DecisionRecord | None = None
    """The decision that is explained: of this descriptor, the nearest denial."""
    request: tuple[DecisionRecord, ...] = ()
    """All limits that this request met."""
    meanwhile: tuple[Ongoing, ...] = ()
    """Events and states at that time, whether or not they are to blame."""
    events: tuple[Event, ...] = ()
    sentences: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of decisions found about the descriptor, and of what is missing in the logs."""
    coverage: tuple[Coverage, ...] = ()
    """Time that each of the logs covers."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        record = self.record
        return {
            "outcome": self.outcome.value,
            "cause": self.causes[0].kind.value if self.causes else None,
            "causes": [{"kind": cause.kind.value, **cause.facts} for cause in self.causes],
            "question": {
                "domain": self.question.domain,
                "descriptor": [list(pair) for pair in self.question.entries],
                "at": text_of_time(self.question.at_ms),
                "window_ms": self.question.window_ms,
            },
            "decision": None if record is None else record_to_json(record),
            "would_admit_at": None if record is None else _admits_at(record, self.causes),
            "request": [record_to_json(part) for part in self.request],
            "in_progress": [one.to_json() for one in self.meanwhile],
            "events": [event_to_json(event) for event in self.events[:MAX_EVIDENCE]],
            "sentences": list(self.sentences),
            "log": self.counts,
            "covers": [one.to_json() for one in self.coverage],
        }


def explain(view: LogView, question: DecisionQuestion) -> DecisionExplanation:
    """Find the decision, and say why."""
    found = view.decisions(_want(question), question.at_ms)
    left_blocks = view.stats.left_blocks
    events = view.events()
    history = EventHistory(view, events, question.entries)
    missing = history.dropped(question.at_ms - question.window_ms, question.at_ms + question.window_ms)
    counts = {
        "decisions": len(found),
        "denied": sum(not record.allowed for record in found),
        "dropped": missing,
        "segments": view.stats.segments,
        "unread_blocks": left_blocks,
        "skipped_bytes": view.stats.skipped_bytes,
        "skipped_lines": view.stats.skipped_lines,
    }
    coverage = tuple(view.coverage())
    if not found:
        known = history.rules_at(question.at_ms)
        unknown = tuple(unlogged(question, coverage, known, missing, events))
        return DecisionExplanation(
            question, DecisionOutcome.NOT_LOGGED, sentences=unknown, counts=counts, coverage=coverage
        )
    record = min(found, key=lambda each: _interest(each, question.at_ms))
    request = view.decisions(RecordFilter(numbers=frozenset((record.number,))), record.time_ms)
    request = [part for part in request if part.source == record.source]
    causes = tuple(causes_of(record, request, history))
    meanwhile = going_on(record, history, question.window_ms)
    around = history.around(record, question.window_ms)
    sentences = sentences_of(record, causes, meanwhile, counts)
    return DecisionExplanation(
        question,
        _outcome(record),
        causes,
        record,
        tuple(request),
        tuple(meanwhile),
        tuple(around),
        tuple(sentences),
        counts,
        coverage,
    )


def _want(question: DecisionQuestion) -> RecordFilter:
    if question.number is not None:
        return RecordFilter(numbers=frozenset((question.number,)))
    who = frozenset((hash_of_descriptor(question.domain, question.entries),))
    return RecordFilter(
        descriptor_hashes=who,
        since_ms=question.at_ms - question.window_ms,
        until_ms=question.at_ms + question.window_ms,
    )


def _interest(record: DecisionRecord, at_ms: int) -> tuple[int, int]:
    """Denials first, then what had no room or was degraded; of these the nearest."""
    if not record.allowed:
        rank = 0 if record.over else 1
    else:
        rank = 2 if record.over or record.path.startswith("degraded") else 3
    return rank // 2, abs(record.time_ms - at_ms) * 2 + rank % 2


def _outcome(record: DecisionRecord) -> DecisionOutcome:
    if not record.allowed:
        return DecisionOutcome.DENIED
    return DecisionOutcome.WOULD_DENY if record.over and record.shadow else DecisionOutcome.ADMITTED


def _admits_at(record: DecisionRecord, causes: Sequence[Cause]) -> str | None:
    """None where it was not over, no waiting helps, or a failure policy decided: then nobody can know."""
    if not record.over or any(cause.kind in (*NEVER, *BY_POLICY) for cause in causes):
        return None
    return text_of_time(record.time_ms + record.wait_ms)


def lines_of(explanation: DecisionExplanation) -> list[str]:
    """Lines for people: sentences, then the evidence."""
    return [*explanation.sentences, *_evidence(explanation.request, explanation.events)]


def _evidence(request: Sequence[DecisionRecord], events: Sequence[Event]) -> list[str]:
    lines = ["", "Evidence:"] if request or events else []
    for record in request:
        words = "denied" if not record.allowed else "admitted"
        over = "no room" if record.over else "room"
        shard = "no shard" if record.shard == NO_SHARD else f"shard {record.shard}"
        lines.append(
            f"  {text_of_time(record.time_ms)} {record.source.node} decision {record.id} {words} by {record.path}: "
            f"rule {record.rule.id} {over}, own {record.own} others {record.others} foreign {record.foreign} "
            f"previous {record.previous} (counts {record.previous_weight}), limit {record.terms.limit}, "
            f"cost {record.cost}, rules {record.version}, {shard}"
        )
    for event in events[:MAX_EVIDENCE]:
        fields = " ".join([f"{name}={value}" for name, value in event.fields.items()])
        lines.append(f"  {text_of_time(event.time_ms)} {event.source.node} {event.kind} {fields}".rstrip())
    if len(events) > MAX_EVIDENCE:
        lines.append(f"  and {len(events) - MAX_EVIDENCE} more events")
    return lines
