"""Calls and replies as the scripts take and give them: flat arrays of numbers, packed with msgpack.

Flat, because a Lua table per report would cost more than the arithmetic on it. The
layouts are those that state.lua and import.lua open with.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgpack

from headgate.origin.book import BookEntry
from headgate.origin.protocol import (
    Answer,
    BucketAnswer,
    BucketReport,
    Call,
    Changes,
    ChargeRequest,
    ForeignCount,
    Prefetch,
    Published,
    Refund,
    Reply,
    Report,
    WindowAnswer,
    WindowReport,
    WindowTerms,
    costs_by_report,
)
from headgate.origin.quota_protocol import QuotaKind, QuotaReport, QuotaSeen, QuotaStep, QuotaStepped, Share

SLIDING: Final = 0
FIXED: Final = 1
BUCKET: Final = 2

COMPONENT: Final = b"c"
BUCKET_COMPONENT: Final = b"d"
REGION: Final = b"f"
"""What begins a field's name, so that fields of different kinds can't meet."""

SEEN_NUMBERS: Final = 6
"""Per share in what quota_step.lua returns."""

PUBLISHED_NUMBERS: Final = 10
"""Per name in what components.lua returns."""


WINDOW_NUMBERS: Final = 10
"""Per window in what call.lua returns, with one for refunds, which follow all others."""

REFUND_NUMBERS: Final = 8
"""Per report with demands in what refund.lua returns."""

ENTRY_PARTS: Final = 4
"""Of one entry of the book: name, value, expires, stamp."""

LATER: Final = -1
"""In a report's place for when its wants are decided (state.lua)."""


_new: Final = tuple.__new__
_NO_REFUNDS: Final = (None,)
_window_answer: Final = partial(_new, WindowAnswer)


class PackedCall(NamedTuple):
    """A call as the script reads it, without what few calls have."""

    reports: bytes
    later: bytes
    """Those of its requests that are decided when all reports are merged."""
    demands: bytes
    """What its reports demand back; nothing where no limit has refunds."""
    publishes: bool
    """Whether any of its keys may have to be told to other regions."""


def pack_call(call: Call) -> PackedCall:
    """In one pass over the reports: what is done for each of them here is done for every key that anybody asks for."""
    when, costs, later = decided(call)
    terms = Terms()
    buckets = 0
    flat: list[Any] = [len(call.reports), 0, len(call.requests)]
    demanded: list[int] = []
    index = 0
    for report, at, cost in zip(call.reports, when, costs, strict=True):
        index += 1  # noqa: SIM113 - enumerate would make a tuple of each
        if isinstance(report, WindowReport):
            # All at once: reading attributes one by one takes longer than all the rest here.
            _, own_terms, number, held, cells, _, reset, demands = report
            place = terms.places.get(id(own_terms)) or terms.of_window(own_terms)
            flat += (place, at, cost, number, held, reset, len(cells))
            for cell in cells:
                flat += cell
        else:
            _add_bucket(flat, terms, report, at, cost)
            demands = report.demands
            buckets += 1
        if demands is not None:
            demanded += (index, len(demands), *chain.from_iterable(demands))
    flat[1] = buckets
    packed = _pack(terms.flat) + _pack(flat)
    return PackedCall(packed, _pack_requests(later), _pack(demanded) if demanded else b"", terms.publish)


class Terms:
    """What reports of a call have in common, in words of state.lua: flat, and where each begins, from 1 on."""

    __slots__ = ("flat", "places", "publish")

    def __init__(self) -> None:
        self.flat: list[Any] = []
        self.places: dict[Any, int] = {}
        """By themselves, and of windows also by their identity: reports that have the same mostly have the same object,
        and each of those lives as long as the call."""
        self.publish = False

    def of_window(self, terms: WindowTerms) -> int:
        """The place of a window's terms that are new, or another object."""
        place = self.places.get(terms)
        if place is not None:
            self.places[id(terms)] = place
            return place
        component, limit, window_ms, precision, sliding, leaving, publish_at, urgent = terms
        kind = SLIDING if sliding else FIXED
        told = kind, COMPONENT + component, limit, window_ms, precision, int(leaving), publish_at, int(urgent)
        self.publish |= publish_at > 0
        self.places[id(terms)] = place = self.add(terms, told)
        return place

    def add(self, name: Any, told: tuple[Any, ...]) -> int:
        """The place of terms that are new."""
        place = self.places[name] = len(self.flat) + 1
        self.flat += told
        return place


