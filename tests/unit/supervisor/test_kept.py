"""What one worker keeps while the origin is away: told to the others at once, and to those that begin later."""

from collections.abc import Sequence
from typing import Any, cast

from headgate.origin.region_map import MapEntry
from headgate.region.region_map import row_of
from headgate.supervisor.kept import MOST_KEPT, KeptEntries
from headgate.supervisor.process import WorkerProcess

from tests.support.clock import ManualClock


class Worker:
    """Stands in for a process: hears what it is told."""

    def __init__(self) -> None:
        self.told: list[Sequence[Any]] = []
        self.tell_kept = self.told.append
        self.on_kept: Any = None
        self.on_serving: Any = None


def row(name: bytes, expires_ms: int = 1_000, stamp: int = 1) -> Sequence[Any]:
    return row_of(MapEntry(name, b"value", expires_ms, stamp))


def followed(number: int) -> tuple[list[Worker], KeptEntries, ManualClock]:
    workers, clock = [Worker() for _ in range(number)], ManualClock()
    kept = KeptEntries(lambda: cast(list[WorkerProcess], workers), clock.now_ms)
    for worker in workers:
        kept.follow(cast(WorkerProcess, worker))
    return workers, kept, clock


def test_the_others_are_told_at_once_and_the_teller_is_not() -> None:
    (first, second, third), _, _ = followed(3)
    first.on_kept(row(b"a"))
    assert (first.told, second.told, third.told) == ([], [row(b"a")], [row(b"a")])


def test_one_that_begins_later_is_told_the_latest_of_each_name_that_still_holds() -> None:
    (first,), kept, clock = followed(1)
    first.on_kept(row(b"a", stamp=1))
    first.on_kept(row(b"ends", expires_ms=50))
    first.on_kept(row(b"a", stamp=2))
    clock.advance(50)
    late = Worker()
    kept.follow(cast(WorkerProcess, late))
    late.on_serving()
    assert late.told == [row(b"a", stamp=2)]


def test_a_bounded_number_is_remembered_the_latest() -> None:
    (first,), _, _ = followed(1)
    for number in range(MOST_KEPT + 3):
        first.on_kept(row(b"%d" % number))
    first.on_serving()
    assert first.told == [row(b"%d" % number) for number in range(3, MOST_KEPT + 3)]
