"""One thread behind a bounded queue: how everything leaves the process that must never hold up a decision.

Whoever has something to send offers it, and goes on at once. A thread sends it, in batches, and may block for as long
as a disk or a collector likes. What waits or is being sent is bounded in number and in bytes; beyond that, offers are
refused and counted. What the sending function raises is counted too, and said once per outage. Ending is bounded: the
thread is a daemon, so a receiver that never answers does not keep the process alive.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

NO_BOUND: Final = 1 << 62

T = TypeVar("T")


class BoundedSender(Generic[T]):
    """Sends items by a thread of its own. `offer` never blocks; it may be called from any thread."""

    def __init__(
        self,
        name: str,
        send: Callable[[list[T]], None],
        *,
        max_items: int = NO_BOUND,
        max_bytes: int = NO_BOUND,
        batch: int = 1,
        gather_s: float = 0.0,
        on_outage: Callable[[Exception], None] = lambda error: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`send` gets up to `batch` items, and raises where they were not taken. With `gather_s` it is called for less
        than a whole batch only after so long. `on_outage` is called with the first error after a success; `at_end`
        when the last item was sent. All three are called by the thread."""
        self.sent = 0
        self.failed = 0
        """Items that `send` raised for."""
        self.dropped = 0
        """Items that were refused."""
        self.max_items = max_items
        self.max_bytes = max_bytes
        self._send = send
        self._batch = batch
        self._gather_s = gather_s
        self._on_outage = on_outage
        self._at_end = at_end
        self._queue: deque[tuple[T, int, int]] = deque()
        """Items with their weights and sizes."""
        self._items = 0
        self._bytes = 0
        self._in_outage = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to send. What was offered before is sent first."""
        self._thread.start()

    def offer(self, item: T, *, weight: int = 1, size: int = 0) -> bool:
        """Queue an item that counts as `weight` items and `size` bytes; False: it is dropped, and counted."""
        with self._changed:
            if not self.has_room(weight, size):
                self.dropped += weight
                return False
            self._queue.append((item, weight, size))
            self._items += weight
            self._bytes += size
            if len(self._queue) == 1 or len(self._queue) == self._batch:
                self._changed.notify_all()
            return True

    def has_room(self, weight: int = 1, size: int = 0) -> bool:
        """Tell whether an item would be taken now."""
        if self._items + weight > self.max_items or self._bytes + size > self.max_bytes:
            return False
        # What sending itself brings about is still sent.
        return not self._closing or threading.current_thread() is self._thread

    @property
    def waiting(self) -> int:
        """Items that wait or are being sent."""
        return self._items

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits any more, for at most `timeout_s`; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._items, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Send what waits, for at most `timeout_s`; later offers are dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    # The thread

    def _run(self) -> None:
        while taken := self._next_batch():
            weight = sum([weight for _, weight, _ in taken])
            try:
                self._send([item for item, _, _ in taken])
            except Exception as error:  # whatever it is, later items are not to blame
                self._note_failure(weight, error)
            else:
                self.sent += weight
                self._in_outage = False
            with self._changed:
                self._items -= weight
                self._bytes -= sum([size for _, _, size in taken])
                self._changed.notify_all()
        self._at_end()

    def _next_batch(self) -> list[tuple[T, int, int]]:
        """Waits for items; none: it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            if self._gather_s:
                self._changed.wait_for(lambda: len(self._queue) >= self._batch or self._closing, self._gather_s)
            return [self._queue.popleft() for _ in range(min(self._batch, len(self._queue)))]

    def _note_failure(self, weight: int, error: Exception) -> None:
        self.failed += weight
        if not self._in_outage:
            self._in_outage = True
            self._on_outage(error)
