"""A decision log run against other rules: who would have been denied.

Every logged request is decided again, in the order and at the time of the log, by the engine that serves, on counters
that begin empty, for all nodes whose logs are given together. The log must hold descriptors (`decision_log_values`). A
sampled allowance stands for as many requests as it was sampled from, so with sampling the figures are estimates.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from headgate_client.values import Descriptor, encode_request

from headgate.decision_log.schema import DecisionRecord, Entries, Flag
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.decision import Decision
from headgate.limiter.engine import Engine
from headgate.limiter.rule_name import REQUEST_RULE
from headgate.plan import Plan
from headgate.rules.ruleset import RuleSet

MAX_CELLS: Final = 1_000_000
MAX_CALLERS: Final = 1_000_000
"""Callers that are told apart."""
TOP: Final = 10


class _LogClock:
    """The time of the log."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000


@dataclass(slots=True)
class Replay:
    """Outcome of a log's requests under other rules."""

    requests: int = 0
    denied_before: int = 0
    denied_after: int = 0
    callers: set[tuple[str, Entries]] = field(default_factory=set)
    denied_callers: Counter[tuple[str, Entries]] = field(default_factory=Counter)
    denied_callers_before: Counter[tuple[str, Entries]] = field(default_factory=Counter)
    shadow: Counter[str] = field(default_factory=Counter)
    """Requests that rules in shadow mode would have denied, by rule."""
    by_rule: Counter[str] = field(default_factory=Counter)
    without_values: int = 0
    """Records that do not say whom they are about: they can't be replayed."""
    sampled: int = 1
    """The most that one record stands for."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "requests": self.requests,
            "denied_before": self.denied_before,
            "denied_after": self.denied_after,
            "callers": len(self.callers),
            "callers_denied_before": len(self.denied_callers_before),
            "callers_denied_after": len(self.denied_callers),
            "top_denied": [
                {
                    "domain": caller[0],
                    "descriptor": [list(pair) for pair in caller[1]],
                    "denied_after": count,
                    "denied_before": self.denied_callers_before[caller],
                }
                for caller, count in self.denied_callers.most_common(TOP)
            ],
            "denied_by_rule": dict(self.by_rule.most_common()),
            "shadow_would_deny_by_rule": dict(self.shadow.most_common()),
            "records_without_values": self.without_values,
            "sampled_one_of": self.sampled,
        }


def replay(records: Iterable[DecisionRecord], rules: RuleSet) -> Replay:
    """Decide every logged request again, under other rules."""
    result, clock = Replay(), _LogClock()

    def count(plan: Plan, decision: Decision) -> int:
        _count(result, plan, decision)
        return 0

    handler = RateLimitHandler(
        rules=lambda: rules,
        engine=Engine(clock, max_cells=MAX_CELLS),
        random=random.Random(0),  # noqa: S311 - it only stretches Retry-After
        settings=AnswerSettings(),
        record=count,
    )
    for parts in _requests(records, result):
        first = parts[0]
        clock.time_ms = max(clock.time_ms, first.time_ms)
        descriptors = [Descriptor(part.entries, part.cost) for part in parts]
        payload = encode_request(first.rule.domain, descriptors, 1).SerializeToString()
        callers = [(part.rule.domain, part.entries) for part in parts]
        result.requests += first.weight
        result.denied_before += not first.allowed
        if len(result.callers) < MAX_CALLERS:
            result.callers.update(callers)
        if not first.allowed:
            result.denied_callers_before.update([c for c, part in zip(callers, parts, strict=True) if part.over])
        for _ in range(first.weight):
            handler.answer(payload)
    return result


def _requests(records: Iterable[DecisionRecord], result: Replay) -> Iterator[list[DecisionRecord]]:
    """The records of each request together, in the order of time."""
    usable: list[DecisionRecord] = []
    for record in records:
        if record.flags & Flag.REFUND:
            continue  # it asks for nothing, so nobody denies it
        if record.entries:
            usable.append(record)
        else:
            result.without_values += 1
        result.sampled = max(result.sampled, record.weight)
    usable.sort(key=lambda record: (record.time_ms, record.source.node, record.number))
    for _, parts in groupby(usable, key=lambda record: (record.source.node, record.source.run, record.number)):
        # A limit of the request's own stands beside its rule's, for the same descriptor.
        together = {part.entries: part for part in parts if part.rule.id != REQUEST_RULE}
        if together:
            yield list(together.values())


def _count(result: Replay, plan: Plan, decision: Decision) -> None:
    for charge, (over, _, _) in zip(plan.charges, decision.verdicts, strict=True):
        if over and charge.shadow:
            result.shadow[f"{charge.rule.domain}: {charge.rule.id}"] += 1
        elif over and not decision.admitted:
            result.by_rule[f"{charge.rule.domain}: {charge.rule.id}"] += 1
            result.denied_callers[charge.rule.domain, charge.entries] += 1
    result.denied_after += not decision.admitted
