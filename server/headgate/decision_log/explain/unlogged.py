"""Sentences where the logs hold nothing of what was asked: what that says, and what it does not."""

from collections.abc import Sequence

from headgate.console.times import seconds
from headgate.decision_log.coverage import Coverage
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.explain.sentences import doubts
from headgate.decision_log.schema import Event, text_of_time
from headgate.rules.explain import describe, explain
from headgate.rules.ruleset import RuleSet


def unlogged(
    question: DecisionQuestion,
    coverage: Sequence[Coverage],
    in_force: tuple[str, RuleSet] | None,
    missing: int,
    events: Sequence[Event],
) -> list[str]:
    """Say what can be known without a decision; `in_force`: the version then, and its rules, where they are known."""
    return [
        *_found_nothing(question, coverage, events),
        *([] if in_force is None or question.number is not None else [_rule(question, *in_force)]),
        *doubts({"dropped": missing}),
    ]


def _found_nothing(question: DecisionQuestion, coverage: Sequence[Coverage], events: Sequence[Event]) -> list[str]:
    covered = "; ".join(map(str, coverage)) or "there is nothing of Headgate in them"
    if question.number is not None:
        return [f"No decision of this id is in these logs: {covered}."]
    if not any(one.reaches(question.since_ms, question.until_ms) for one in coverage):
        around = f"{text_of_time(question.at_ms)}, or within {seconds(question.window_ms)} of it,"
        return [f"Nothing of {around} is in these logs: {covered}. So they can't say whether it was denied."]
    lines = ["No decision about this descriptor is in these logs at that time: no node whose log is here denied it."]
    lines += [f"But {one}: of that time it knows nothing, or not all." for one in coverage if not _has(one, question)]
    sampling = next((e.fields["allowances"] for e in reversed(events) if "allowances" in e.fields), None)
    if sampling is not None:
        lines.append(
            "Allowances are not logged."
            if sampling == 0
            else f"Of allowances one of {sampling} is logged: it may have been admitted."
        )
    return lines


def _has(one: Coverage, question: DecisionQuestion) -> bool:
    """A log that ends before is one of a node that had nothing to log, as far as the others are concerned."""
    return one.first_ms <= question.at_ms and one.reaches(question.since_ms, question.until_ms)


def _rule(question: DecisionQuestion, version: str, rules: RuleSet) -> str:
    explanation = explain(rules, question.domain, question.entries)
    match = explanation.match
    if match is None:
        return f"Under rules {version} no rule applies to it, so it is never denied: {_ended(explanation.reason)}"
    return f"Under rules {version} it meets rule {match.name.id}: {describe(match.limit)}."


def _ended(reason: str) -> str:
    """With a full stop, unless it ends with a question."""
    return reason if reason.endswith("?") else f"{reason}."
