"""Calls and replies as the scripts take and give them: flat arrays of numbers, packed with msgpack.

Flat, because a Lua table per report would cost more than the arithmetic on it. The
layouts are those that state.lua opens with.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgpack

from headgate.origin.keyspace import BUCKET_COMPONENT, COMPONENT
from headgate.origin.operation import packed
from headgate.origin.protocol import (
    Answer,
    BucketAnswer,
    BucketReport,
    ChargeRequest,
    Refund,
    Report,
    WindowAnswer,
    WindowReport,
    WindowTerms,
    costs_by_report,
)

SLIDING: Final = 0
FIXED: Final = 1
BUCKET: Final = 2

WINDOW_NUMBERS: Final = 11
"""Per window in what call.lua returns, with one for refunds, which follow all others."""

BUCKET_NUMBERS: Final = 6
"""Per bucket, without refunds."""

REFUND_NUMBERS: Final = 8
"""Per report with demands in what refund.lua returns."""

_new: Final = tuple.__new__
_NO_REFUNDS: Final = (None,)
_window_answer: Final = partial(_new, WindowAnswer)


class PackedCall(NamedTuple):
    """Arguments of call.lua, without the names of published keys."""

    reports: bytes
    """Terms, reports and requests."""
    demands: bytes
    """Refunds that its reports demand; empty where no limit has refunds."""
    publishes: bool
    """True if any of its keys may have to be told to other regions."""


def pack_call(reports: Sequence[Report], requests: Sequence[Sequence[ChargeRequest]]) -> PackedCall:
    """Pack in one pass over the reports: each step here is made for every key that anybody asks for."""
    terms = CallTerms()
    buckets = 0
    flat: list[Any] = [len(reports), 0, len(requests)]
    demanded: list[int] = []
    index = 0
    for report in reports:
        index += 1  # noqa: SIM113 - enumerate would make a tuple of each
        if isinstance(report, WindowReport):
            # All at once: reading attributes one by one takes longer than all the rest here.
            _, own_terms, number, rest, want, cells, _, reset, demands = report
            place = terms.places.get(id(own_terms)) or terms.of_window(own_terms)
            flat += (place, number, rest, want, reset, len(cells))
            for cell in cells:
                flat += cell
        else:
            _add_bucket(flat, terms, report)
            demands = report.demands
            buckets += 1
        if demands is not None:
            demanded += (index, len(demands), *chain.from_iterable(demands))
    flat[1] = buckets
    described = packed(terms.flat) + packed(flat) + packed(_wanted(requests))
    return PackedCall(described, packed(demanded) if demanded else b"", terms.publish)


class CallTerms:
    """Terms of a call's reports, in words of state.lua: flat, and where each begins, from 1 on."""

    __slots__ = ("flat", "places", "publish")

    def __init__(self) -> None:
        self.flat: list[Any] = []
        self.places: dict[Any, int] = {}
        """Places by the terms themselves, and of windows also by their identity: reports that have the same
        mostly have the same object, and each of those lives as long as the call."""
        self.publish = False

    def of_window(self, terms: WindowTerms) -> int:
        """The place of a window's terms that are new, or another object."""
        place = self.places.get(terms)
        if place is not None:
            self.places[id(terms)] = place
            return place
        component, limit, window_ms, precision, sliding, leaving, publish_at, urgent, within = terms
        kind = SLIDING if sliding else FIXED
        field = COMPONENT + component
        told = kind, field, limit, window_ms, precision, int(leaving), publish_at, int(urgent), int(within)
        self.publish |= publish_at > 0
        self.places[id(terms)] = place = self.add(terms, told)
        return place

    def add(self, name: Any, told: tuple[Any, ...]) -> int:
        """The place of terms that are new."""
        place = self.places[name] = len(self.flat) + 1
        self.flat += told
        return place


def _add_bucket(flat: list[Any], terms: CallTerms, report: BucketReport) -> None:
    _, component, number, rest, want, rate, window_ms, burst, precision, leaving, *numbers, debt, reset, _, within = (
        report
    )
    common = component, rate, window_ms, burst, precision, leaving, debt, within
    place = terms.places.get(common)
    if place is None:
        field = BUCKET_COMPONENT + component
        told = BUCKET, field, rate, window_ms, precision, int(leaving), burst, debt, int(within)
        place = terms.add(common, told)
    flat += (place, number, rest, want, reset)
    # Total, reserved, acknowledged; answered ms and rest; since.
    flat += numbers


def _wanted(requests: Sequence[Sequence[ChargeRequest]]) -> list[int]:
    """Costs of each request, one per report; Lua counts reports from 1."""
    flat: list[int] = []
    for wants in requests:
        if len(wants) == 1:
            report, cost = wants[0]
            flat += (1, report + 1, cost)
            continue
        costs = costs_by_report(wants)
        flat.append(len(costs))
        for report, cost in costs.items():
            flat += (report + 1, cost)
    return flat


def pack_names(reports: Sequence[Report]) -> bytes:
    """Pack the name of each key between regions, and its priority."""
    flat: list[bytes | int] = []
    for report in reports:
        flat += (report.name, int(report.urgent)) if isinstance(report, WindowReport) else (b"", 0)
    return packed(flat)


def unpack_numbers(reply: bytes) -> tuple[int, ...]:
    """Read the flat array of numbers that call.lua returns. Raises ValueError and TypeError for anything else."""
    numbers: tuple[int, ...] = msgpack.unpackb(reply, use_list=False)
    if type(numbers) is not tuple:
        raise TypeError("no array")
    return numbers


def unpack_reply(
    flat: tuple[int, ...], reports: Sequence[Report], requests: int
) -> tuple[tuple[Answer, ...], tuple[bool, ...]]:
    """Build one answer per report, and per request whether it was charged, from the numbers of call.lua.

    Raises ValueError if there are more or fewer numbers than that.
    """
    first = at = 1 + requests
    charged = tuple([charged == 1 for charged in flat[1:at]])
    answers: list[Answer] = []
    if BucketReport in set(map(type, reports)):
        for report in reports:
            if isinstance(report, WindowReport):
                answers.append(_window_answer(flat[at : at + WINDOW_NUMBERS]))
                at += WINDOW_NUMBERS
            else:
                answers.append(_new(BucketAnswer, flat[at : at + BUCKET_NUMBERS] + _NO_REFUNDS))
                at += BUCKET_NUMBERS
    else:
        at += WINDOW_NUMBERS * len(reports)
        # By so many at a time, without a step of Python's for any of them.
        answers = list(map(_window_answer, zip(*[iter(flat[first:at])] * WINDOW_NUMBERS, strict=True)))
    return _with_refunds(reports, answers, flat, at), charged


def _with_refunds(reports: Sequence[Report], answers: list[Answer], flat: Sequence[int], at: int) -> tuple[Answer, ...]:
    """Put what refund.lua returns into the answers that it is about; most calls have none."""
    if at == len(flat):
        return tuple(answers)
    for index, (report, answer) in enumerate(zip(reports, answers, strict=True)):
        if report.demands is None:
            continue
        current, previous = Refund(*flat[at : at + 4]), Refund(*flat[at + 4 : at + REFUND_NUMBERS])
        if isinstance(answer, WindowAnswer):
            answers[index] = answer._replace(refunds=(current, previous))
        else:
            answers[index] = answer._replace(refund=current)
        at += REFUND_NUMBERS
    if at != len(flat):
        raise ValueError(f"{len(flat)} numbers and not {at}")
    return tuple(answers)
