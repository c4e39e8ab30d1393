"""Calls and replies as the scripts take and give them: flat arrays of numbers, packed with msgpack.

Flat, because a Lua table per report would cost more than the arithmetic on it. The
layouts are those that state.lua and import.lua open with.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgpack

from headgate.origin.protocol import (
    Answer,
    BucketAnswer,
    BucketReport,
    Call,
    Changes,
    Count,
    ForeignCount,
    Published,
    Reply,
    Want,
    WindowAnswer,
    WindowReport,
)

SLIDING: Final = 0
FIXED: Final = 1
BUCKET: Final = 2

COMPONENT: Final = b"c"
BUCKET_COMPONENT: Final = b"d"
REGION: Final = b"f"
"""What begins a field's name, so that fields of different kinds can't meet."""

PUBLISHED_NUMBERS: Final = 7
"""Per name in what components.lua returns."""


def pack_reports(call: Call) -> bytes:
    """A call's reports as the script reads them: its first argument, flat."""
    deferred = _deferred(call)
    flat: list[Any] = [len(call.reports), sum(isinstance(report, BucketReport) for report in call.reports)]
    for index, report in enumerate(call.reports):
        if isinstance(report, WindowReport):
            _flatten_window(flat, report, int(index in deferred))
        else:
            _flatten_bucket(flat, report, int(index in deferred))
    return _pack(flat)


def pack_requests(requests: Iterable[Sequence[Want]]) -> bytes:
    """A call's requests as the script reads them: its second argument, with one want per report and request."""
    flat: list[int] = []
    for wants in requests:
        costs: dict[int, int] = {}
        for report, cost in wants:
            costs[report] = costs.get(report, 0) + cost
        flat.append(len(costs))
        for report, cost in costs.items():
            # Lua counts from 1.
            flat += (report + 1, cost)
    return _pack(flat)


def pack_foreign(counts: Iterable[ForeignCount], region: bytes) -> bytes:
    """Other regions' counts as the import script reads them; those of our own region have an empty name."""
    flat: list[Any] = []
    for count in counts:
        field = b"" if count.region == region else REGION + count.region
        flat += (field, count.window_ms, count.sequence, count.total, count.name)
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


def unpack_reply(packed: bytes, epoch: bytes, call: Call) -> Reply:
    """A script's reply as the protocol's values, in the order of the call's reports and requests."""
    flat: list[int] = msgpack.unpackb(packed)
    answers: list[Answer] = []
    at = 1
    for report in call.reports:
        if isinstance(report, WindowReport):
            current, previous = Count(*flat[at + 1 : at + 4]), Count(*flat[at + 4 : at + 7])
            answers.append(WindowAnswer(flat[at], current, previous, flat[at + 7]))
            at += 8
        else:
            answers.append(BucketAnswer(*flat[at : at + 4]))
            at += 4
    return Reply(flat[0], epoch, tuple(answers), tuple([charged == 1 for charged in flat[at:]]))


def _deferred(call: Call) -> set[int]:
    """Reports whose state must outlast their merging: wanted ones, and all that share a key."""
    wanted = {want.report for wants in call.requests for want in wants}
    if len({report.key for report in call.reports}) == len(call.reports):
        return wanted
    sharing: dict[bytes, list[int]] = {}
    for index, report in enumerate(call.reports):
        sharing.setdefault(report.key, []).append(index)
    return wanted.union(*(indexes for indexes in sharing.values() if len(indexes) > 1))


def _flatten_window(flat: list[Any], report: WindowReport, deferred: int) -> None:
    flat += (
        SLIDING if report.sliding else FIXED,
        deferred,
        COMPONENT + report.component,
        report.number,
        report.held,
        report.limit,
        report.window_ms,
        report.precision,
        int(report.leaving),
        report.publish_at,
        report.name,
        int(report.urgent),
        len(report.cells),
    )
    for cell in report.cells:
        flat += cell


def _flatten_bucket(flat: list[Any], report: BucketReport, deferred: int) -> None:
    flat += (
        BUCKET,
        deferred,
        BUCKET_COMPONENT + report.component,
        report.number,
        report.held,
        report.rate,
        report.window_ms,
        report.precision,
        int(report.leaving),
        report.burst,
        report.total,
        report.reserved,
        report.acknowledged,
        report.answered_ms,
        report.answered_rest,
        report.since_ms,
    )


def _pack(flat: list[Any]) -> bytes:
    # Redis's reader of msgpack does not know the newer type for bytes.
    packed: bytes = msgpack.packb(flat, use_bin_type=False)
    return packed