def _add_bucket(flat: list[Any], terms: Terms, report: BucketReport, when: int, cost: int) -> None:
    _, component, number, held, rate, window_ms, burst, precision, leaving, *numbers, debt, reset, _ = report
    common = component, rate, window_ms, burst, precision, leaving, debt
    place = terms.places.get(common)
    if place is None:
        told = BUCKET, BUCKET_COMPONENT + component, rate, window_ms, precision, int(leaving), burst, debt
        place = terms.add(common, told)
    flat += (place, when, cost, number, held, reset)
    # Total, reserved, acknowledged; answered ms and rest; since.
    flat += numbers


def decided(call: Call) -> tuple[list[int], list[int], list[tuple[int, Sequence[ChargeRequest]]]]:
    """Per report when its wants are decided and what the want is that is decided at once (state.lua); and the requests
    that are decided later, by number."""
    requests, reports = call.requests, len(call.reports)
    when, costs = [0] * reports, [0] * reports
    for report in _kept(call):
        when[report] = LATER
    later: list[tuple[int, Sequence[ChargeRequest]]] = []
    displaced = False
    for number, wants in enumerate(requests, 1):
        if len(wants) == 1:
            report, cost = wants[0]
            if not when[report]:
                when[report], costs[report] = number, cost
                continue
        later.append((number, wants))
        for report, _ in wants:
            if when[report] > 0:  # by a request that is no longer the only one
                later.append((when[report], requests[when[report] - 1]))
                costs[report], displaced = 0, True
            when[report] = LATER
    if displaced:
        later.sort(key=_number_of)
    return when, costs, later


def _number_of(decided_later: tuple[int, Sequence[ChargeRequest]]) -> int:
    return decided_later[0]


def _kept(call: Call) -> Iterable[int]:
    """Reports that something else in the call depends on: what is asked ahead, and other reports of the same key."""
    ahead = [report for report, _, _ in call.ahead]
    if len({report.key for report in call.reports}) == len(call.reports):
        return ahead
    sharing: dict[bytes, list[int]] = {}
    for index, report in enumerate(call.reports):
        sharing.setdefault(report.key, []).append(index)
    return chain(ahead, *(indexes for indexes in sharing.values() if len(indexes) > 1))


def _pack_requests(requests: Sequence[tuple[int, Sequence[ChargeRequest]]]) -> bytes:
    """Requests with one want per report; nothing is packed for nothing."""
    flat: list[int] = []
    for number, wants in requests:
        costs = costs_by_report(wants)
        flat += (number, len(costs))
        for report, cost in costs.items():
            # Lua counts from 1.
            flat += (report + 1, cost)
    return _pack(flat) if flat else b""


def pack_names(reports: Sequence[Report]) -> bytes:
    """What each key is called between regions, and its lane; nothing where none is published."""
    flat: list[bytes | int] = []
    for report in reports:
        flat += (report.name, int(report.urgent)) if isinstance(report, WindowReport) else (b"", 0)
    return _pack(flat)


def pack_ahead(ahead: Sequence[Prefetch]) -> bytes:
    """What a call asks for beyond its requests: the script's fourth argument; nothing is packed for nothing."""
    flat: list[int] = []
    for report, requests, cost in ahead:
        flat += (report + 1, requests, cost)
    return _pack(flat) if flat else b""


def pack_quotas(quotas: Sequence[QuotaReport], first_key: int) -> bytes:
    """A call's quotas as the script reads them: its third argument. `first_key`: which key the quota hash is."""
    if not quotas:
        return b""
    flat: list[Any] = [first_key]
    for report, name, kind, *numbers in quotas:
        flat += (report + 1, name, int(kind), *numbers)
    return _pack(flat)


def pack_step(step: QuotaStep) -> tuple[bytes, bytes]:
    """A keeper's turn as quota_step.lua reads it: two arguments."""
    flat: list[Any] = [step.fence, step.generation, step.drawn, step.taken_ms, step.until_ms]
    flat += (step.share, step.settled_ago_ms, step.most)
    for share in step.shares:
        flat += share
    return _pack(flat), _pack(list(step.forgotten))


