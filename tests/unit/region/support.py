"""A shard that only writes down what it is told, and counters on it: for tables of pure code."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pytest
from headgate.clock import SystemClock
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.limit import Algorithm, Limit, OnError, Unit
from headgate.origin.protocol import PLENTY, Count, WindowAnswer
from headgate.region.bucket_counter import SharedBucket
from headgate.region.counters import SharedCounter
from headgate.region.extension import CallExtension, NoExtension
from headgate.region.shard import Shard
from headgate.region.shard_clock import ShardClock
from headgate.region.urgency import Urgency
from headgate.region.waiting import Decided, Question
from headgate.region.window_counter import SharedWindow

WINDOW_MS = 60_000
SEQUENCE = 28_000_000
"""The window in which tables begin; they write other windows as a difference to it."""
NOW_MS = SEQUENCE * WINDOW_MS
NOTHING = Count(0, 0, 0)

case = pytest.param
"""One line of a table; `id` is its name."""


class QuietTime(ShardClock):
    """A shard's time that a test sets."""

    def __init__(self, *, known: bool) -> None:
        super().__init__(SystemClock())
        self.spread_ms = 2
        self.known = known
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms

    def at_ms(self, now_s: float) -> int:
        return self.time_ms

    def certain(self, window_ms: int) -> bool:
        return True


class QuietShard(Shard[SharedCounter]):
    """A shard that answers nothing by itself."""

    def __init__(self, index: int = 0, *, known: bool = True) -> None:
        """`known`: whether its time is; else nodes go by their own clocks."""
        self._quiet_time = QuietTime(known=known)
        super().__init__(index, self._quiet_time)
        self.remembering = True
        self.questions: list[Question] = []
        self.flushed: list[bytes] = []
        self.late_questions = 0
        self.components = 0
        self.within = False
        self.reports_at: list[float] = []
        """Times at which a report is due."""

    @property
    def time_ms(self) -> int:
        return self._quiet_time.time_ms

    @time_ms.setter
    def time_ms(self, time_ms: int) -> None:
        self._quiet_time.time_ms = time_ms

    def new_component(self) -> bytes:
        self.components += 1
        return b"anew.%d" % self.components

    def remembers(self, now_s: float) -> bool:
        return self.remembering

    def flush(self, counter: SharedCounter, urgency: Urgency) -> None:
        self.flushed.append(counter.key)

    def report_at(self, counter: SharedCounter, due_s: float) -> None:
        self.reports_at.append(due_s)


class NoNode:
    """Implements a session's owner: a node without counters."""

    def __init__(self) -> None:
        self.extension: CallExtension = NoExtension(CounterTable(1))
        self.numbers: Iterator[int] = itertools.count(1)
        self.list_number = 0

    def leaving(self, index: int, counters: Sequence[SharedCounter]) -> tuple[int, ...]:
        return ()

    def came_by(self, counter: SharedCounter) -> int:
        return 0

    def not_here(self, counter: SharedCounter, *, sealed: bool) -> None:
        raise AssertionError("there is no counter")

    def live_counters(self) -> Iterable[SharedCounter]:
        return ()

    def new_component(self) -> bytes:
        return b""

    def heard_reset(self, counter: SharedCounter, number: int) -> None:
        raise AssertionError("there is no counter")

    def lost_memory(self, index: int) -> None: ...


class QuietShards:
    """The part of a `Region` that asks quiet shards: they keep the questions."""

    def ask(self, question: Question) -> None:
        assert isinstance(question.shard, QuietShard)
        question.shard.questions.append(question)

    def missed_deadline(self, shard: Shard[SharedCounter]) -> None:
        assert isinstance(shard, QuietShard)
        shard.late_questions += 1


class OneShard(QuietShards):
    """Implements the engine's `Region`: one shard, and three nodes of which one is tried."""

    run = b"run"
    live_nodes = 3

    def __init__(self, shard: QuietShard | None = None) -> None:
        self.shard = QuietShard() if shard is None else shard

    def shard_of(self, key: bytes) -> QuietShard:
        return self.shard

    def earliest_ms(self) -> int:
        return self.shard.time_ms


def window_limit(
    limit: int = 30, *, algorithm: Algorithm = Algorithm.SLIDING_WINDOW, on_error: OnError = OnError.LOCAL
) -> Limit:
    return Limit(limit, Unit.MINUTE, algorithm=algorithm, on_error=on_error)


def bucket_limit(rate: int = 60, *, burst: int = 10, on_error: OnError = OnError.LOCAL) -> Limit:
    """One a second, unless told otherwise."""
    return Limit(rate, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=burst, on_error=on_error)


def window_counter(limit: Limit | None = None, *, at: int = 0, shard: QuietShard | None = None) -> SharedWindow:
    """A new counter, made in the window `at` windows after the first."""
    now_ms = NOW_MS + at * WINDOW_MS
    return SharedWindow(b"k", b"k", b"run.0", shard or QuietShard(), limit or window_limit(), now_ms)


def bucket_counter(limit: Limit | None = None) -> SharedBucket:
    return SharedBucket(b"k", b"k", b"run.0", QuietShard(), limit or bucket_limit())


def answer(
    current: Count = NOTHING, previous: Count = NOTHING, *, at: int = 0, more: int = 0, left: int = PLENTY
) -> WindowAnswer:
    """A shard's answer from the window `at` windows after the first."""
    return WindowAnswer(SEQUENCE + at, current, previous, more, left)


def handed_on(decided: Decided | None) -> None:
    """Tell a caller its decision, if there is one: as the driver of a session does."""
    if decided is not None:
        on_decided, decision = decided
        on_decided(decision)
