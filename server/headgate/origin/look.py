"""One limit key's record as it stands, for people: who has counted what. Looking changes nothing, and creates nothing.

Cells roll over when somebody reports; whoever looks rolls them for himself, to the shard's time.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from headgate.origin.bucket_record import BucketRecord
from headgate.origin.window_record import WindowRecord

MOST_FIELDS: Final = 2_000
"""Runs and regions of one key that are shown: reading so many takes a shard about a millisecond."""


class CellLook(NamedTuple):
    """The region's counts of one cell."""

    region_total: int = 0
    unattributed: int = 0
    """The part of the total that no component explains: vouched for by a node or a peer after a loss."""
    foreign: int = 0
    refunded: int = 0
    foreign_refunded: int = 0
    """What of the total, and of the other regions' counts, was given back."""

    @property
    def used(self) -> int:
        """What counts."""
        return self.region_total - self.refunded + self.foreign - self.foreign_refunded


class ComponentLook(NamedTuple):
    """What one run of a node has in the record."""

    name: bytes
    current: int
    previous: int
    """Of a bucket always 0: it has one total."""
    held: int
    """The grant that it was given last, or said that it holds."""


class RegionLook(NamedTuple):
    """What another region has said of the key."""

    region: bytes
    current: int
    previous: int
    ahead: int
    """In the next cell already, by that region's clock."""


class WindowLook(NamedTuple):
    """A record under a window, at one window."""

    sequence: int
    current: CellLook
    previous: CellLook
    components: tuple[ComponentLook, ...]
    regions: tuple[RegionLook, ...]


class BucketLook(NamedTuple):
    """A record under GCRA."""

    rate: int
    arrival_ms: int
    arrival_rest: int
    components: tuple[ComponentLook, ...]


class KeyLook(NamedTuple):
    """What a shard has under a limit key."""

    time_ms: int
    record: WindowLook | BucketLook | None
    """None: nobody has reported the key, or what was reported no longer matters."""
    readable: bool = True
    """False: something stands there that this version can't read."""
    hidden: int = 0
    """Runs and regions that are not shown, being too many."""


class RawWindow(NamedTuple):
    """A record under a window as it was written, at the window of its last report."""

    sequence: int
    current: CellLook
    previous: CellLook
    ahead_foreign: int
    components: tuple[tuple[int, ComponentLook], ...]
    """Each with the window of its own last report."""
    regions: tuple[tuple[int, RegionLook], ...]
    ahead_refunded: int = 0

    def at(self, sequence: int) -> WindowLook:
        """As it would stand after a report in that window, or in its own if that is later."""
        sequence = max(sequence, self.sequence)
        ahead = CellLook(foreign=self.ahead_foreign, foreign_refunded=self.ahead_refunded)
        current, previous = _rolled(self.current, self.previous, ahead, CellLook(), sequence - self.sequence)
        components = [
            part._replace(current=rolled[0], previous=rolled[1])
            for at, part in self.components
            if any(rolled := _rolled(part.current, part.previous, 0, 0, sequence - at)) or part.held
        ]
        regions = [_region_at(part, sequence - at) for at, part in self.regions]
        shown = [part for part in regions if part.current or part.previous or part.ahead]
        return WindowLook(sequence, current, previous, _by_name(components), tuple(sorted(shown)))


def look_at(record: object, now_ms: int, window_ms: int) -> KeyLook:
    """At a record of the origin in memory."""
    if record is None:
        return KeyLook(now_ms, None)
    if isinstance(record, WindowRecord):
        return KeyLook(now_ms, _raw_window(record).at(now_ms // window_ms))
    if isinstance(record, BucketRecord):
        parts = [ComponentLook(name, part.own, 0, part.held) for name, part in record.components.items()]
        return KeyLook(now_ms, BucketLook(record.rate, *record.arrival, _by_name(parts)))
    return KeyLook(now_ms, None, readable=False)


def _raw_window(record: WindowRecord) -> RawWindow:
    cells = [
        CellLook(cell.region_total, cell.unattributed, cell.foreign, cell.refunded, cell.foreign_refunded)
        for cell in (record.current, record.previous)
    ]
    components = [
        (part.sequence, ComponentLook(name, part.own, part.previous_own, part.held))
        for name, part in record.components.items()
    ]
    regions = [
        (part.sequence, RegionLook(name, part.current, part.previous, part.ahead))
        for name, part in record.foreign.items()
    ]
    about = tuple(components), tuple(regions), record.ahead_refunded
    return RawWindow(record.sequence, cells[0], cells[1], record.ahead_foreign, *about)


def _by_name(parts: list[ComponentLook]) -> tuple[ComponentLook, ...]:
    return tuple(sorted(parts))


def _region_at(part: RegionLook, by: int) -> RegionLook:
    current, previous = _rolled(part.current, part.previous, part.ahead, 0, by)
    return RegionLook(part.region, current, previous, part.ahead if by <= 0 else 0)


Cell = TypeVar("Cell", int, CellLook)


def _rolled(current: Cell, previous: Cell, ahead: Cell, empty: Cell, by: int) -> tuple[Cell, Cell]:
    """The current and the previous cell so many windows later."""
    cells: Callable[[int], Cell] = lambda place: {-1: previous, 0: current, 1: ahead}.get(place, empty)  # noqa: E731
    by = max(0, by)
    return cells(by), cells(by - 1)
