"""A record's fields, as the scripts pack them, for people. The layouts are those that common.lua opens with.

New fields are appended to each, so what is read here is read of later formats too, as far as it goes.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from headgate.origin.look import (
    BucketLook,
    CellLook,
    ComponentLook,
    KeyLook,
    RawWindow,
    RegionLook,
)
from headgate.origin.redis_origin.codec import BUCKET_COMPONENT, COMPONENT, REGION

WINDOW = b"w"
BUCKET = b"b"


def unpack_look(reply: Sequence[Any], window_ms: int) -> KeyLook:
    """What look.lua returns."""
    time_ms, count, *flat = reply
    if count < 0:
        return KeyLook(time_ms, None, readable=False)
    fields = {name: value for name, value in zip(flat[::2], flat[1::2], strict=True) if value}
    hidden = count - len(fields)
    try:
        if WINDOW in fields:
            return KeyLook(time_ms, _window(fields).at(time_ms // window_ms), hidden=hidden)
        if BUCKET in fields:
            return KeyLook(time_ms, _bucket(fields), hidden=hidden)
    except (ValueError, TypeError, msgpack.UnpackException):
        return KeyLook(time_ms, None, readable=False)
    return KeyLook(time_ms, None, readable=not count)


def _window(fields: dict[bytes, bytes]) -> RawWindow:
    # The reset stands in between; refunds only where something was given back.
    numbers = _numbers(fields[WINDOW], 13, most=19)
    refunds = numbers[14:19] or [0] * 5
    components, regions = [], []
    for name, packed in fields.items():
        if name.startswith(COMPONENT):
            at, own, previous_own, held = _numbers(packed, 4)
            components.append((at, ComponentLook(name[1:], own, previous_own, held)))
        elif name.startswith(REGION):
            at, current, previous, ahead = _numbers(packed, 4)
            regions.append((at, RegionLook(name[1:], current, previous, ahead)))
    cells = (
        CellLook(*numbers[2:5], *refunds[0:3:2]),
        CellLook(*numbers[5:8], *refunds[1:4:2]),
    )
    return RawWindow(numbers[1], *cells, numbers[12], tuple(components), tuple(regions), refunds[4])


def _bucket(fields: dict[bytes, bytes]) -> BucketLook:
    _, rate, arrival_ms, arrival_rest = _numbers(fields[BUCKET], 4)
    parts = []
    for name, packed in fields.items():
        if name.startswith(BUCKET_COMPONENT):
            own, held = _numbers(packed, 2)
            parts.append(ComponentLook(name[1:], own, 0, held))
    return BucketLook(rate, arrival_ms, arrival_rest, tuple(sorted(parts)))


def _numbers(packed: bytes, count: int, most: int = 0) -> list[int]:
    """The first so many values, or up to `most`. Raises ValueError where there are fewer, or they are no numbers."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed)
    numbers = [int(value) for value, _ in zip(unpacker, range(max(count, most)), strict=False)]
    if len(numbers) < count:
        raise ValueError(f"{len(numbers)} values, {count} are needed")
    return numbers
