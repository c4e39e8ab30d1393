"""The answer to a request: from a decision to bytes, written by hand from parts that the plan has ready."""

import itertools
import random
from typing import Final

from headgate.limiter.decision import Charge, Decision, DecisionPath, Verdict
from headgate.limiter.rule_name import rule_id
from headgate.plan import AnswerSettings, Plan
from headgate.rules.model import Version
from headgate.wire import ratelimit as wire
from headgate.wire.limit_headers import HeaderNames, limit_headers, retry_after

REASON: Final = "headgate"
"""The key of an answer's dynamic metadata under which the reason stands."""

STRETCH: Final = 194
"""Times that callers are told are stretched by up to so many 1024ths, so that those who were denied together come back
apart; with the rounding below that is up to a fifth, on which clients rely (headgate_client/spread.py)."""

DRAWN: Final = 4_096
"""Stretches that are drawn when a process starts, and used in turn: so an answer costs no draw of its own."""

TOLD_BITS: Final = 8
"""Significant bits of a stretched time, which is rounded up: 0.8% at most. So few different ones are told that nearly
all are found as they were written before (wire/ratelimit.py)."""

NOTHING: Final[frozenset[int]] = frozenset()


class AnswerWriter:
    """Writes serialized RateLimitResponses."""

    def __init__(self, settings: AnswerSettings, random: random.Random) -> None:
        self._settings = settings
        self._names = HeaderNames(
            settings.header_limit, settings.header_remaining, settings.header_reset, settings.header_retry_after
        )
        drawn = [0] if settings.exact_reset else [random.randint(1, STRETCH) for _ in range(DRAWN)]
        self._stretches = itertools.cycle(drawn)
        self._says_why = bool(settings.reason_header) or settings.reason_metadata
        self._says_more = self._says_why or settings.request_metadata
        self._has_headers = settings.response_headers

    def write(self, plan: Plan, decision: Decision, number: int) -> bytes:
        """Write the answer: overall code, a status per descriptor, and whatever else the settings add.

        `number` is the decision's id in the log; 0: it has none. All times in one answer are stretched alike.
        """
        admitted, verdicts, shape = decision.admitted, decision.verdicts, plan.shape
        stretch = next(self._stretches)
        answer = wire.CODE_OK if admitted else wire.CODE_OVER_LIMIT
        hidden = _hidden(plan, verdicts) if shape.pairs else NOTHING
        # Not `+=`: compiled, that of bytes goes through the interpreter.
        for index, charge in enumerate(plan.charges):
            answer = answer + shape.before[index]
            if hidden and index in hidden:
                continue
            over, remaining, reset_ms = verdicts[index]
            head = shape.heads[index]
            code = head.over if over and not charge.shadow else head.ok
            answer = answer + wire.encode_status(code, remaining, told_ms(reset_ms, stretch))
        answer = answer + shape.after
        if self._has_headers:
            answer = answer + wire.encode_headers(self._headers(plan, decision, stretch))
        answer = answer + (shape.trailer if admitted else shape.denied)
        return answer + self._more(plan, decision, number) if self._says_more else answer

    def _more(self, plan: Plan, decision: Decision, number: int) -> bytes:
        told = b"" if plan.metadata is None else plan.metadata.encoded(decision.verdicts)
        return told + self._reason(plan, decision, number) if self._says_why else told

    def _headers(self, plan: Plan, decision: Decision, stretch: int) -> list[tuple[str, str]]:
        """Headers of the descriptor that matters most: the longest denial, or the least left."""
        charge, (_, remaining, reset_ms) = _deciding(plan, decision)
        told = told_ms(reset_ms, stretch)
        limits = [met.limit for met in plan.charges]
        headers = limit_headers(self._names, limits, charge.limit, remaining, told)
        if not decision.admitted:
            headers.append(retry_after(self._names, told))
        return headers

    def _reason(self, plan: Plan, decision: Decision, number: int) -> bytes:
        """Rule, version, path and id, for whoever reads Envoy's access log or the answer's headers."""
        charge, _ = _deciding(plan, decision)
        reason = _reason_of(charge, plan.version, decision.path, number)
        parts = b""
        if self._settings.reason_header:
            text = " ".join([f"{name}={value}" for name, value in reason.items()])
            parts += wire.encode_headers([(self._settings.reason_header, text)])
        if self._settings.reason_metadata:
            parts += wire.encode_dynamic_metadata({REASON: reason})
        return parts


def told_ms(exact_ms: int, stretch: int) -> int:
    """Return the time that callers are told, stretched by so many 1024ths and never earlier than the exact one; with a
    stretch of 0 the exact one."""
    if not stretch:
        return exact_ms
    told = exact_ms + (exact_ms * stretch >> 10)
    coarse = told.bit_length() - TOLD_BITS
    return told if coarse <= 0 else -(-told >> coarse) << coarse


def _deciding(plan: Plan, decision: Decision) -> tuple[Charge, Verdict]:
    """The charge that matters most: the longest denial, or the least left."""
    candidates = list(zip(plan.charges, decision.verdicts, strict=True))
    if decision.admitted:
        return min(candidates, key=lambda pair: pair[1][1])
    denials = [pair for pair in candidates if pair[1][0] and not pair[0].shadow]
    return max(denials, key=lambda pair: pair[1][2])


def _reason_of(charge: Charge, version: Version, path: DecisionPath, number: int) -> dict[str, str]:
    """The reason for a decision, in the fewest words: none of them has a space in it."""
    reason = {
        "domain": rule_id(charge.rule.domain, ()),
        "rule": charge.rule.id,
        "version": str(version),
        "path": path.value,
    }
    return {**reason, "id": f"{number:016x}"} if number else reason


def _hidden(plan: Plan, verdicts: list[Verdict]) -> frozenset[int]:
    """Positions of the charges that have no status: of each pair the one that the caller does not meet first, which has
    the shorter denial, or more left."""
    hidden = []
    for position in plan.shape.pairs:
        rule, own = [_room(plan.charges[at], verdicts[at]) for at in (position, position + 1)]
        hidden.append(position if own < rule else position + 1)
    return frozenset(hidden)


def _room(charge: Charge, verdict: Verdict) -> tuple[bool, int, int]:
    over, remaining, reset_ms = verdict
    return not over or charge.shadow, remaining, -reset_ms
