"""Cases of what is given back: beside those of cases.py, for every origin."""

from headgate.origin.protocol import OVERTAKEN, BucketAnswer, BucketReport, Demand, Refund, WindowAnswer, WindowReport

from tests.conformance.origin.cases import (
    DAY_SEQUENCE,
    SEQUENCE,
    START_MS,
    Case,
    Step,
    after_reset,
    arrival,
    bucket,
    cell,
    counts,
    long_counts,
    long_window,
    reset_at,
    said,
    window,
)


def demanding(
    report: WindowReport, demanded: int = 0, *, settled: int = 0, refunded: int = 0, at: int = 0
) -> WindowReport:
    """The report, with one more demand in the window `at` windows after the first."""
    return report._replace(demands=(*(report.demands or ()), Demand(SEQUENCE + at, demanded, settled, refunded)))


def given_back(
    answer: WindowAnswer, current: tuple[int, int, int] = (0, 0, 0), previous: tuple[int, int, int] = (0, 0, 0)
) -> WindowAnswer:
    """The answer, with what was settled, given back to the run, and to all of the region, in each cell."""
    return answer._replace(refunds=(Refund(*current), Refund(*previous)))


def bucket_demanding(report: BucketReport, demanded: int = 0, *, settled: int = 0, refunded: int = 0) -> BucketReport:
    return report._replace(demands=(Demand(0, demanded, settled, refunded),))


def put_back(answer: BucketAnswer, settled: int, refunded: int) -> BucketAnswer:
    return answer._replace(refund=Refund(settled, 0, refunded))


def _long_demand(report: WindowReport, demanded: int = 0, *, settled: int = 0, refunded: int = 0) -> WindowReport:
    return report._replace(demands=(Demand(DAY_SEQUENCE, demanded, settled, refunded),))


def _long_given(answer: WindowAnswer, current: tuple[int, int, int] = (0, 0, 0)) -> WindowAnswer:
    return given_back(answer, current)


