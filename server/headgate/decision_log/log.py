"""Pages between decisions and the disk, and the thread that writes them.

A decision that is to be logged costs its process a few numbers at the end of a list: the page. Everything else, from
looking up names to writing, is the thread's. A page is handed over when it is full or a quarter of a second old. When
the disk or whoever reads is slower than the decisions, pages wait, up to a bound in bytes; then decisions are dropped
from the log and counted, and the log itself says when: no decision ever waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from headgate.clock import Clock
from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.schema import Event, NodeRun
from headgate.telemetry.bounded_sender import BoundedSender

WAITING_BYTES: Final = 96 * 1024 * 1024
"""Memory for pages that wait, by estimate: three seconds of 20,000 denials a second. A disk that stands still
for longer leaves a hole."""
PAGE_RECORDS: Final = 1_024
"""Turning a page into bytes takes about a millisecond of the interpreter, for which the loop may have to wait."""
ROW_BYTES: Final = 350
"""Memory of a page's row: its numbers are objects until they are packed. Rounded up."""
TRACE_BYTES: Final = 200
"""Memory of a traced decision, beside its rows. Rounded up."""
FLUSH_S: Final = 0.25
"""Time that a decision waits in memory where the disk is not slow: a kill -9 loses as much."""
_RECORDS: Final = -1
"""Stands for no sink: it is the records that can't be made."""
PAGE_BYTES: Final = 1_000
"""Memory of a page without its rows. Rounded up."""
MAX_WAITING: Final = 20_000
"""Pages and events that may wait, whatever they take. Events are few: one per change of a state."""
BATCH: Final = 16
"""Pages and events that the thread takes at once; the memory of pages is free when all are written."""
CLOSE_TIMEOUT_S: Final = 2.0
"""Time that a process which ends waits for its last records to be written."""


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
        """The traces of those decisions that are traced, by the decision's number."""
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
    """Destination of records and events. Called by the log's thread alone; may block, and may raise OSError."""

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        """Take some records."""

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        """Take some events."""

    def close(self) -> None:
        """There will be no more."""


Job = Callable[[], None]
"""Something that the log's thread is to do. May raise OSError."""


@dataclass(slots=True, eq=False)
class DecisionLog:
    """Takes pages from the loop's thread, turns them into records, hands them to the sinks."""

    sinks: list[Sink]
    expand: Callable[[Page], DecisionBatch]
    clock: Clock
    source: NodeRun
    warn: Callable[[str, Exception], None] = lambda sink, error: None
    stats: LogStats = field(default_factory=LogStats)
    page: Page = field(init=False)
    """The page that the next decision is written to. The loop's thread alone uses it."""
    _failing: set[int] = field(default_factory=set)
    _dropped_said: int = 0
    _sender: BoundedSender[Page | Event | Job] = field(init=False)

    def __post_init__(self) -> None:
        self.page = Page(self.clock.monotonic())
        self._sender = BoundedSender(
            "headgate-decisions",
            self._write,
            max_items=MAX_WAITING,
            max_bytes=WAITING_BYTES,
            batch=BATCH,
            at_end=self._close_sinks,
        )

    def start(self) -> None:
        """Begin to write."""
        self._sender.start()

    # The loop's thread

    def room(self) -> Page | None:
        """The page to write a decision's rows to; None when it must be dropped, and is counted as such."""
        page = self.page
        if page.rows < PAGE_RECORDS:
            return page
        if not self._hand_over():
            self.stats.dropped += 1
            return None
        return self.page

    def flush(self) -> None:
        """Hand the page over if it has waited for long enough. Called every now and then."""
        page = self.page
        if page.rows and self.clock.monotonic() - page.began_s >= FLUSH_S:
            self._hand_over()

    @property
    def waiting(self) -> bool:
        """True while some decisions wait for `flush`."""
        return self.page.rows > 0

    def note(self, kind: str, time_ms: int, **fields: Any) -> None:
        """Log an event, from any thread."""
        self._sender.offer(Event(time_ms, kind, fields, self.source))

    def later(self, job: Job) -> None:
        """Have the thread do something that takes long, such as keeping a rule set."""
        self._sender.offer(job)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write what is left, for at most `timeout_s`."""
        if self.page.rows and not self._hand_over():
            self.stats.dropped += self.page.rows
        self._sender.close(timeout_s)

    def _hand_over(self) -> bool:
        """Begin another page, if the full one may wait."""
        page = self.page
        size = PAGE_BYTES + page.size + page.rows * ROW_BYTES
        if not self._sender.has_room(size=size) or not self._sender.offer(page, size=size):
            return False
        self.page = Page(self.clock.monotonic())
        return True

    # The log's own thread

    def _write(self, items: Sequence[Page | Event | Job]) -> None:
        """Events that came together become one block, and each page another."""
        self._say_dropped()
        events = [item for item in items if isinstance(item, Event)]
        if events:
            self._hand_on(None, events)
        for item in items:
            if isinstance(item, Page):
                batch = self._records(item)
                if batch is not None:
                    self._hand_on(batch, ())
            elif not isinstance(item, Event):
                self._do(item)

    def _close_sinks(self) -> None:
        self._say_dropped()
        for sink in self.sinks:
            sink.close()

    def _records(self, page: Page) -> DecisionBatch | None:
        """None, counted and said, if its figures are such that no record can be made of them: the log goes on."""
        try:
            return self.expand(page)
        except Exception as error:
            self.stats.failed += page.rows
            self._warn_once(_RECORDS, "records", error)
            return None

    def _do(self, job: Job) -> None:
        try:
            job()
        except OSError as error:
            self.warn("rules", error)

    def _say_dropped(self) -> None:
        dropped = self.stats.dropped - self._dropped_said
        if dropped:
            self._dropped_said += dropped
            self._hand_on(None, [Event(self.clock.now_ms(), "dropped", {"decisions": dropped}, self.source)])

    def _hand_on(self, batch: DecisionBatch | None, events: Sequence[Event]) -> None:
        now_ms = self.clock.now_ms()
        for index, sink in enumerate(self.sinks):
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

    def _warn_once(self, number: int, what: str, error: Exception) -> None:
        """One line per outage, not one per block."""
        if number not in self._failing:
            self._failing.add(number)
            self.warn(what, error)
