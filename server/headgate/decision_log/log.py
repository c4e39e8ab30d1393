"""Pages between decisions and the disk, and the thread that writes them.

A decision that is to be logged costs its process a few numbers at the end of a list: the page. Everything else, from
looking up names to writing, is the thread's. A page is handed over when it is full or a quarter of a second old. When
the disk or whoever reads is slower than the decisions, pages wait, up to a bound in bytes; then decisions are dropped
from the log and counted, and the log itself says when: no decision ever waits.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headgate.clock import Clock
from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.schema import Event, NodeRun

WAITING_BYTES: Final = 96 * 1024 * 1024
"""What pages may take while they wait, by estimate: three seconds of 20,000 denials a second. A disk that stands still
for longer leaves a hole."""
PAGE_RECORDS: Final = 1_024
"""Turning a page into bytes takes about a millisecond of the interpreter, for which the loop may have to wait."""
ROW_BYTES: Final = 350
"""What a row of a page takes: its numbers are objects until they are packed. Rounded up."""
TRACE_BYTES: Final = 200
"""What a page takes for a decision that is traced, beside its rows. Rounded up."""
FLUSH_S: Final = 0.25
"""How long a decision waits in memory where the disk is not slow: what a kill -9 loses."""
_RECORDS: Final = -1
"""Stands for no sink: it is the records that can't be made."""
MAX_EVENTS: Final = 10_000
"""Events that may wait. They are few: one per change of a state."""
CLOSE_TIMEOUT_S: Final = 2.0
"""What a process that ends waits for its last records to be written."""


class Page:
    """Rows of numbers (schema.py's `ROW`), one behind the other, and the charges that they are of."""

    __slots__ = ("began_s", "charge_index", "charges", "flat", "rows", "size", "traces")

    def __init__(self, began_s: float) -> None:
        self.flat: list[int] = []
        self.rows = 0
        self.charge_index: dict[Any, int] = {}
        """The number by which rows of this page refer to a charge."""
        self.charges: list[tuple[Any, Any]] = []
        """Charges logged on this page, with the version of their rule set, by that number."""
        self.traces: dict[int, int] = {}
        """By decision: the trace that it is part of, of those that are traced."""
        self.size = 0
        """In bytes, by estimate."""
        self.began_s = began_s


@dataclass(slots=True)
class LogStats:
    """Plain numbers, for metrics."""

    dropped: int = 0
    """Decisions for which there was no room."""
    records: int = 0
    """Records handed to every sink."""
    failed: int = 0
    """Records that a sink could not take: a full disk, a collector that is gone."""


class Sink(Protocol):
    """Where records and events go. Called by the log's thread alone; may block, and may raise OSError."""

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        """Take some records."""
        ...

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        """Take some events."""
        ...

    def close(self) -> None:
        """There will be no more."""
        ...


Follower = Callable[[DecisionBatch | None, Sequence[Event]], None]


class DecisionLog:
    """Takes pages from the loop's thread, turns them into records, hands them to the sinks."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        expand: Callable[[Page], DecisionBatch],
        clock: Clock,
        source: NodeRun,
        warn: Callable[[str, Exception], None] = lambda sink, error: None,
        waiting_bytes: int = WAITING_BYTES,
    ) -> None:
        self.stats = LogStats()
        self.followers: list[Follower] = []
        """Called by the thread with what has just been logged: those who follow decisions live."""
        self._sinks = list(sinks)
        self._expand = expand
        self._clock = clock
        self._source = source
        self._warn = warn
        self.page = Page(clock.monotonic())
        """Where the next decision is written. Of the loop's thread alone."""
        self._pages: deque[Page] = deque()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._jobs: deque[Callable[[], None]] = deque()
        self._waiting_bytes = waiting_bytes
        # Each is written by one thread: what came in by the loop's, what went out by the log's own.
        self._bytes_in = 0
        self._bytes_out = 0
        self._failing: set[int] = set()
        self._dropped_said = 0
        self._work = threading.Event()
        self._closing = False
        # A daemon: a disk that never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="headgate-decisions", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    # The loop's thread

    def room(self) -> Page | None:
        """The page to write a decision's rows to; None when it must be dropped, and is counted as such."""
        page = self.page
        if page.rows < PAGE_RECORDS:
            return page
        if not self._turn():
            self.stats.dropped += 1
            return None
        return self.page

    def flush(self) -> None:
        """Hand the page over if it has waited for long enough. Called every now and then."""
        page = self.page
        if page.rows and self._clock.monotonic() - page.began_s >= FLUSH_S:
            self._turn()

    @property
    def waiting(self) -> bool:
        """Whether some decisions wait for `flush`."""
        return self.page.rows > 0

    def note(self, kind: str, time_ms: int, **fields: Any) -> None:
        """Log an event, from any thread."""
        self._events.append(Event(time_ms, kind, fields, self._source))
        self._work.set()

    def later(self, job: Callable[[], None]) -> None:
        """Have the thread do something that takes long, such as keeping a rule set."""
        self._jobs.append(job)
        self._work.set()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write what is left, for at most `timeout_s`."""
        if self.page.rows:
            self._turn()
        self._closing = True
        self._work.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _turn(self) -> bool:
        """Begin another page, if the full one may wait."""
        page = self.page
        size = page.size + page.rows * ROW_BYTES
        if self._bytes_in - self._bytes_out + size > self._waiting_bytes:
            return False
        self._bytes_in += size
        self._pages.append(page)
        self.page = Page(self._clock.monotonic())
        self._work.set()
        return True

    # The log's own thread

    def _run(self) -> None:
        while not self._closing:
            self._work.wait()
            self._work.clear()
            self._empty()
        self._empty()
        for sink in self._sinks:
            sink.close()

    def _empty(self) -> None:
        while self._jobs:
            self._do(self._jobs.popleft())
        self._say_dropped()
        if self._events:
            self._hand_on(None, [self._events.popleft() for _ in range(len(self._events))])
        while self._pages:
            page = self._pages.popleft()
            batch = self._records(page)
            if batch is not None:
                self._hand_on(batch, ())
            self._bytes_out += page.size + page.rows * ROW_BYTES

    def _records(self, page: Page) -> DecisionBatch | None:
        """None, counted and said, if its figures are such that no record can be made of them: the log goes on."""
        try:
            return self._expand(page)
        except Exception as error:
            self.stats.failed += page.rows
            self._warn_once(_RECORDS, "records", error)
            return None

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except OSError as error:
            self._warn("rules", error)

    def _say_dropped(self) -> None:
        dropped = self.stats.dropped - self._dropped_said
        if dropped:
            self._dropped_said += dropped
            self.note("dropped", self._clock.now_ms(), decisions=dropped)

    def _hand_on(self, batch: DecisionBatch | None, events: Sequence[Event]) -> None:
        now_ms = self._clock.now_ms()
        for index, sink in enumerate(self._sinks):
            try:
                if events:
                    sink.events(events, now_ms)
                if batch is not None:
                    sink.decisions(batch, now_ms)
                self._failing.discard(index)
            except Exception as error:  # whatever it is, the other sinks and later records are not to blame
                self.stats.failed += len(events) if batch is None else batch.count
                self._warn_once(index, type(sink).__name__, error)
        self.stats.records += 0 if batch is None else batch.count
        for follower in list(self.followers):
            follower(batch, events)

    def _warn_once(self, number: int, what: str, error: Exception) -> None:
        """One line per outage, not one per block."""
        if number not in self._failing:
            self._failing.add(number)
            self._warn(what, error)
