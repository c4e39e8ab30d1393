"""One table of cases for every origin: what is said to it, when, and what it must answer.

A case is a list of steps on one limit key (or a few). Times are in ms after START_MS;
the window is 10 s unless a case says otherwise. Each case names the rule it pins down.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.origin.operations.call import Call
from headgate.origin.protocol import (
    NOW_AND_THEN,
    OVERTAKEN,
    PEEK,
    PLENTY,
    UNBOUND,
    Answer,
    BucketAnswer,
    BucketReport,
    CellReport,
    Count,
    Report,
    WindowAnswer,
    WindowReport,
)

WINDOW_MS = 10_000
SEQUENCE = 170_000_000
START_MS = SEQUENCE * WINDOW_MS
"""Also the beginning of a generation of allowances, which are 10 s too."""
ANY: int = -9
"""Stands for what is left, in a case that is not about it."""


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
    rest: int = 0,
    want: int = 0,
    limit: int = 100,
    precision: int = 0,
    sliding: bool = True,
    leaving: bool = False,
    within: bool = False,
) -> WindowReport:
    return WindowReport(
        key.encode(), run.encode(), number, rest, want, limit, WINDOW_MS, precision, sliding, leaving, tuple(cells),
        within=within,
    )  # fmt: skip


DAY_MS = 86_400_000
DAY_SEQUENCE = START_MS // DAY_MS


def long_window(run: str, number: int, total: int, *, seen: int = 0, sent: int = 0, precision: int = 0) -> WindowReport:
    """A report of a window of a day, which no step of the cases leaves."""
    cells = (CellReport(DAY_SEQUENCE, total, 0, seen, sent),)
    return WindowReport(b"day", run.encode(), number, 0, 0, 100, DAY_MS, precision, True, False, cells)


def long_counts(own: int, region_total: int, *, more: int = 0) -> WindowAnswer:
    return WindowAnswer(DAY_SEQUENCE, Count(own, region_total, 0), Count(0, 0, 0), more, ANY)


def said(*reports: Report, wants: tuple[tuple[int, ...], ...] = ()) -> Call:
    """A call; `wants` are costs by request, each on the report of its position."""
    requests = tuple(tuple((index, cost) for index, cost in enumerate(request) if cost >= 0) for request in wants)
    return Call(tuple(reports), requests)


def counts(
    current: tuple[int, int], previous: tuple[int, int] = (0, 0), *, at: int = 0, more: int = 0, left: int = ANY
) -> WindowAnswer:
    return WindowAnswer(SEQUENCE + at, Count(*current, 0), Count(*previous, 0), more, left)


def looked_at(answers: tuple[Answer, ...], expected: tuple[Answer, ...]) -> tuple[Answer, ...]:
    """The answers, without what is left where that is not expected to be anything."""
    pairs = zip(answers, expected, strict=True)
    return tuple(answer._replace(left=ANY) if wanted.left == ANY else answer for answer, wanted in pairs)


def bucket(
    run: str,
    number: int,
    total: int = 0,
    *,
    reserved: int = 0,
    acked: int = 0,
    answered: tuple[int, int] = (0, 0),
    since: int = 0,
    rest: int = 0,
    want: int = 0,
    rate: int = 10,
    burst: int = 5,
    precision: int = 0,
    leaving: bool = False,
    debt: int = 0,
    reset: int = UNBOUND,
) -> BucketReport:
    """Ten per 10 s, so one second each, with a burst of 5, unless told otherwise."""
    return BucketReport(
        b"b", run.encode(), number, rest, want, rate, WINDOW_MS, burst, precision, leaving,
        total, reserved, acked, answered[0], answered[1], since, debt, reset,
    )  # fmt: skip


def arrival(n: int, after_ms: int, rest: int = 0, more: int = 0, left: int = ANY) -> BucketAnswer:
    return BucketAnswer(n, START_MS + after_ms, rest, more, left)


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
                Step(1, said(window("a", 1, cell(3))), (counts((5, 5), more=OVERTAKEN),)),
                Step(2, said(window("a", 2, cell(5))), (counts((5, 5), more=OVERTAKEN),)),
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
                Step(1, said(window("a", 1, cell(0)), wants=((1,),)), (counts((0, 0), more=OVERTAKEN),), (False,)),
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


def _allowances() -> list[Case]:
    """Of 100 in ten seconds 14 are kept for the noise (the square root of 200); with `P` 0, 86 are free."""
    return [
        Case(
            "a run gets what it wants, up to half of what is free and the others leave, rounded up",
            [
                Step(0, said(window("a", 1, want=20)), (counts((0, 0), more=20, left=PLENTY),)),
                Step(1, said(window("b", 1, want=50)), (counts((0, 0), more=33, left=PLENTY),)),
                Step(2, said(window("c", 1, want=50)), (counts((0, 0), more=17, left=PLENTY),)),
                Step(3, said(window("a", 2, want=20, rest=20)), (counts((0, 0), more=0, left=PLENTY),)),
            ],
        ),
        Case(
            "whoever reports and wants anything gets a small part of what is free, unless the key is pressed",
            [
                Step(0, said(window("a", 1, limit=1_000, want=NOW_AND_THEN)), (counts((0, 0), more=14, left=PLENTY),)),
                Step(1, said(window("b", 1, limit=1_000, want=3)), (counts((0, 0), more=14, left=PLENTY),)),
                Step(2, said(window("c", 1, limit=1_000)), (counts((0, 0), more=0, left=PLENTY),)),
                Step(3, said(window("c", 2, limit=1_000), wants=((980,),)),
                     (counts((0, 0), more=0, left=PLENTY),), (False,)),
                Step(4, said(window("d", 1, limit=1_000, want=3)), (counts((0, 0), more=3, left=PLENTY),)),
                Step(5, said(window("e", 1, limit=1_000, want=NOW_AND_THEN)), (counts((0, 0), more=0, left=PLENTY),)),
            ],
        ),
        Case(
            "a key is pressed in this generation and the next",
            [
                Step(0, said(window("a", 1, want=40)), (counts((0, 0), more=40, left=PLENTY),)),
                Step(1, said(window("b", 1), wants=((70,),)), (counts((0, 0), more=0, left=PLENTY),), (False,)),
                Step(19_999, said(window("b", 2, want=NOW_AND_THEN)), (counts((0, 0), at=1, more=0, left=PLENTY),)),
                Step(20_000, said(window("b", 3, want=NOW_AND_THEN)), (counts((0, 0), at=2, more=1, left=PLENTY),)),
            ],
        ),
        Case(
            "a run that needs a unit now and then gets one where eight are free, and none near the limit",
            [
                Step(0, said(window("a", 1, cell(78), want=NOW_AND_THEN)), (counts((78, 78), more=1, left=PLENTY),)),
                Step(1, said(window("b", 1, want=NOW_AND_THEN)), (counts((0, 78), more=0, left=21),)),
                Step(2, said(window("a", 2, cell(90), want=NOW_AND_THEN)), (counts((90, 90), more=0, left=10),)),
            ],
        ),
        Case(
            "near the limit a run gets what there is, and hears what is left",
            [
                Step(0, said(window("a", 1, cell(90), want=4)), (counts((90, 90), more=4, left=6),)),
                Step(1, said(window("b", 1, want=20)), (counts((0, 90), more=6, left=0),)),
                Step(2, said(window("c", 1, want=1), wants=((1,),)), (counts((0, 90), more=0, left=0),), (False,)),
                Step(3, said(window("b", 2, cell(3), want=3, rest=3)), (counts((3, 93), more=0, left=0),)),
                Step(4, said(window("b", 3, cell(3))), (counts((3, 93), more=0, left=3),)),
            ],
        ),
        Case(
            "a charge fits beside all allowances, its own run's too, less what P hides",
            [
                Step(0, said(window("a", 1, cell(80), want=3)), (counts((80, 80), more=3, left=17),)),
                Step(1, said(window("b", 1), wants=((18,),)), (counts((0, 80), left=17),), (False,)),
                Step(2, said(window("b", 2), wants=((17,),)), (counts((17, 97), left=0),), (True,)),
                Step(3, said(window("a", 2, cell(80), rest=3), wants=((1,),)), (counts((80, 97), left=0),), (False,)),
                Step(4, said(window("b", 3, cell(17), precision=2), wants=((3,),)),
                     (counts((17, 97), left=2),), (False,)),
                Step(5, said(window("b", 4, cell(17), precision=2), wants=((2,),)),
                     (counts((19, 99), left=0),), (True,)),
                Step(6, said(window("b", 5, cell(19), precision=3), wants=((1,),)),
                     (counts((20, 100), left=0),), (True,)),
                Step(7, said(window("b", 6, cell(20), precision=50), wants=((1,),)), (counts((20, 100)),), (False,)),
            ],
        ),
        Case(
            "of P half of the room is given on top of it; what it has beyond a twentieth of the limit, at it too",
            [
                Step(0, said(window("a", 1, precision=5, want=80)), (counts((0, 0), more=46, left=PLENTY),)),
                Step(1, said(window("b", 1, cell(100), precision=5, want=9)), (counts((100, 100), more=0, left=0),)),
                Step(2, said(window("a", 2, precision=100, want=80)), (counts((0, 100), more=41, left=PLENTY),)),
                Step(3, said(window("a", 3, precision=100, want=80, rest=41), wants=((1,),)),
                     (counts((0, 100), more=0, left=PLENTY),), (False,)),
            ],
        ),
        Case(
            "a lost reply can not hand out what a node still holds: rest and more both count",
            [
                Step(0, said(window("a", 1, want=40)), (counts((0, 0), more=40),)),
                Step(1, said(window("a", 2, want=40)), (counts((0, 0), more=40),)),
                Step(2, said(window("a", 3, want=43, rest=40)), (counts((0, 0), more=3),)),
                Step(3, said(window("b", 1, want=43)), (counts((0, 0), more=22),)),
            ],
        ),
        Case(
            "an overtaken call sets nothing aside, and charges nothing",
            [
                Step(0, said(window("a", 5, want=40)), (counts((0, 0), more=40),)),
                Step(1, said(window("a", 4, want=9, rest=2), wants=((1,),)),
                     (counts((0, 0), more=OVERTAKEN, left=0),), (False,)),
                Step(2, said(window("b", 1, want=50)), (counts((0, 0), more=23),)),
            ],
        ),
        Case(
            "what a silent run held counts in two generations and no longer",
            [
                Step(9_000, said(window("a", 1, want=40)), (counts((0, 0), more=40),)),
                Step(11_000, said(window("b", 1, want=50)), (counts((0, 0), at=1, more=23),)),
                Step(19_999, said(window("b", 2, rest=23), wants=((38,),)), (counts((0, 0), at=1),), (False,)),
                Step(20_000, said(window("b", 3, rest=23), wants=((77,),)), (counts((77, 77), at=2),), (True,)),
            ],
        ),
        Case(
            "a drain gives its allowance back",
            [
                Step(0, said(window("a", 1, want=40)), (counts((0, 0), more=40),)),
                Step(1, said(window("a", 2, cell(7), want=40, rest=33, leaving=True)), (counts((7, 7), more=0),)),
                Step(2, said(window("b", 1), wants=((93,),)), (counts((93, 100), left=0),), (True,)),
            ],
        ),
        Case(
            "allowances belong to the key, not to a cell: a rollover hands out nothing anew",
            [
                Step(9_999, said(window("a", 1, want=40)), (counts((0, 0), more=40),)),
                Step(10_001, said(window("b", 1, want=50)), (counts((0, 0), at=1, more=23),)),
            ],
        ),
        Case(
            "what was spent in a window that is yet to come here stays set aside",
            [
                Step(0, said(window("a", 1, want=30)), (counts((0, 0), more=30),)),
                Step(1, said(window("a", 2, cell(0), cell(20, at=1), want=10, rest=10)), (counts((0, 0), more=0),)),
                Step(2, said(window("b", 1), wants=((71,),)), (counts((0, 0)),), (False,)),
                Step(3, said(window("b", 2), wants=((70,),)), (counts((70, 70), left=0),), (True,)),
            ],
        ),
        Case(
            "while nodes of an older version live all allowances together are within P",
            [
                Step(0, said(window("a", 1, want=40, precision=10, within=True)), (counts((0, 0), more=10),)),
                Step(1, said(window("b", 1, want=40, precision=10, within=True)), (counts((0, 0), more=0),)),
                Step(2, said(window("a", 2, cell(8), want=2, rest=2, precision=10, within=True)),
                     (counts((8, 8), more=0),)),
                Step(3, said(window("b", 2, want=40, precision=10, within=True)), (counts((0, 8), more=8),)),
            ],
        ),
        Case(
            "while nodes of an older version live no key is pressed",
            [
                Step(0, said(window("a", 1, want=40)), (counts((0, 0), more=40, left=PLENTY),)),
                Step(1, said(window("b", 1), wants=((70,),)), (counts((0, 0), more=0, left=PLENTY),), (False,)),
                Step(2, said(window("b", 2, want=NOW_AND_THEN)), (counts((0, 0), more=0, left=PLENTY),)),
                Step(3, said(window("a", 2, within=True)), (counts((0, 0), more=0, left=PLENTY),)),
                Step(4, said(window("b", 3, want=NOW_AND_THEN)), (counts((0, 0), more=1, left=PLENTY),)),
            ],
        ),
        Case(
            "what was set aside under a limit that shrank stays in the way until it is given back",
            [
                Step(0, said(window("a", 1, want=40)), (counts((0, 0), more=40),)),
                Step(1, said(window("b", 1, limit=50, want=9)), (counts((0, 0), more=9, left=1),)),
                Step(2, said(window("b", 2, limit=50), wants=((11,),)), (counts((0, 0), left=10),), (False,)),
                Step(3, said(window("a", 2, limit=50)), (counts((0, 0), left=PLENTY),)),
            ],
        ),
        Case(
            "the bytes of a record say nothing else than its numbers: large limits, long windows",
            [
                Step(0, said(window("a", 1, limit=4_000_000_000, want=2**31)), (counts((0, 0), more=1_999_955_279),)),
                Step(1, said(window("b", 1, limit=4_000_000_000, want=NOW_AND_THEN, precision=4_000_000_000)),
                     (counts((0, 0), more=90_624_301),)),
            ],
        ),
        Case(
            "of a bucket the burst is what room is measured by; it drains while allowances stay",
            [
                Step(0, said(bucket("a", 1, want=9, burst=50, rate=50)), (BucketAnswer(0, 0, 0, 9, PLENTY),)),
                Step(1, said(bucket("b", 1, want=50, burst=50, rate=50), wants=((20,),)),
                     (arrival(20, 4_001, more=6, left=PLENTY),), (True,)),
                Step(2, said(bucket("c", 1, burst=50, rate=50), wants=((16,),)),
                     (arrival(0, 4_001, left=15),), (False,)),
                Step(3, said(bucket("c", 2, burst=50, rate=50), wants=((15,),)),
                     (arrival(15, 7_001, left=0),), (True,)),
                Step(202, said(bucket("c", 3, 15, acked=15, burst=50, rate=50, want=9)),
                     (arrival(15, 7_001, more=1, left=0),)),
            ],
        ),
        Case(
            "a bucket has no credit: what was charged and not spent drains, and pays for nothing",
            [
                Step(0, said(bucket("a", 1), wants=((3,),)), (arrival(3, 3_000),), (True,)),
                Step(1, said(bucket("a", 2), wants=((3,),)), (arrival(3, 3_000),), (False,)),
                Step(2_000, said(bucket("a", 3), wants=((3,),)), (arrival(6, 6_000),), (True,)),
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
                Step(0, said(window("a", 1, cell(3), precision=10), window("a", 2, cell(5), rest=5, precision=10)),
                     (counts((5, 5)), counts((5, 5)))),
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

    def of(window_ms: int, run: str, number: int, *totals: int, at_ms: int = 0, want: int = 0) -> WindowReport:
        """Totals of the cell at `at_ms`, and of the one after."""
        first = (START_MS + at_ms) // window_ms
        cells = tuple(CellReport(first + index, total, 0, 0, 0) for index, total in enumerate(totals))
        return WindowReport(b"m", run.encode(), number, 0, want, 100, window_ms, 0, True, False, cells)

    minute, second = START_MS // 60_000, START_MS // 1_000
    crowd = [f"run-{index}" for index in range(20)]
    shared = [43, 22, 11, 5, 19, *([0] * 15)]
    return [
        Case(
            "a silent run's part of the previous window is still its own",
            [
                Step(0, said(*(of(60_000, run, 1, 1) for run in crowd)),
                     tuple(WindowAnswer(minute, Count(1, 20, 0), Count(0, 0, 0), 0, ANY) for _ in crowd)),
                Step(30_000, said(of(60_000, "other", 1)),
                     (WindowAnswer(minute, Count(0, 20, 0), Count(0, 0, 0), 0, ANY),)),
                Step(61_000, said(of(60_000, "other", 2)),
                     (WindowAnswer(minute + 1, Count(0, 0, 0), Count(0, 20, 0), 0, ANY),)),
                Step(61_001, said(of(60_000, "run-3", 2, 2, 1)),
                     (WindowAnswer(minute + 1, Count(1, 1, 0), Count(2, 21, 0), 0, ANY),)),
            ],
        ),
        Case(
            "what silent runs hold counts as long as their allowances do, whatever the window",
            [
                Step(0, said(*(of(1_000, run, 1, want=50) for run in crowd)),
                     tuple(WindowAnswer(second, Count(0, 0, 0), Count(0, 0, 0), more, ANY) for more in shared)),
                Step(10_500, said(of(1_000, "other", 1, want=50)),
                     (WindowAnswer(second + 10, Count(0, 0, 0), Count(0, 0, 0), 0, ANY),)),
                Step(11_500, said(of(1_000, "other", 2, want=50)),
                     (WindowAnswer(second + 11, Count(0, 0, 0), Count(0, 0, 0), 0, ANY),)),
                Step(12_500, said(of(1_000, "run-0", 2, want=50)),
                     (WindowAnswer(second + 12, Count(0, 0, 0), Count(0, 0, 0), 15, ANY),)),
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
    return WindowReport(b"y", run.encode(), number, 0, 0, limit, YEAR_MS, 0, True, False, cells)


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
                         (WindowAnswer(YEAR, Count(PRIME, PRIME, 0), after, 0, ANY),)),
                    Step(at_ms, said(_of_a_year("b", 1, 0, at=1, limit=weight + 6), wants=((7,),)),
                         (WindowAnswer(YEAR + 1, after, before, 0, ANY),), (False,)),
                    Step(at_ms, said(_of_a_year("b", 2, 0, at=1, limit=weight + 7), wants=((7,),)),
                         (WindowAnswer(YEAR + 1, Count(7, 7, 0), before, 0, ANY),), (True,)),
                ],
            )
        )  # fmt: skip
    return [*cases, *_large_buckets(), _bucket_of_ten_years()]


def _large_buckets() -> list[Case]:
    def report(number: int, total: int, rate: int) -> BucketReport:
        burst = 4_294_967_295
        return BucketReport(b"z", b"a", number, 0, 0, rate, YEAR_MS, burst, 0, False, total, 0, total, 0, 0, 0)

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
                Step(0, said(report(1, half, rate)), (arrival(half, first, first_rest, OVERTAKEN),)),
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
        return BucketReport(b"t", b"a", number, 0, 0, rate, window_ms, burst, 0, False, total, 0, total, 0, 0, 0)

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
            "a replay reaches P beyond a full burst: what was set aside is not forgiven",
            [
                Step(1_000, said(bucket("a", 1, 50, since=START_MS, precision=2)), (arrival(50, 8_000),)),
                Step(1_001, said(bucket("a", 2, 51, acked=50, rest=1, precision=2)), (arrival(51, 8_001),)),
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
                     (counts((5, 5), at=720),)),
                Step(0, said(window("b", 1, cell(1), precision=10)), (counts((1, 1)),)),
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
            "within one window the counts stay, and allowances and components of the future go",
            [
                Step(0, said(long_window("a", 1, 3, precision=10)), (long_counts(3, 3),)),
                Step(3_600_000, said(long_window("b", 1, 4, precision=10)), (long_counts(4, 7),)),
                Step(60_000, said(long_window("c", 1, 1, precision=10)), (long_counts(1, 8),)),
                Step(60_001, said(long_window("b", 2, 4, seen=7, sent=4, precision=10)), (long_counts(4, 8),)),
                Step(60_002, said(long_window("a", 2, 5, seen=8, sent=3, precision=10)),
                     (long_counts(5, 10),)),
            ],
        ),
        Case(
            "a bucket further ahead than its burst, P and a window begins anew",
            [
                Step(7_200_000, said(bucket("a", 1, precision=4), wants=((5,),)),
                     (arrival(5, 7_205_000),), (True,)),
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
            "a report of a later reset empties the record: totals, allowances, and what was lost once",
            [
                Step(0, said(reset_at(window("a", 1, cell(40, seen=60), precision=10), 0)),
                     (counts((40, 100)),)),
                Step(1, said(reset_at(window("b", 1, cell(3), precision=10), 7)),
                     (after_reset(counts((3, 3)), 7),)),
            ],
        ),
        Case(
            "what is from before a reset counts nothing, and its wants are not charged",
            [
                Step(0, said(reset_at(window("a", 1, cell(40)), 0)), (counts((40, 40)),)),
                Step(1, said(reset_at(window("b", 1), 7)), (after_reset(counts((0, 0)), 7),)),
                Step(2, said(reset_at(window("a", 2, cell(41, seen=41, sent=41)), 0), wants=((1,),)),
                     (after_reset(counts((0, 0), more=OVERTAKEN), 7),), (False,)),
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
                     (after_reset(counts((0, 0), (0, 4), at=1, more=OVERTAKEN), 7),)),
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
                     (after_reset(counts((0, 3)), 6)._replace(more=0), after_reset(counts((3, 3)), 6))),
            ],
        ),
        Case(
            "a bucket is emptied, and what is from before counts nothing",
            [
                Step(0, said(bucket("a", 1), wants=((5,),)), (arrival(5, 5_000),), (True,)),
                Step(1, said(bucket("b", 1, reset=7), wants=((1,),)), (arrival(1, 1_001)._replace(reset=7),), (True,)),
                Step(2, said(bucket("a", 2, 5, acked=5, answered=(START_MS + 5_000, 0), reset=0), wants=((1,),)),
                     (arrival(0, 1_001, more=OVERTAKEN)._replace(reset=7),), (False,)),
            ],
        ),
    ]  # fmt: skip


MIXED = ((0, PEEK), (1, 2))


def looks(*reports: Report) -> Call:
    """A call with a request that looks at every key."""
    return Call(tuple(reports), (tuple([(index, PEEK) for index in range(len(reports))]),))


TABLES: list[Callable[[], list[Case]]] = [
    _components,
    _wants,
    _allowances,
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