def unpack_stepped(reply: list[Any], epoch: bytes, shares: int) -> QuotaStepped:
    """What quota_step.lua returns."""
    time_ms, kept, generation, dropped, packed = reply[:5]
    flat: list[int] = msgpack.unpackb(packed) or []
    if len(flat) != (SEEN_NUMBERS * shares if kept else 0):
        raise ValueError(f"{len(flat)} numbers for {shares} shares")
    seen = tuple([_seen(flat[at : at + SEEN_NUMBERS]) for at in range(0, len(flat), SEEN_NUMBERS)])
    return QuotaStepped(time_ms, epoch, kept == 1, generation, seen, tuple(reply[5:]), dropped)


def _seen(numbers: list[int]) -> QuotaSeen | None:
    kind, *rest = numbers
    return None if kind < 0 else QuotaSeen(QuotaKind(kind), *rest)


def pack_foreign(counts: Iterable[ForeignCount], region: bytes) -> bytes:
    """Other regions' counts as the import script reads them; those of our own region have an empty name."""
    flat: list[Any] = []
    for count in counts:
        field = b"" if count.region == region else REGION + count.region
        flat += (field, count.window_ms, count.sequence, count.total, count.name, count.reset, count.refunded)
    return _pack(flat)


def unpack_changes(reply: list[Any], epoch: bytes) -> Changes:
    """What changes.lua returns."""
    time_ms, leased, since, until, latest, generation, mark, walk, walk_until, beat_ms = reply[:10]
    return Changes(
        time_ms,
        epoch,
        leased == 1,
        int(since),
        int(until),
        int(latest),
        tuple(reply[10::2]),
        generation,
        mark,
        walk,
        int(walk_until),
        int(beat_ms),
    )


def unpack_components(packed: bytes, names: int) -> list[Published | None]:
    """What components.lua returns."""
    flat: list[int] = msgpack.unpackb(packed)
    if len(flat) != PUBLISHED_NUMBERS * names:
        raise ValueError(f"{len(flat)} numbers for {names} names")
    return [
        Published(*flat[at + 1 : at + PUBLISHED_NUMBERS]) if flat[at] else None
        for at in range(0, len(flat), PUBLISHED_NUMBERS)
    ]


def pack_entries(entries: Iterable[BookEntry]) -> bytes:
    """Entries of the book as book_write.lua reads them, flat."""
    return _pack([part for entry in entries for part in entry])


def unpack_entries(packed: bytes) -> tuple[BookEntry, ...]:
    """What book_read.lua returns of them."""
    # Packed from Lua, where a text is bytes; an empty array and an empty map are one there.
    flat: list[Any] = list(msgpack.unpackb(packed, raw=True))
    return tuple([BookEntry(*flat[at : at + ENTRY_PARTS]) for at in range(0, len(flat), ENTRY_PARTS)])


def unpack_reply(packed: bytes, epoch: bytes, call: Call) -> Reply:
    """A script's reply as the protocol's values, in the order of the call's reports and requests."""
    flat: tuple[int, ...] = msgpack.unpackb(packed, use_list=False)
    first = at = 1 + len(call.requests)
    charged = tuple([charged == 1 for charged in flat[1:at]])
    answers: list[Answer] = []
    if BucketReport in set(map(type, call.reports)):
        for report in call.reports:
            if isinstance(report, WindowReport):
                answers.append(_window_answer(flat[at : at + WINDOW_NUMBERS]))
                at += WINDOW_NUMBERS
            else:
                answers.append(_new(BucketAnswer, flat[at : at + 5] + _NO_REFUNDS))
                at += 5
    else:
        at += WINDOW_NUMBERS * len(call.reports)
        # By so many at a time, without a step of Python's for any of them.
        answers = list(map(_window_answer, zip(*[iter(flat[first:at])] * WINDOW_NUMBERS, strict=True)))
    until = at + 2 * len(call.quotas)
    shares = tuple(map(Share, flat[at:until:2], flat[at + 1 : until : 2]))
    return Reply(flat[0], epoch, _with_refunds(call.reports, answers, flat, until), charged, shares)


def _with_refunds(reports: Sequence[Report], answers: list[Answer], flat: Sequence[int], at: int) -> tuple[Answer, ...]:
    """What refund.lua returns, put to the answers that it is about; most calls have none."""
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
    return tuple(answers)


def _pack(flat: list[Any]) -> bytes:
    # Redis's reader of msgpack does not know the newer type for bytes.
    packed: bytes = msgpack.packb(flat, use_bin_type=False)
    return packed
