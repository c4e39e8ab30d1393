"""One table of cases for every origin: what is said to it, when, and what it must answer.

A case is a list of steps on one limit key (or a few). Times are in ms after START_MS;
the window is 10 s unless a case says otherwise. Each case names the rule it pins down.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.origin.operations.call import Call
from headgate.origin.protocol import (
    NO_GRANT,
    PEEK,
    UNBOUND,
    Answer,
    BucketAnswer,
    BucketReport,
    CellReport,
    Count,
    Prefetch,
    Report,
    WindowAnswer,
    WindowReport,
)

WINDOW_MS = 10_000
SEQUENCE = 170_000_000
START_MS = SEQUENCE * WINDOW_MS
"""Also the beginning of a generation of grants, which are 10 s too."""


@dataclass(frozen=True)
class Step:
    at_ms: int
    call: Call | None
    answers: tuple[Answer, ...] = ()
    charged: tuple[bool, ...] = ()
    action: str = ""
    """`wipe`, or `restart`, instead of a call."""


@dataclass(frozen=True)
class Case:
    name: str
    steps: list[Step] = field(default_factory=list)


def cell(total: int, *, at: int = 0, reserved: int = 0, seen: int = 0, sent: int = 0) -> CellReport:
    """A report of the cell `at` windows after the first."""
    return CellReport(SEQUENCE + at, total, reserved, seen, sent)


def window(
    run: str,
    number: int,
    *cells: CellReport,
    key: str = "k",
    held: int = 0,
    limit: int = 100,
    precision: int = 0,
    sliding: bool = True,
    leaving: bool = False,
) -> WindowReport:
    return WindowReport(
        key.encode(), run.encode(), number, held, limit, WINDOW_MS, precision, sliding, leaving, tuple(cells)
    )


DAY_MS = 86_400_000
DAY_SEQUENCE = START_MS // DAY_MS


def long_window(run: str, number: int, total: int, *, seen: int = 0, sent: int = 0, precision: int = 0) -> WindowReport:
    """A report of a window of a day, which no step of the cases leaves."""
    cells = (CellReport(DAY_SEQUENCE, total, 0, seen, sent),)
    return WindowReport(b"day", run.encode(), number, 0, 100, DAY_MS, precision, True, False, cells)


def long_counts(own: int, region_total: int, *, grant: int = 0) -> WindowAnswer:
    return WindowAnswer(DAY_SEQUENCE, Count(own, region_total, 0), Count(0, 0, 0), grant)


def said(*reports: Report, wants: tuple[tuple[int, ...], ...] = (), ahead: tuple[Prefetch, ...] = ()) -> Call:
    """A call; `wants` are costs by request, each on the report of its position."""
    requests = tuple(tuple((index, cost) for index, cost in enumerate(request) if cost >= 0) for request in wants)
    return Call(tuple(reports), requests, ahead=ahead)


def counts(
    current: tuple[int, int], previous: tuple[int, int] = (0, 0), *, at: int = 0, grant: int = 0
) -> WindowAnswer:
    return WindowAnswer(SEQUENCE + at, Count(*current, 0), Count(*previous, 0), grant)


def bucket(
    run: str,
    number: int,
    total: int = 0,
    *,
    reserved: int = 0,
    acked: int = 0,
    answered: tuple[int, int] = (0, 0),
    since: int = 0,
    held: int = 0,
    rate: int = 10,
    burst: int = 5,
    precision: int = 0,
    leaving: bool = False,
    debt: int = 0,
    reset: int = UNBOUND,
) -> BucketReport:
    """Ten per 10 s, so one second each, with a burst of 5, unless told otherwise."""
    return BucketReport(
        b"b", run.encode(), number, held, rate, WINDOW_MS, burst, precision, leaving,
        total, reserved, acked, answered[0], answered[1], since, debt, reset,
    )  # fmt: skip


def arrival(n: int, after_ms: int, rest: int = 0, grant: int = 0) -> BucketAnswer:
    return BucketAnswer(n, START_MS + after_ms, rest, grant)


def _ahead() -> list[Case]:
    return [
        Case(
            "what is asked ahead is charged after all wants, in whole requests, as many as fit",
            [
                Step(
                    0,
                    said(window("a", 1, cell(2), limit=10), wants=((3,),), ahead=(Prefetch(0, 4, 2),)),
                    (counts((9, 9)),),
                    (True,),
                ),
                Step(1, said(window("b", 1, cell(0), limit=10), ahead=(Prefetch(0, 4, 2),)), (counts((0, 9)),)),
                Step(2, said(window("b", 2, cell(0), limit=10), ahead=(Prefetch(0, 4, 1),)), (counts((1, 10)),)),
            ],
        ),
        Case(
            "credit that is left is not charged again",
            [
                Step(
                    0,
                    said(window("a", 1, cell(0), limit=10), wants=((1,),), ahead=(Prefetch(0, 4, 1),)),
                    (counts((5, 5)),),
                    (True,),
                ),
                Step(
                    1,
                    said(window("a", 2, cell(3), limit=10), wants=((1,),), ahead=(Prefetch(0, 4, 1),)),
                    (counts((8, 8)),),
                    (True,),
                ),
                Step(2, said(window("a", 3, cell(4), limit=8), ahead=(Prefetch(0, 9, 1),)), (counts((8, 8)),)),
            ],
        ),
        Case(
            "nothing is charged ahead for a call that was overtaken, nor above a limit that was lowered",
            [
                Step(0, said(window("a", 2, cell(4), limit=10)), (counts((4, 4)),)),
                Step(
                    1,
                    said(window("a", 1, cell(4), limit=10), ahead=(Prefetch(0, 2, 1),)),
                    (counts((4, 4), grant=NO_GRANT),),
                ),
                Step(2, said(window("a", 3, cell(4), limit=3), ahead=(Prefetch(0, 2, 1),)), (counts((4, 4)),)),
            ],
        ),
        Case(
            "a bucket is charged ahead as far as its burst goes",
            [
                Step(0, said(bucket("a", 1), wants=((1,),), ahead=(Prefetch(0, 9, 2),)), (arrival(5, 5_000),), (True,)),
                Step(1_000, said(bucket("b", 1), ahead=(Prefetch(0, 2, 1),)), (arrival(1, 6_000),)),
                Step(1_000, said(bucket("a", 2, 1), ahead=(Prefetch(0, 9, 2),)), (arrival(5, 6_000),)),
            ],
        ),
        Case(
            "one call asks ahead on several keys, and reports others",
            [
                Step(
                    0,
                    said(
                        window("a", 1, cell(1), limit=3),
                        bucket("a", 1),
                        window("a", 1, cell(7), key="y"),
                        wants=((1, 1, -1),),
                        ahead=(Prefetch(0, 5, 1), Prefetch(1, 1, 3)),
                    ),
                    (counts((3, 3)), arrival(4, 4_000), counts((7, 7))),
                    (True,),
                ),
            ],
        ),
    ]


def _components() -> list[Case]:
    return [
        Case(
            "totals of several runs add up; each is told its own",
            [
                Step(0, said(window("a", 1, cell(3))), (counts((3, 3)),)),
                Step(1, said(window("b", 1, cell(4))), (counts((4, 7)),)),
                Step(2, said(window("a", 2, cell(5))), (counts((5, 9)),)),
            ],
        ),
        Case(
            "a report that comes again, late or with less changes nothing",
            [
                Step(0, said(window("a", 2, cell(5))), (counts((5, 5)),)),
                Step(1, said(window("a", 1, cell(3))), (counts((5, 5), grant=NO_GRANT),)),
                Step(2, said(window("a", 2, cell(5))), (counts((5, 5), grant=NO_GRANT),)),
            ],
        ),
        Case(
            "two runs of one node own two components: a restart neither overwrites nor hides",
            [
                Step(0, said(window("node-1", 9, cell(37))), (counts((37, 37)),)),
                Step(1, said(window("node-2", 1, cell(2))), (counts((2, 39)),)),
            ],
        ),
        Case(
            "a window later the counts are previous, two later they are gone",
            [
                Step(9_999, said(window("a", 1, cell(5))), (counts((5, 5)),)),
                Step(10_000, said(window("a", 2)), (counts((0, 0), (5, 5), at=1),)),
                Step(20_000, said(window("a", 3)), (counts((0, 0), (0, 0), at=2),)),
            ],
        ),
        Case(
            "the previous cell stays open to late replays",
            [
                Step(0, said(window("a", 1, cell(5))), (counts((5, 5)),)),
                Step(12_000, said(window("b", 1, cell(4), cell(1, at=1))), (counts((1, 1), (4, 9), at=1),)),
            ],
        ),
        Case(
            "cells older than the previous one no longer matter",
            [Step(25_000, said(window("a", 1, cell(5), cell(3, at=1))), (counts((0, 0), (3, 3), at=2),))],
        ),
        Case(
            "a cell of the shard's future is merged when it comes",
            [
                Step(9_990, said(window("a", 1, cell(5), cell(2, at=1))), (counts((5, 5)),)),
                Step(10_010, said(window("a", 2, cell(5), cell(2, at=1))), (counts((2, 2), (5, 5), at=1),)),
            ],
        ),
        Case(
            "keys do not meet",
            [
                Step(0, said(window("a", 1, cell(5), key="x"), window("a", 1, cell(7), key="y")),
                     (counts((5, 5)), counts((7, 7)))),
            ],
        ),
    ]  # fmt: skip


def _wants() -> list[Case]:
    return [
        Case(
            "a want is charged if it fits, and told so",
            [
                Step(0, said(window("a", 1, cell(0), limit=2), wants=((2,),)), (counts((2, 2)),), (True,)),
                Step(1, said(window("a", 2, cell(2, sent=2), limit=2), wants=((1,),)), (counts((2, 2)),), (False,)),
            ],
        ),
        Case(
            "wants are decided in order; one that does not fit does not stop the next",
            [
                Step(0, said(window("a", 1, cell(0), limit=5), wants=((3,), (3,), (2,))),
                     (counts((5, 5)),), (True, False, True)),
            ],
        ),
        Case(
            "a want of nothing looks, and passes at the limit but not above it",
            [
                Step(0, said(window("a", 1, cell(5), limit=5), wants=((0,),)), (counts((5, 5)),), (True,)),
                Step(1, said(window("a", 2, cell(5), limit=4), wants=((0,),)), (counts((5, 5)),), (False,)),
            ],
        ),
        Case(
            "a charge whose reply was lost is credit, and pays for the retry",
            [
                Step(0, said(window("a", 1, cell(0), limit=1), wants=((1,),)), (counts((1, 1)),), (True,)),
                Step(1, said(window("a", 2, cell(0, sent=1), limit=1), wants=((1,),)), (counts((1, 1)),), (True,)),
            ],
        ),
        Case(
            "credit is what neither totals nor reservations explain, and is spent once",
            [
                Step(0, said(window("a", 1, cell(0)), wants=((6,),)), (counts((6, 6)),), (True,)),
                Step(1, said(window("a", 2, cell(1, reserved=2, sent=6)), wants=((2,), (2,))),
                     (counts((7, 7)),), (True, True)),
            ],
        ),
        Case(
            "one run's credit pays for no other run",
            [
                Step(0, said(window("a", 1, cell(0), limit=5), wants=((5,),)), (counts((5, 5)),), (True,)),
                Step(1, said(window("b", 1, cell(0), limit=5), wants=((1,),)), (counts((0, 5)),), (False,)),
            ],
        ),
        Case(
            "the wants of one request are charged all or none",
            [
                Step(0, said(window("a", 1, cell(0), key="x", limit=9), window("a", 1, cell(0), key="y", limit=1),
                             wants=((4, 2), (5, 1), (5, 0))),
                     (counts((5, 5)), counts((1, 1))), (False, True, False)),
            ],
        ),
        Case(
            "the previous window counts by the share still in sight, rounded down",
            [
                Step(0, said(window("a", 1, cell(10))), (counts((10, 10)),)),
                Step(14_999, said(window("a", 2, cell(0, at=1), limit=6), wants=((1,),)),
                     (counts((1, 1), (10, 10), at=1),), (True,)),
                Step(14_999, said(window("a", 3, cell(1, at=1, sent=1), limit=6), wants=((1,),)),
                     (counts((1, 1), (10, 10), at=1),), (False,)),
                Step(15_001, said(window("a", 4, cell(1, at=1, sent=2), limit=6), wants=((1,),)),
                     (counts((2, 2), (10, 10), at=1),), (True,)),
            ],
        ),
        Case(
            "a fixed window does not count the previous one",
            [
                Step(0, said(window("a", 1, cell(10), sliding=False)), (counts((10, 10)),)),
                Step(10_000, said(window("a", 2, cell(0, at=1), limit=10, sliding=False), wants=((10,),)),
                     (counts((10, 10), (10, 10), at=1),), (True,)),
            ],
        ),
        Case(
            "an overtaken call charges nothing",
            [
                Step(0, said(window("a", 2, cell(0))), (counts((0, 0)),)),
                Step(1, said(window("a", 1, cell(0)), wants=((1,),)), (counts((0, 0), grant=NO_GRANT),), (False,)),
            ],
        ),
        Case(
            "all reports are merged before the first want is decided",
            [
                Step(0, said(window("a", 1, cell(0), key="x", limit=5), window("a", 1, cell(5), key="y", limit=5),
                             wants=((1, 1),)),
                     (counts((0, 0)), counts((5, 5))), (False,)),
            ],
        ),
        Case(
            "a limit that was lowered binds the next want",
            [
                Step(0, said(window("a", 1, cell(50), limit=100), wants=((1,),)), (counts((51, 51)),), (True,)),
                Step(1, said(window("a", 2, cell(51, sent=51), limit=51), wants=((1,),)),
                     (counts((51, 51)),), (False,)),
            ],
        ),
    ]  # fmt: skip


def _grants() -> list[Case]:
    return [
        Case(
            "each run is offered half of what the others leave, rounded up",
            [
                Step(0, said(window("a", 1, precision=5)), (counts((0, 0), grant=3),)),
                Step(1, said(window("b", 1, precision=5)), (counts((0, 0), grant=1),)),
                Step(2, said(window("c", 1, precision=5)), (counts((0, 0), grant=1),)),
                Step(3, said(window("d", 1, precision=5)), (counts((0, 0), grant=0),)),
            ],
        ),
        Case(
            "a lost reply can not hand out what a node still holds",
            [
                Step(0, said(window("a", 1, precision=50)), (counts((0, 0), grant=25),)),
                Step(1, said(window("b", 1, precision=50)), (counts((0, 0), grant=13),)),
                # a is offered 19 now; should the reply be lost, it still holds 25.
                Step(2, said(window("a", 2, precision=50, held=25)), (counts((0, 0), grant=19),)),
                Step(3, said(window("b", 2, precision=50, held=13)), (counts((0, 0), grant=13),)),
            ],
        ),
        Case(
            "an overtaken call renews nothing",
            [
                Step(0, said(window("a", 5, precision=50)), (counts((0, 0), grant=25),)),
                Step(1, said(window("a", 4, precision=50)), (counts((0, 0), grant=NO_GRANT),)),
                Step(2, said(window("b", 1, precision=50)), (counts((0, 0), grant=13),)),
            ],
        ),
        Case(
            "what a silent run held counts in two generations and no longer",
            [
                Step(9_000, said(window("a", 1, precision=50)), (counts((0, 0), grant=25),)),
                Step(11_000, said(window("b", 1, precision=50)), (counts((0, 0), at=1, grant=13),)),
                Step(20_000, said(window("b", 2, precision=50, held=13)), (counts((0, 0), at=2, grant=25),)),
            ],
        ),
        Case(
            "a drain gives its grant back",
            [
                Step(0, said(window("a", 1, precision=50)), (counts((0, 0), grant=25),)),
                Step(1, said(window("a", 2, cell(7), precision=50, held=25, leaving=True)),
                     (counts((7, 7), grant=0),)),
                Step(2, said(window("b", 1, precision=50)), (counts((0, 7), grant=25),)),
            ],
        ),
        Case(
            "grants belong to the key, not to a cell: a rollover hands out nothing anew",
            [
                Step(9_999, said(window("a", 1, precision=10)), (counts((0, 0), grant=5),)),
                Step(10_001, said(window("b", 1, precision=10)), (counts((0, 0), at=1, grant=3),)),
            ],
        ),
        Case(
            "a precision that shrank offers only what it leaves",
            [
                Step(0, said(window("a", 1, precision=50)), (counts((0, 0), grant=25),)),
                Step(1, said(window("b", 1, precision=10)), (counts((0, 0), grant=0),)),
                Step(2, said(window("a", 2, held=10, precision=10)), (counts((0, 0), grant=5),)),
            ],
        ),
    ]  # fmt: skip


def _refill() -> list[Case]:
    wipe = Step(0, None, action="wipe")
    return [
        Case(
            "after a wipe the living bring back what was there, the dead's part included",
            [
                Step(0, said(window("a", 1, cell(6))), (counts((6, 6)),)),
                Step(1, said(window("dead", 1, cell(4))), (counts((4, 10)),)),
                Step(2, said(window("a", 2, cell(6, seen=6, sent=6))), (counts((6, 10)),)),
                wipe,
                Step(3, said(window("a", 3, cell(6, seen=10, sent=6))), (counts((6, 10)),)),
            ],
        ),
        Case(
            "hits that are new since the wipe are added, not swallowed",
            [
                wipe,
                Step(3, said(window("a", 3, cell(9, seen=10, sent=6))), (counts((9, 13)),)),
            ],
        ),
        Case(
            "two nodes that both saw the whole refill it once",
            [
                wipe,
                Step(3, said(window("a", 3, cell(6, seen=10, sent=6))), (counts((6, 10)),)),
                Step(4, said(window("b", 3, cell(4, seen=10, sent=4))), (counts((4, 10)),)),
                Step(5, said(window("b", 4, cell(5, seen=10, sent=4))), (counts((5, 11)),)),
            ],
        ),
        Case(
            "a retry across a wipe is a new call: ten admitted, ten counted",
            [
                Step(0, said(window("a", 1, cell(0)), wants=((10,),)), (counts((10, 10)),), (True,)),
                wipe,
                Step(1, said(window("a", 2, cell(0, sent=10)), wants=((10,),)), (counts((10, 10)),), (True,)),
                Step(2, said(window("a", 3, cell(10, seen=10, sent=10))), (counts((10, 10)),)),
            ],
        ),
        Case(
            "the previous cell is refilled like the current one",
            [
                Step(0, said(window("a", 1, cell(6))), (counts((6, 6)),)),
                wipe,
                Step(11_000, said(window("a", 2, cell(6, seen=8, sent=6), cell(1, at=1))),
                     (counts((1, 1), (6, 8), at=1),)),
            ],
        ),
    ]  # fmt: skip


def _shapes() -> list[Case]:
    """What a call may look like: one key twice, one report wanted twice, nothing wanted."""
    return [
        Case(
            "two components of one key in one call meet in it",
            [
                Step(0, said(window("a", 1, cell(3)), window("b", 1, cell(4)), wants=((1, -1), (-1, 1))),
                     (counts((4, 9)), counts((5, 9))), (True, True)),
                Step(1, said(window("a", 2, cell(4)), window("b", 2, cell(5))), (counts((4, 9)), counts((5, 9)))),
            ],
        ),
        Case(
            "a want of one component sees what another one reports after it",
            [
                Step(0, said(window("a", 1, cell(3), limit=7), window("b", 1, cell(4)), wants=((1, -1),)),
                     (counts((3, 7)), counts((4, 7))), (False,)),
            ],
        ),
        Case(
            "one component twice in one call: the second is the later one",
            [
                Step(0, said(window("a", 1, cell(3), precision=10), window("a", 2, cell(5), held=5, precision=10)),
                     (counts((5, 5), grant=5), counts((5, 5), grant=5))),
            ],
        ),
        Case(
            "two wants of a request on one report count together",
            [
                Step(0, Call((window("a", 1, cell(0), limit=5),),
                             (((0, 3), (0, 3)), ((0, 3), (0, 2)))),
                     (counts((5, 5)),), (False, True)),
            ],
        ),
        Case(
            "a request that wants nothing is charged nothing, and is",
            [Step(0, Call((window("a", 1, cell(2)),), ((),)), (counts((2, 2)),), (True,))],
        ),
        Case(
            "windows and buckets go in one call, and a request may want of both",
            [
                Step(0, said(window("a", 1, cell(1), limit=2), bucket("a", 1), window("a", 1, key="y"),
                             wants=((1, 5), (0, 0), (1, 0))),
                     (counts((2, 2)), arrival(5, 5_000), counts((0, 0))), (True, True, False)),
            ],
        ),
        Case(
            "many runs come and go: those that count stay, those that are back begin where they were forgotten",
            [
                Step(0, said(*(window(f"run-{index}", 1, cell(index)) for index in range(20))),
                     tuple(counts((index, 190)) for index in range(20))),
                Step(15_000, said(window("run-3", 2)), (counts((0, 0), (3, 190), at=1),)),
                Step(25_000, said(window("run-3", 3, cell(1, at=2))), (counts((1, 1), at=2),)),
                Step(35_000, said(window("run-3", 4), window("run-4", 2, cell(2, at=3))),
                     (counts((0, 2), (1, 1), at=3), counts((2, 2), (0, 1), at=3))),
            ],
        ),
    ]  # fmt: skip


def _forgetting() -> list[Case]:
    """Records with many runs: what is cleared away at a rollover must not have mattered."""

    def of(window_ms: int, run: str, number: int, *totals: int, at_ms: int = 0, precision: int = 0) -> WindowReport:
        """Totals of the cell at `at_ms`, and of the one after."""
        first = (START_MS + at_ms) // window_ms
        cells = tuple(CellReport(first + index, total, 0, 0, 0) for index, total in enumerate(totals))
        return WindowReport(b"m", run.encode(), number, 0, 100, window_ms, precision, True, False, cells)

    minute, second = START_MS // 60_000, START_MS // 1_000
    crowd = [f"run-{index}" for index in range(20)]
    shared = [500, 250, 125, 63, 31, 16, 8, 4, 2, 1, *([0] * 10)]
    return [
        Case(
            "a silent run's part of the previous window is still its own",
            [
                Step(0, said(*(of(60_000, run, 1, 1) for run in crowd)),
                     tuple(WindowAnswer(minute, Count(1, 20, 0), Count(0, 0, 0), 0) for _ in crowd)),
                Step(30_000, said(of(60_000, "other", 1)),
                     (WindowAnswer(minute, Count(0, 20, 0), Count(0, 0, 0), 0),)),
                Step(61_000, said(of(60_000, "other", 2)),
                     (WindowAnswer(minute + 1, Count(0, 0, 0), Count(0, 20, 0), 0),)),
                Step(61_001, said(of(60_000, "run-3", 2, 2, 1)),
                     (WindowAnswer(minute + 1, Count(1, 1, 0), Count(2, 21, 0), 0),)),
            ],
        ),
        Case(
            "what silent runs hold counts as long as their grants do, whatever the window",
            [
                Step(0, said(*(of(1_000, run, 1, precision=1_000) for run in crowd)),
                     tuple(WindowAnswer(second, Count(0, 0, 0), Count(0, 0, 0), grant) for grant in shared)),
                Step(10_500, said(of(1_000, "other", 1, precision=1_000)),
                     (WindowAnswer(second + 10, Count(0, 0, 0), Count(0, 0, 0), 0),)),
                Step(11_500, said(of(1_000, "other", 2, precision=1_000)),
                     (WindowAnswer(second + 11, Count(0, 0, 0), Count(0, 0, 0), 0),)),
                Step(12_500, said(of(1_000, "run-0", 2, precision=1_000)),
                     (WindowAnswer(second + 12, Count(0, 0, 0), Count(0, 0, 0), 250),)),
            ],
        ),
    ]  # fmt: skip


def _rates() -> list[Case]:
    """The arrival time under another rate: its rest is rounded up, never down."""
    return [
        Case(
            "a rate that changes keeps the arrival time, rounded up to its own parts of a millisecond",
            [
                Step(0, said(bucket("a", 1, rate=3), wants=((1,),)), (arrival(1, 3_333, 1),), (True,)),
                Step(1, said(bucket("a", 2, 1, acked=1, rate=7)), (arrival(1, 3_333, 3),)),
                Step(2, said(bucket("a", 3, 1, acked=1, rate=2)), (arrival(1, 3_333, 1),)),
                Step(3, said(bucket("a", 4, 1, acked=1, rate=1)), (arrival(1, 3_334),)),
            ],
        ),
        Case(
            "a rate of nothing admits nothing, and forgets nothing",
            [
                Step(0, said(bucket("a", 1, rate=3), wants=((1,),)), (arrival(1, 3_333, 1),), (True,)),
                Step(1, said(bucket("a", 2, 1, acked=1, rate=0), wants=((1,), (0,))),
                     (arrival(1, 3_333, 1),), (False, False)),
            ],
        ),
    ]  # fmt: skip


YEAR_MS = 31_536_000_000
YEAR = START_MS // YEAR_MS
PRIME = 4_294_967_291
"""The largest prime of 32 bits: what it is multiplied by leaves every remainder there is."""


def _of_a_year(run: str, number: int, total: int, *, at: int, limit: int) -> WindowReport:
    cells = (CellReport(YEAR + at, total, 0, 0, 0),)
    return WindowReport(b"y", run.encode(), number, 0, limit, YEAR_MS, 0, True, False, cells)


def _large_numbers() -> list[Case]:
    """Products beyond 2^53: where a double rounds, the last unit of a limit is lost or won."""
    cases = []
    for rest in (0, 1, YEAR_MS - 1):
        # So much of the window is left that the previous one's share leaves this rest.
        left_ms = rest * pow(PRIME, -1, YEAR_MS) % YEAR_MS or YEAR_MS // 2
        weight = PRIME * left_ms // YEAR_MS
        at_ms = (YEAR + 2) * YEAR_MS - left_ms - START_MS
        first = (YEAR + 1) * YEAR_MS - 1 - START_MS
        before, after = Count(0, PRIME, 0), Count(0, 0, 0)
        cases.append(
            Case(
                f"a window of a year with four billion hits is exact, rest {rest}",
                [
                    Step(first, said(_of_a_year("a", 1, PRIME, at=0, limit=0)),
                         (WindowAnswer(YEAR, Count(PRIME, PRIME, 0), after, 0),)),
                    Step(at_ms, said(_of_a_year("b", 1, 0, at=1, limit=weight + 6), wants=((7,),)),
                         (WindowAnswer(YEAR + 1, after, before, 0),), (False,)),
                    Step(at_ms, said(_of_a_year("b", 2, 0, at=1, limit=weight + 7), wants=((7,),)),
                         (WindowAnswer(YEAR + 1, Count(7, 7, 0), before, 0),), (True,)),
                ],
            )
        )  # fmt: skip
    return [*cases, *_large_buckets(), _bucket_of_ten_years()]


def _large_buckets() -> list[Case]:
    def report(number: int, total: int, rate: int) -> BucketReport:
        burst = 4_294_967_295
        return BucketReport(b"z", b"a", number, 0, rate, YEAR_MS, burst, 0, False, total, 0, total, 0, 0, 0)

    # Two parts of the burst, whose rests together are more than one.
    half, rate, other = 2_147_483_646, PRIME, 4_294_967_279
    cost = 2 * half - 2
    assert half * YEAR_MS % rate + (half - 2) * YEAR_MS % rate >= rate
    first, first_rest = divmod(half * YEAR_MS, rate)
    ms, rest = divmod(cost * YEAR_MS, rate)
    more, more_rest = divmod(rest + 5 * YEAR_MS, rate)
    restated, restated_rest = divmod(-(-more_rest * other // rate), other)
    return [
        Case(
            "a bucket of a year and four billion is exact, also under another rate",
            [
                Step(0, said(report(1, 0, rate), wants=((half,),)), (arrival(half, first, first_rest),), (True,)),
                Step(0, said(report(1, half, rate)), (arrival(half, first, first_rest, NO_GRANT),)),
                Step(0, said(report(2, half, rate), wants=((half - 2,),)), (arrival(cost, ms, rest),), (True,)),
                Step(0, said(report(3, cost, rate), wants=((6,), (5,))),
                     (arrival(cost + 5, ms + more, more_rest),), (False, True)),
                Step(0, said(report(4, cost + 5, other)),
                     (arrival(cost + 5, ms + more + restated, restated_rest),)),
            ],
        )
    ]  # fmt: skip


def _bucket_of_ten_years() -> Case:
    """The longest window that a rule may have: times one digit of 16 bits it is beyond 2^53."""
    rate, window_ms, cost, burst = 1_000_003, 10 * YEAR_MS, 28_567, 50_000

    def report(number: int, total: int) -> BucketReport:
        return BucketReport(b"t", b"a", number, 0, rate, window_ms, burst, 0, False, total, 0, total, 0, 0, 0)

    assert cost * window_ms > 2**53
    left = burst - cost
    return Case(
        "a bucket of ten years is exact, to the last request",
        [
            Step(0, said(report(1, 0), wants=((cost,),)), (arrival(cost, *divmod(cost * window_ms, rate)),), (True,)),
            Step(0, said(report(2, cost), wants=((left + 1,), (left,))),
                 (arrival(burst, *divmod(burst * window_ms, rate)),), (False, True)),
        ],
    )  # fmt: skip


def _buckets() -> list[Case]:
    return [
        Case(
            "a burst is charged while the bucket has room",
            [
                Step(0, said(bucket("a", 1), wants=((3,), (3,), (2,))), (arrival(5, 5_000),), (True, False, True)),
                Step(999, said(bucket("a", 2, 5, acked=5), wants=((1,),)), (arrival(5, 5_000),), (False,)),
                Step(1_000, said(bucket("a", 3, 5, acked=5), wants=((1,),)), (arrival(6, 6_000),), (True,)),
            ],
        ),
        Case(
            "reported admissions move the arrival time from when they began",
            [
                Step(2_000, said(bucket("a", 1, 3, since=START_MS + 500)), (arrival(3, 3_500),)),
                Step(2_001, said(bucket("a", 2, 3, acked=3)), (arrival(3, 3_500),)),
            ],
        ),
        Case(
            "a long outage at the permitted rate replays as no debt",
            [
                Step(60_000, said(bucket("a", 1, 60, since=START_MS)), (arrival(60, 60_000),)),
                Step(60_001, said(bucket("a", 2, 60, acked=60), wants=((4,),)), (arrival(64, 64_001),), (True,)),
            ],
        ),
        Case(
            "a replay never reaches beyond a full burst from now",
            [Step(1_000, said(bucket("a", 1, 50, since=START_MS)), (arrival(50, 6_000),))],
        ),
        Case(
            "a replay reaches P beyond a full burst: what was granted is not forgiven",
            [
                Step(1_000, said(bucket("a", 1, 50, since=START_MS, precision=2)), (arrival(50, 8_000, grant=1),)),
                Step(1_001, said(bucket("a", 2, 51, acked=50, held=1, precision=2)), (arrival(51, 8_001, grant=1),)),
            ],
        ),
        Case(
            "a lost reply is credit",
            [
                Step(0, said(bucket("a", 1), wants=((5,),)), (arrival(5, 5_000),), (True,)),
                Step(1, said(bucket("a", 2), wants=((5,),)), (arrival(5, 5_000),), (True,)),
                Step(2, said(bucket("a", 3, 5, acked=5), wants=((1,),)), (arrival(5, 5_000),), (False,)),
            ],
        ),
        Case(
            "after a wipe the arrival time comes back from the answers, and nothing is counted twice",
            [
                Step(0, said(bucket("a", 1), wants=((5,),)), (arrival(5, 5_000),), (True,)),
                Step(0, None, action="wipe"),
                Step(10, said(bucket("a", 2, 5, acked=5, answered=(START_MS + 5_000, 0))), (arrival(5, 5_000),)),
            ],
        ),
        Case(
            "rates that do not divide a millisecond stay exact",
            [
                Step(0, said(bucket("a", 1, rate=3, burst=1), wants=((1,),)), (arrival(1, 3_333, 1),), (True,)),
                Step(3_333, said(bucket("a", 2, 1, acked=1, rate=3, burst=1), wants=((1,),)),
                     (arrival(1, 3_333, 1),), (False,)),
                Step(3_334, said(bucket("a", 3, 1, acked=1, rate=3, burst=1), wants=((1,),)),
                     (arrival(2, 6_667, 1),), (True,)),
            ],
        ),
        Case(
            "grants are of the burst's precision",
            [
                Step(0, said(bucket("a", 1, precision=4)), (BucketAnswer(0, 0, 0, 2),)),
                Step(1, said(bucket("b", 1, precision=4)), (BucketAnswer(0, 0, 0, 1),)),
                Step(2, said(bucket("a", 1, precision=4)), (BucketAnswer(0, 0, 0, NO_GRANT),)),
            ],
        ),
    ]  # fmt: skip


def _clocks() -> list[Case]:
    return [
        Case(
            "a record one window ahead of a clock that was set back waits for it",
            [
                Step(12_000, said(window("a", 1, cell(5, at=1))), (counts((5, 5), at=1),)),
                Step(8_000, said(window("a", 2, cell(5, at=1))), (counts((5, 5), at=1),)),
                Step(8_001, said(window("a", 3, cell(5, at=1), limit=5), wants=((1,),)),
                     (counts((5, 5), at=1),), (False,)),
                Step(22_000, said(window("a", 4)), (counts((0, 0), (5, 5), at=2),)),
            ],
        ),
        Case(
            "one further ahead begins anew, empty, in the shard's window",
            [
                Step(7_200_000, said(window("a", 1, cell(5, at=720), precision=10)),
                     (counts((5, 5), at=720, grant=5),)),
                Step(0, said(window("b", 1, cell(1), precision=10)), (counts((1, 1), grant=5),)),
                Step(1, said(window("a", 2, cell(5, at=720))), (counts((0, 1)),)),
            ],
        ),
        Case(
            "a step forth and back costs what was counted before it, no more",
            [
                Step(0, said(window("a", 1, cell(5))), (counts((5, 5)),)),
                Step(7_200_000, said(window("a", 2)), (counts((0, 0), at=720),)),
                Step(3, said(window("a", 3, cell(5, seen=5, sent=5))), (counts((5, 5)),)),
            ],
        ),
        Case(
            "within one window the counts stay, and grants and components of the future go",
            [
                Step(0, said(long_window("a", 1, 3, precision=10)), (long_counts(3, 3, grant=5),)),
                Step(3_600_000, said(long_window("b", 1, 4, precision=10)), (long_counts(4, 7, grant=5),)),
                Step(60_000, said(long_window("c", 1, 1, precision=10)), (long_counts(1, 8, grant=5),)),
                Step(60_001, said(long_window("b", 2, 4, seen=7, sent=4, precision=10)), (long_counts(4, 8, grant=3),)),
                Step(60_002, said(long_window("a", 2, 5, seen=8, sent=3, precision=10)),
                     (long_counts(5, 10, grant=1),)),
            ],
        ),
        Case(
            "a bucket further ahead than its burst, P and a window begins anew",
            [
                Step(7_200_000, said(bucket("a", 1, precision=4), wants=((5,),)),
                     (arrival(5, 7_205_000, grant=2),), (True,)),
                Step(0, said(bucket("b", 1), wants=((1,),)), (arrival(1, 1_000),), (True,)),
                Step(1, said(bucket("a", 2, 5, acked=5, answered=(START_MS + 7_205_000, 0))), (arrival(5, 1_000),)),
            ],
        ),
        Case(
            "a bucket that is less far ahead waits",
            [
                Step(9_000, said(bucket("a", 1), wants=((5,),)), (arrival(5, 14_000),), (True,)),
                Step(0, said(bucket("b", 1), wants=((1,),)), (arrival(0, 14_000),), (False,)),
            ],
        ),
    ]  # fmt: skip


def _late_costs() -> list[Case]:
    return [
        Case(
            "a total is merged also beyond the limit: late costs are in it",
            [
                Step(0, said(window("a", 1, cell(250), limit=100)), (counts((250, 250)),)),
                Step(1, said(window("b", 1, cell(0), limit=100), wants=((1,),)), (counts((0, 250)),), (False,)),
            ],
        ),
        Case(
            "a look is decided as a cost of 1 would be, and not charged",
            [
                Step(0, looks(window("a", 1, cell(99), limit=100)), (counts((99, 99)),), (True,)),
                Step(1, looks(window("b", 1, cell(0), limit=100)), (counts((0, 99)),), (True,)),
                Step(2, looks(window("a", 2, cell(100), limit=100)), (counts((100, 100)),), (False,)),
                Step(3, said(window("a", 3, cell(100), limit=100), wants=((0,),)), (counts((100, 100)),), (True,)),
            ],
        ),
        Case(
            "a look weighs the previous window",
            [
                Step(0, said(window("a", 1, cell(100), limit=100)), (counts((100, 100)),)),
                Step(10_000, looks(window("a", 2, limit=100)), (counts((0, 0), (100, 100), at=1),), (False,)),
                Step(10_100, looks(window("a", 3, limit=100)), (counts((0, 0), (100, 100), at=1),), (True,)),
            ],
        ),
        Case(
            "a look and a cost of one request stand or fall together",
            [
                Step(0, said(window("a", 1, cell(100), limit=100)), (counts((100, 100)),)),
                Step(
                    1,
                    Call((window("a", 2, cell(100), limit=100), window("a", 3, key="other")), (MIXED,)),
                    (counts((100, 100)), counts((0, 0))),
                    (False,),
                ),
                Step(
                    2,
                    Call((window("a", 4, cell(100), limit=101), window("a", 5, key="other")), (MIXED,)),
                    (counts((100, 100)), counts((2, 2))),
                    (True,),
                ),
            ],
        ),
        Case(
            "credit covers a look, and is not spent by it",
            [
                Step(0, said(window("a", 1, cell(0), limit=1), wants=((1,),)), (counts((1, 1)),), (True,)),
                Step(1, looks(window("a", 2, cell(0), limit=1)), (counts((1, 1)),), (True,)),
                Step(2, said(window("a", 3, cell(0), limit=1), wants=((1,),)), (counts((1, 1)),), (True,)),
                Step(3, looks(window("a", 4, cell(1), limit=1)), (counts((1, 1)),), (False,)),
            ],
        ),
        Case(
            "late costs take a bucket beyond its burst, by a window at most",
            [
                Step(0, said(bucket("a", 1, 8, since=START_MS, debt=10)), (arrival(8, 8_000),)),
                Step(0, said(bucket("b", 1, 90, since=START_MS, debt=10)), (arrival(90, 15_000),)),
                Step(0, looks(bucket("b", 2, 90, acked=90, debt=10)), (arrival(90, 15_000),), (False,)),
                Step(10_999, looks(bucket("b", 3, 90, acked=90, debt=10)), (arrival(90, 15_000),), (False,)),
                Step(11_000, looks(bucket("b", 4, 90, acked=90, debt=10)), (arrival(90, 15_000),), (True,)),
            ],
        ),
        Case(
            "without overdraft what is reported beyond the burst and P is cut off",
            [Step(0, said(bucket("a", 1, 90, since=START_MS)), (arrival(90, 5_000),))],
        ),
    ]  # fmt: skip


def reset_at(report: WindowReport, reset: int) -> WindowReport:
    return report._replace(reset=reset)


def after_reset(answer: WindowAnswer, reset: int) -> WindowAnswer:
    return answer._replace(reset=reset)


def _resets() -> list[Case]:
    return [
        Case(
            "a report of a later reset empties the record: totals, grants, and what was lost once",
            [
                Step(0, said(reset_at(window("a", 1, cell(40, seen=60), precision=10), 0)),
                     (counts((40, 100), grant=5),)),
                Step(1, said(reset_at(window("b", 1, cell(3), precision=10), 7)),
                     (after_reset(counts((3, 3), grant=5), 7),)),
            ],
        ),
        Case(
            "what is from before a reset counts nothing, and its wants are not charged",
            [
                Step(0, said(reset_at(window("a", 1, cell(40)), 0)), (counts((40, 40)),)),
                Step(1, said(reset_at(window("b", 1), 7)), (after_reset(counts((0, 0)), 7),)),
                Step(2, said(reset_at(window("a", 2, cell(41, seen=41, sent=41)), 0), wants=((1,),)),
                     (after_reset(counts((0, 0), grant=NO_GRANT), 7),), (False,)),
                Step(3, said(reset_at(window("a2", 3, cell(1)), 7), wants=((1,),)),
                     (after_reset(counts((2, 2)), 7),), (True,)),
            ],
        ),
        Case(
            "a counter that has had no answer belongs to whatever the record has",
            [
                Step(0, said(reset_at(window("a", 1, cell(40)), 7)), (after_reset(counts((40, 40)), 7),)),
                Step(1, said(window("b", 1, cell(2)), wants=((1,),)), (after_reset(counts((3, 43)), 7),), (True,)),
            ],
        ),
        Case(
            "a reset stays through a rollover, and is gone with the shard's memory",
            [
                Step(0, said(reset_at(window("a", 1, cell(4)), 7)), (after_reset(counts((4, 4)), 7),)),
                Step(10_000, said(reset_at(window("a", 2), 7)), (after_reset(counts((0, 0), (4, 4), at=1), 7),)),
                Step(10_001, said(reset_at(window("b", 1, cell(9, at=1)), 0)),
                     (after_reset(counts((0, 0), (0, 4), at=1, grant=NO_GRANT), 7),)),
                Step(10_002, None, action="wipe"),
                Step(10_003, said(reset_at(window("b", 2, cell(9, at=1)), 0)), (counts((9, 9), at=1),)),
                Step(10_004, said(reset_at(window("a", 3, cell(4), cell(1, at=1)), 7)),
                     (after_reset(counts((1, 1), (4, 4), at=1), 7),)),
            ],
        ),
        Case(
            "two reports of one key in one call, from before and after: the later one holds",
            [
                Step(0, said(reset_at(window("a", 1, cell(4)), 5), reset_at(window("b", 2, cell(3)), 6)),
                     (after_reset(counts((0, 3)), 6)._replace(grant=0), after_reset(counts((3, 3)), 6))),
            ],
        ),
        Case(
            "a bucket is emptied, and what is from before counts nothing",
            [
                Step(0, said(bucket("a", 1), wants=((5,),)), (arrival(5, 5_000),), (True,)),
                Step(1, said(bucket("b", 1, reset=7), wants=((1,),)), (arrival(1, 1_001)._replace(reset=7),), (True,)),
                Step(2, said(bucket("a", 2, 5, acked=5, answered=(START_MS + 5_000, 0), reset=0), wants=((1,),)),
                     (arrival(0, 1_001, grant=NO_GRANT)._replace(reset=7),), (False,)),
            ],
        ),
    ]  # fmt: skip


MIXED = ((0, PEEK), (1, 2))


def looks(*reports: Report) -> Call:
    """A call with a request that looks at every key."""
    return Call(tuple(reports), (tuple([(index, PEEK) for index in range(len(reports))]),))


TABLES: list[Callable[[], list[Case]]] = [
    _components,
    _ahead,
    _wants,
    _grants,
    _refill,
    _buckets,
    _rates,
    _shapes,
    _forgetting,
    _large_numbers,
    _clocks,
    _late_costs,
    _resets,
]
CASES = [case for table in TABLES for case in table()]
