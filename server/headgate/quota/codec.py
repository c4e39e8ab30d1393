"""Messages about quotas, to and from `protos/headgate/v1/exchange.proto`. Pure.

What is too much, or no message of ours, raises BadRequest; whether the figures make sense is for the ledger to say.
"""

from collections.abc import Sequence
from typing import Final

from headgate.errors import BadRequest
from headgate.quota.membership import Mark
from headgate.quota.message import QuotaEntry, QuotaMessage
from headgate.v1 import exchange_pb2 as wire

MAX_QUOTA_ENTRIES: Final = 1_000
"""Entries of one message. Ours have at most half as many."""
MAX_ROWS: Final = 20_000
"""Rows of one key: three epochs of 80 regions, each of which has given to each."""
ROW_NUMBERS: Final = 4


def pack_quota(message: QuotaMessage) -> bytes:
    """Pack a message, for a peer and for the keeper that finds it in the origin."""
    return wire.Quota(
        tag=message.tag,
        mark=_mark(message.mark),
        echo=_mark(message.echo),
        stores=message.stores,
        filled=message.filled,
        answers=message.answers,
        whole=message.whole,
        changed_ago_ms=message.changed_ago_ms,
        silent_region=[region for region, _ in message.silent_ms],
        silent_ms=[ms for _, ms in message.silent_ms],
        entries=[
            wire.QuotaEntry(
                key=entry.key,
                window_ms=entry.window_ms,
                need=entry.need,
                over=entry.over,
                rows=[number for row in entry.rows for number in row],
            )
            for entry in message.entries
        ],
    ).SerializeToString()


def unpack_quota(data: bytes) -> QuotaMessage:
    """Raises BadRequest, or protobuf's DecodeError."""
    message = wire.Quota.FromString(data)
    if len(message.entries) > MAX_QUOTA_ENTRIES:
        raise BadRequest(f"a message of {len(message.entries)} quotas: at most {MAX_QUOTA_ENTRIES} are accepted")
    if len(message.silent_region) != len(message.silent_ms):
        raise BadRequest("columns of different lengths: regions that are silent, and for how long")
    return QuotaMessage(
        tag=message.tag,
        mark=Mark(message.mark.run, message.mark.number),
        echo=Mark(message.echo.run, message.echo.number),
        stores=tuple(message.stores),
        filled=message.filled,
        answers=message.answers,
        whole=message.whole,
        changed_ago_ms=message.changed_ago_ms,
        silent_ms=tuple(zip(message.silent_region, message.silent_ms, strict=True)),
        entries=tuple(
            [
                QuotaEntry(entry.key, entry.window_ms, entry.need, entry.over, _rows(entry.rows))
                for entry in message.entries
            ]
        ),
    )


def _rows(flat: Sequence[int]) -> tuple[tuple[int, int, int, int], ...]:
    if len(flat) % ROW_NUMBERS or len(flat) > ROW_NUMBERS * MAX_ROWS:
        raise BadRequest(f"{len(flat)} numbers of gifts: four for each, and at most {MAX_ROWS} gifts")
    return tuple(zip(flat[0::4], flat[1::4], flat[2::4], flat[3::4], strict=True))


def pack_mark(mark: Mark) -> bytes:
    return _mark(mark).SerializeToString()


def unpack_mark(data: bytes) -> Mark | None:
    """None where nothing was taken in yet."""
    mark = wire.QuotaMark.FromString(data)
    return Mark(mark.run, mark.number) if data else None


def _mark(mark: Mark) -> wire.QuotaMark:
    return wire.QuotaMark(run=mark.run, number=mark.number)
