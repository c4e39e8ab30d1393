"""PeekKey: one limit key's record as it stands, for people: who has counted what. Changes nothing, and creates nothing.

Cells roll over when somebody reports; a reader rolls them for itself, to the shard's time. New fields are appended to
each part of a record (common.lua), so what is read here is read of later formats too, as far as it goes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import msgpack

from headgate.origin.bucket_record import BucketRecord
from headgate.origin.keyspace import BUCKET_COMPONENT, COMPONENT, REGION, KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import ShardMemory
from headgate.origin.window_record import WindowRecord

ALLOWANCES_FORMAT: Final = 4
"""Format of records from which on `pressed` stands before refunds (common.lua)."""
MOST_FIELDS: Final = 2_000
"""Runs and regions of one key that are shown: reading so many takes a shard about a millisecond."""
WINDOW: Final = b"w"
BUCKET: Final = b"b"
"""Fields of a record that hold its totals."""


class CellPeek(NamedTuple):
    """The region's counts of one cell, by the names that `headgate.v1.RegionView` has for them."""

    total: int = 0
    unattributed: int = 0
    """The part of the total that no component explains: vouched for by a node or a peer after a loss."""
    foreign: int = 0
    refunded: int = 0
    foreign_refunded: int = 0
    """Refunded part of the total, and of the other regions' counts."""

    @property
    def used(self) -> int:
        """Cost that counts against the limit, of all regions."""
        return self.total - self.refunded + self.foreign - self.foreign_refunded


class ComponentPeek(NamedTuple):
    """Part of one run of a node in the record."""

    name: bytes
    current: int
    previous: int
    """Always 0 of a bucket: it has one total."""
    held: int
    """The allowance that it was given last, or said that it holds."""


class RegionPeek(NamedTuple):
    """Counts of another region for the key."""

    region: bytes
    current: int
    previous: int
    ahead: int
    """Count in the next cell already, by that region's clock."""


class WindowPeek(NamedTuple):
    """A record under a window, at one window."""

    sequence: int
    current: CellPeek
    previous: CellPeek
    components: tuple[ComponentPeek, ...]
    regions: tuple[RegionPeek, ...]


class BucketPeek(NamedTuple):
    """A record under GCRA."""

    rate: int
    arrival_ms: int
    arrival_rest: int
    components: tuple[ComponentPeek, ...]


class KeyPeek(NamedTuple):
    """Result of a peek: what a shard has under a limit key."""

    time_ms: int
    record: WindowPeek | BucketPeek | None
    """None: nobody has reported the key, or what was reported no longer matters."""
    readable: bool = True
    """False: something stands there that this version can't read."""
    hidden: int = 0
    """Runs and regions that are not shown, being too many."""


class RawWindow(NamedTuple):
    """A record under a window as it was written, at the window of its last report."""

    sequence: int
    current: CellPeek
    previous: CellPeek
    ahead: CellPeek
    """Counts of other regions in the next cell already, by their clocks."""
    components: list[tuple[int, ComponentPeek]]
    """Each with the window of its own last report."""
    regions: list[tuple[int, RegionPeek]]

    def at(self, sequence: int) -> WindowPeek:
        """Roll the record on to a window, or to its own if that is later."""
        sequence = max(sequence, self.sequence)
        current, previous = _rolled(self.current, self.previous, self.ahead, CellPeek(), sequence - self.sequence)
        components = [
            part._replace(current=rolled[0], previous=rolled[1])
            for at, part in self.components
            if any(rolled := _rolled(part.current, part.previous, 0, 0, sequence - at)) or part.held
        ]
        regions = [_region_at(part, sequence - at) for at, part in self.regions]
        shown = [part for part in regions if part.current or part.previous or part.ahead]
        return WindowPeek(sequence, current, previous, tuple(sorted(components)), tuple(sorted(shown)))


