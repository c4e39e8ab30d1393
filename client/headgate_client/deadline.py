"""When the call of a task is over: by the clock of its own loop, and fair to it.

gRPC's timer wakes three threads, one after the other, before a task hears that its time is up; the loop's wakes one.
But the loop has its own delays. A timer of a loop that was busy elsewhere comes late, and finds answers that came in
time and wait for their turn: to give up then would let everybody pass exactly when a service is overloaded. So:

- an answer that is there is taken, though the time is up: the loop goes round a few times before it is given up;
- time in which the loop did not come round is no time in which the server was late: it is added, up to a bound;
- only so many calls are under way at once. Those beyond wait for their turn, and when their time is up first they cost
  neither a call nor its cancellation.
"""

import asyncio
from types import TracebackType
from typing import Final, Self

from headgate_client.values import RateLimitError

IN_FLIGHT: Final = 100
"""Of a client in one loop. Servers take about as many on one connection; more would wait in gRPC."""
TURNS: Final = 8
"""Of the loop, until an answer that is there has reached its task: three were seen, and they cost nothing."""
AWAY_S: Final = 0.01
"""A timer that is later than that is late because the loop was busy. A busy machine makes it late by a few
milliseconds: to add those too would only make it later."""
LONGEST_AWAY_S: Final = 0.25
"""What is added to a deadline at most, all together: a loop that does not come round for longer has other troubles."""
WORTH_IT: Final = 0.1
"""A call whose turn comes with less than that of its time left is not sent: its answer would be late."""
FADES: Final = 0.9
"""What is left of the last delay with each call that meets none."""


class Lane:
    """The calls of one client in one loop."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(IN_FLIGHT)
        self.away_s = 0.0
        """How long the loop was away lately. gRPC's own timer, which knows nothing of it, is set for so much later."""

    def deadline(self, left_s: float) -> "Deadline":
        return Deadline(self, left_s)


class Deadline:
    """`with lane.deadline(…):` raises TimeoutError, or RateLimitError where the call was not even sent."""

    __slots__ = (
        "_added_s",
        "_at_s",
        "_cancelling",
        "_expired",
        "_handle",
        "_lane",
        "_left_s",
        "_loop",
        "_queued",
        "_sent",
        "_task",
    )

    def __init__(self, lane: Lane, left_s: float) -> None:
        self._lane = lane
        self._left_s = left_s
        self._added_s = 0.0
        self._expired = False
        self._sent = False

    def send(self) -> float:
        """It is its turn: gRPC's timeout for it. Raises RateLimitError where it came too late."""
        left_s = self._left_s
        if self._queued:
            left_s = max(WORTH_IT * left_s, self._at_s - self._loop.time())
            if left_s <= WORTH_IT * self._left_s and not self._lane.away_s:
                raise self._not_sent()
        self._sent = True
        return left_s + self._lane.away_s

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a client of asyncio is used within a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._at_s = self._loop.time() + self._left_s
        self._queued = self._lane.slots.locked()
        self._handle: asyncio.Handle = self._loop.call_at(self._at_s, self._due)
        return self

    def _due(self) -> None:
        away_s = self._loop.time() - self._at_s
        if away_s > AWAY_S and self._added_s < LONGEST_AWAY_S:
            away_s = min(away_s, LONGEST_AWAY_S - self._added_s)
            self._lane.away_s = max(self._lane.away_s, away_s)
            self._added_s += away_s
            self._at_s = self._loop.time() + away_s
            self._handle = self._loop.call_at(self._at_s, self._due)
        else:
            self._last_turns(TURNS)

    def _last_turns(self, turns: int) -> None:
        if turns:
            self._handle = self._loop.call_soon(self._last_turns, turns - 1)
        else:
            self._expired = True
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._handle.cancel()
        if not self._added_s:
            self._lane.away_s *= FADES
        # As asyncio's own timeouts do it: a task that was cancelled by others as well stays cancelled.
        if not self._expired or self._task.uncancel() > self._cancelling or kind is not asyncio.CancelledError:
            return
        if self._sent:
            raise TimeoutError from error
        raise self._not_sent() from None

    def _not_sent(self) -> RateLimitError:
        message = f"not sent in {self._left_s * 1000:.0f} ms: {IN_FLIGHT} calls are under way"
        return RateLimitError("DEADLINE_EXCEEDED", message)