CASES = [
    Case(
        "what is given back is counted apart, and makes room",
        [
            Step(0, said(window("a", 1, cell(100))), (counts((100, 100)),)),
            Step(1, said(window("b", 1), wants=((1,),)), (counts((0, 100)),), (False,)),
            Step(2, said(demanding(window("a", 2, cell(100)), 30)),
                 (given_back(counts((100, 100)), (30, 30, 30)),)),
            Step(3, said(demanding(window("b", 2)), wants=((30,),)),
                 (given_back(counts((30, 130)), (0, 0, 30)),), (True,)),
            Step(4, said(demanding(window("b", 3, cell(30))), wants=((1,),)),
                 (given_back(counts((30, 130)), (0, 0, 30)),), (False,)),
        ],
    ),
    Case(
        "a demand that is said again is given back once; only what it grew by is new",
        [
            Step(0, said(demanding(window("a", 1, cell(50)), 20)), (given_back(counts((50, 50)), (20, 20, 20)),)),
            Step(1, said(demanding(window("a", 2, cell(50)), 20)), (given_back(counts((50, 50)), (20, 20, 20)),)),
            Step(2, said(demanding(window("a", 3, cell(50)), 25)), (given_back(counts((50, 50)), (25, 25, 25)),)),
            Step(3, said(demanding(window("a", 2, cell(50)), 20)),
                 (given_back(counts((50, 50), more=OVERTAKEN), (25, 25, 25)),)),
        ],
    ),
    Case(
        "no more than a cell holds is given back, and the rest is never owed",
        [
            Step(0, said(demanding(window("a", 1, cell(10)), 40)), (given_back(counts((10, 10)), (40, 10, 10)),)),
            Step(1, said(demanding(window("a", 2, cell(15)), 40)), (given_back(counts((15, 15)), (40, 10, 10)),)),
            Step(2, said(demanding(window("b", 1), 9)), (given_back(counts((0, 15)), (9, 5, 15)),)),
        ],
    ),
    Case(
        "the current cell first, then the previous one",
        [
            Step(0, said(window("a", 1, cell(30))), (counts((30, 30)),)),
            Step(10_000, said(demanding(window("a", 2, cell(30), cell(8, at=1)), 20, at=1)),
                 (given_back(counts((8, 8), (30, 30), at=1), (20, 8, 8), (0, 12, 12)),)),
        ],
    ),
    Case(
        "a demand of the window before counts, one of before that is over",
        [
            Step(10_000, said(window("a", 1, cell(30, at=0), cell(8, at=1))), (counts((8, 8), (30, 30), at=1),)),
            Step(10_001, said(demanding(window("a", 2), 3)),
                 (given_back(counts((8, 8), (30, 30), at=1), (0, 3, 3), (3, 0, 0)),)),
            Step(10_002, said(demanding(demanding(window("a", 3), 99, at=-1), 99, at=2)),
                 (given_back(counts((8, 8), (30, 30), at=1), (0, 3, 3), (3, 0, 0)),)),
        ],
    ),
    Case(
        "a window's refunds leave with it",
        [
            Step(0, said(demanding(window("a", 1, cell(100)), 60)),
                 (given_back(counts((100, 100)), (60, 60, 60)),)),
            Step(10_000, said(demanding(window("a", 2), at=1), wants=((60,),)),
                 (given_back(counts((60, 60), (100, 100), at=1), previous=(60, 60, 60)),), (True,)),
            Step(10_001, said(demanding(window("a", 3, cell(60, at=1)), at=1), wants=((1,),)),
                 (given_back(counts((61, 61), (100, 100), at=1), previous=(60, 60, 60)),), (True,)),
            Step(20_000, said(demanding(window("a", 4), at=2)),
                 (given_back(counts((0, 0), (61, 61), at=2)),)),
        ],
    ),
    Case(
        "after a loss a run brings back what it was given, once, and its demand is not dealt with again",
        [
            Step(0, said(demanding(window("a", 1, cell(50)), 20)), (given_back(counts((50, 50)), (20, 20, 20)),)),
            Step(1, None, action="wipe"),
            Step(2, said(demanding(window("a", 2, cell(50, seen=50, sent=50)), 20, settled=20, refunded=20)),
                 (given_back(counts((50, 50)), (20, 20, 20)),)),
            Step(3, said(demanding(window("a", 3, cell(50, seen=50, sent=50)), 23, settled=20, refunded=20)),
                 (given_back(counts((50, 50)), (23, 23, 23)),)),
        ],
    ),
    Case(
        "a demand whose answer was lost with the shard's memory is dealt with again",
        [
            Step(0, said(demanding(window("a", 1, cell(50)), 20)), (given_back(counts((50, 50)), (20, 20, 20)),)),
            Step(1, None, action="wipe"),
            Step(2, said(demanding(window("a", 2, cell(50, sent=50)), 20)),
                 (given_back(counts((50, 50)), (20, 20, 20)),)),
        ],
    ),
    Case(
        "a total that others vouch for comes back; what was given back of it by a node that died does not",
        [
            Step(0, said(demanding(window("dead", 1, cell(50)), 20)),
                 (given_back(counts((50, 50)), (20, 20, 20)),)),
            Step(1, None, action="wipe"),
            Step(2, said(demanding(window("b", 1, cell(0, seen=50)))), (given_back(counts((0, 50))),)),
        ],
    ),
    Case(
        "what is brought back stays within what the cell holds",
        [
            Step(0, said(demanding(window("a", 1, cell(5)), 20, settled=20, refunded=20)),
                 (given_back(counts((5, 5)), (20, 5, 5)),)),
            Step(1, said(demanding(window("a", 2, cell(30)), 20, settled=20, refunded=20)),
                 (given_back(counts((30, 30)), (20, 20, 20)),)),
        ],
    ),
    Case(
        "a report without demands leaves all of it as it is, and its wants find the room",
        [
            Step(0, said(demanding(window("a", 1, cell(100)), 60)),
                 (given_back(counts((100, 100)), (60, 60, 60)),)),
            Step(1, said(window("a", 2, cell(100)), wants=((60,),)), (counts((160, 160)),), (True,)),
            Step(2, said(demanding(window("a", 3, cell(160))), wants=((1,),)),
                 (given_back(counts((160, 160)), (60, 60, 60)),), (False,)),
        ],
    ),
    Case(
        "a reset forgets what was given back, and what is demanded from before it counts nothing",
        [
            Step(0, said(demanding(reset_at(window("a", 1, cell(50)), 0), 20)),
                 (given_back(counts((50, 50)), (20, 20, 20)),)),
            Step(1, said(demanding(reset_at(window("b", 1, cell(9)), 7))),
                 (given_back(after_reset(counts((9, 9)), 7)),)),
            Step(2, said(demanding(reset_at(window("a", 2, cell(50)), 0), 26, settled=20, refunded=20)),
                 (given_back(after_reset(counts((0, 9), more=OVERTAKEN), 7)),)),
        ],
    ),
    Case(
        "a clock that is set back within a window forgets who was given what: each brings its own back",
        [
            Step(3_600_000, said(_long_demand(long_window("a", 1, 30), 12)),
                 (_long_given(long_counts(30, 30), (12, 12, 12)),)),
            Step(60_000, said(_long_demand(long_window("b", 1, 0))), (_long_given(long_counts(0, 30)),)),
            Step(60_001, said(_long_demand(long_window("a", 2, 30, seen=30, sent=30), 12, settled=12, refunded=12)),
                 (_long_given(long_counts(30, 30), (12, 12, 12)),)),
        ],
    ),
    Case(
        "a bucket's arrival time is put back, to now at most, and once",
        [
            Step(0, said(bucket("a", 1), wants=((5,),)), (arrival(5, 5_000),), (True,)),
            Step(1, said(bucket_demanding(bucket("a", 2, 5, acked=5, answered=(START_MS + 5_000, 0)), 2)),
                 (put_back(arrival(5, 3_000), 2, 2),)),
            Step(2, said(bucket_demanding(bucket("a", 3, 5, acked=5, answered=(START_MS + 5_000, 0)), 2)),
                 (put_back(arrival(5, 3_000), 2, 2),)),
            Step(500, said(bucket_demanding(bucket("b", 1), 9), wants=((5,),)),
                 (put_back(arrival(5, 5_500), 9, 11),), (True,)),
        ],
    ),
    Case(
        "a bucket that has drained gives nothing back, and owes nothing",
        [
            Step(0, said(bucket("a", 1), wants=((2,),)), (arrival(2, 2_000),), (True,)),
            Step(2_000, said(bucket_demanding(bucket("a", 2, 2, acked=2), 2)),
                 (put_back(arrival(2, 2_000), 2, 0),)),
            Step(2_001, said(bucket_demanding(bucket("a", 3, 2, acked=2), 2), wants=((5,),)),
                 (put_back(arrival(7, 7_001), 2, 0),), (True,)),
        ],
    ),
    Case(
        "after a loss an arrival time from before a refund comes back less what was given back since it was told",
        [
            Step(0, said(bucket("a", 1), wants=((5,),)), (arrival(5, 5_000),), (True,)),
            Step(0, said(bucket_demanding(bucket("b", 1), 3)), (put_back(arrival(0, 2_000), 3, 3),)),
            Step(1, None, action="wipe"),
            Step(2, said(bucket_demanding(
                     bucket("b", 2, answered=(START_MS + 2_000, 0)), 3, settled=3, refunded=3)),
                 (put_back(arrival(0, 2_000), 3, 3),)),
            Step(3, said(bucket_demanding(bucket("a", 2, 5, acked=5, answered=(START_MS + 5_000, 0)))),
                 (put_back(arrival(5, 2_000), 0, 3),)),
        ],
    ),
]  # fmt: skip