@dataclass(frozen=True, slots=True)
class PeekKey(Operation[KeyPeek]):
    """Read a limit key's record, for people."""

    key: bytes
    window_ms: int
    """Window of the limit, which a record does not know."""

    lua: ClassVar[tuple[str, ...]] = ("keys/peek_key",)

    def apply(self, memory: ShardMemory) -> KeyPeek:
        now_ms = memory.now_ms()
        record = memory.find(self.key, now_ms)
        if record is None:
            return KeyPeek(now_ms, None)
        if isinstance(record, WindowRecord):
            return KeyPeek(now_ms, _raw_window(record).at(now_ms // self.window_ms))
        if isinstance(record, BucketRecord):
            parts = [ComponentPeek(name, part.own, 0, part.held) for name, part in record.components.items()]
            return KeyPeek(now_ms, BucketPeek(record.rate, *record.arrival, tuple(sorted(parts))))
        return KeyPeek(now_ms, None, readable=False)

    def pack(self, space: KeySpace) -> Packed:
        return Packed([space.limit(self.key)], (MOST_FIELDS,))

    def unpack(self, reply: Any, epoch: bytes) -> KeyPeek:
        time_ms, count, *flat = reply
        if count < 0:
            return KeyPeek(time_ms, None, readable=False)
        fields = {name: value for name, value in zip(flat[::2], flat[1::2], strict=True) if value}
        hidden = count - len(fields)
        try:
            if WINDOW in fields:
                return KeyPeek(time_ms, _packed_window(fields).at(time_ms // self.window_ms), hidden=hidden)
            if BUCKET in fields:
                return KeyPeek(time_ms, _packed_bucket(fields), hidden=hidden)
        except (ValueError, TypeError, msgpack.UnpackException):
            return KeyPeek(time_ms, None, readable=False)
        return KeyPeek(time_ms, None, readable=not count)


def _raw_window(record: WindowRecord) -> RawWindow:
    cells = [
        CellPeek(cell.region_total, cell.unattributed, cell.foreign, cell.refunded, cell.foreign_refunded)
        for cell in (record.current, record.previous)
    ]
    components = [
        (part.sequence, ComponentPeek(name, part.own, part.previous_own, part.held))
        for name, part in record.components.items()
    ]
    regions = [
        (part.sequence, RegionPeek(name, part.current, part.previous, part.ahead))
        for name, part in record.foreign.items()
    ]
    ahead = CellPeek(foreign=record.ahead_foreign, foreign_refunded=record.ahead_refunded)
    return RawWindow(record.sequence, cells[0], cells[1], ahead, components, regions)


def _region_at(part: RegionPeek, by: int) -> RegionPeek:
    current, previous = _rolled(part.current, part.previous, part.ahead, 0, by)
    return RegionPeek(part.region, current, previous, part.ahead if by <= 0 else 0)


Cell = TypeVar("Cell", int, CellPeek)


def _rolled(current: Cell, previous: Cell, ahead: Cell, empty: Cell, by: int) -> tuple[Cell, Cell]:
    """The current and the previous cell so many windows later."""
    cells = previous, current, ahead, empty, empty
    place = min(max(0, by), 3)
    return cells[place + 1], cells[place]


def _packed_window(fields: dict[bytes, bytes]) -> RawWindow:
    # The reset stands in between, from format 4 on with what else concerns allowances; refunds only where something was
    # given back.
    numbers = _numbers(fields[WINDOW], 13, most=20)
    first = 15 if numbers[0] >= ALLOWANCES_FORMAT else 14
    refunds = numbers[first : first + 5] or [0] * 5
    components, regions = [], []
    for name, packed in fields.items():
        if name.startswith(COMPONENT):
            at, *counts = _numbers(packed, 4)
            components.append((at, ComponentPeek(name[1:], *counts)))
        elif name.startswith(REGION):
            at, *counts = _numbers(packed, 4)
            regions.append((at, RegionPeek(name[1:], *counts)))
    current, previous = CellPeek(*numbers[2:5], *refunds[0:3:2]), CellPeek(*numbers[5:8], *refunds[1:4:2])
    ahead = CellPeek(foreign=numbers[12], foreign_refunded=refunds[4])
    return RawWindow(numbers[1], current, previous, ahead, components, regions)


def _packed_bucket(fields: dict[bytes, bytes]) -> BucketPeek:
    _, rate, arrival_ms, arrival_rest = _numbers(fields[BUCKET], 4)
    parts = []
    for name, packed in fields.items():
        if name.startswith(BUCKET_COMPONENT):
            own, held = _numbers(packed, 2)
            parts.append(ComponentPeek(name[1:], own, 0, held))
    return BucketPeek(rate, arrival_ms, arrival_rest, tuple(sorted(parts)))


def _numbers(packed: bytes, count: int, most: int = 0) -> list[int]:
    """Read the first `count` values, or up to `most`. Raises ValueError if there are fewer, or other than numbers."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed)
    numbers = [int(value) for value, _ in zip(unpacker, range(max(count, most)), strict=False)]
    if len(numbers) < count:
        raise ValueError(f"{len(numbers)} values, {count} are needed")
    return numbers
