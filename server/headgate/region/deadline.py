"""The hard deadline of all requests that wait, on the event loop: the engine itself has no timer.

All of a node's requests may wait equally long, so they are due in the order in which they began: a queue, and one
timer for whoever is first in it. When the loop comes late to a deadline, what has arrived meanwhile is read first. Else
every stall of this process would be held against all of its shards. When many are due at once, the loop has other turns
between some and the next: whoever comes meanwhile does not wait for all of them to be decided.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Final

from headgate.region.waiting import WaitingRequest

LOOP_LATE_S: Final = 0.001
"""A timer that comes so much later than it was set for was kept from running by the loop."""
OWN_FAULT_S: Final = 0.02
"""A delay by which only a process that did not run at all comes late: what it missed says nothing about a shard."""
ANSWER_PASSES: Final = 4
"""Passes of the loop from the bytes of an answer to the requests that wait for it: read, parsed, handed on."""

DUE_AT_ONCE: Final = 64
"""Charges of requests that are decided in one turn of the loop: under a millisecond, with the answers."""
LEAST_SHARE: Final = 8
"""An eighth of the queue at least is decided in a turn, so that it can't grow as fast as requests come in."""


class Deadlines:
    """Has every waiting request of a node decided in time.

    `add` may be called by any thread that holds the loop's lock; the rest happens on the loop. For each request that
    comes two may leave that were decided in time; all have at their deadline. So the queue holds what one deadline's
    time brings, and no more.
    """

    def __init__(self, deadline_s: float, monotonic: Callable[[], float]) -> None:
        self._deadline_s = deadline_s
        self._monotonic = monotonic
        self._queue: deque[WaitingRequest] = deque()
        """In the order in which they began."""
        self._armed = False
        """True while the timer runs, or is about to be set."""
        self._passes = ANSWER_PASSES
        self._own_fault = False
        self._loop: asyncio.AbstractEventLoop
        self._context: Context
        """The context variables in which requests are decided: not those of the request that sets the timer."""

    def start(self) -> None:
        """On the loop, before the first request waits."""
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()

    def add(self, waiting: WaitingRequest) -> None:
        """Decide it by policy if it still waits when its time is up."""
        queue = self._queue
        # Who leaves soon after it was decided is still in the processor's caches, and no garbage collector sees it.
        if queue and queue[0].decided:
            queue.popleft()
            if queue and queue[0].decided:
                queue.popleft()
        queue.append(waiting)
        if not self._armed:
            self._armed = True
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                self._loop.call_soon_threadsafe(self._arm, context=self._context)
            else:
                self._arm()

    def _arm(self) -> None:
        """Set the timer for the first that still waits."""
        queue = self._queue
        while queue and queue[0].decided:
            queue.popleft()
        self._armed = bool(queue)
        if queue:
            self._passes = ANSWER_PASSES
            due_s = queue[0].began_s + self._deadline_s
            self._loop.call_later(max(0.0, due_s - self._monotonic()), self._ring, context=self._context)

    def _ring(self) -> None:
        queue, now_s = self._queue, self._monotonic()
        while queue and queue[0].decided:
            queue.popleft()
        late_s = now_s - self._deadline_s - queue[0].began_s if queue else -1.0
        if self._passes == ANSWER_PASSES:
            self._own_fault = late_s > OWN_FAULT_S
        if self._passes and late_s > LOOP_LATE_S:
            self._passes -= 1
            self._loop.call_soon(self._ring, context=self._context)
            return
        self._decide_due(now_s)

    def _decide_due(self, until_s: float) -> None:
        """Decide some of those that were due by then, and the next in the loop's next turn."""
        queue, now_s = self._queue, self._monotonic()
        charges, requests = DUE_AT_ONCE, len(queue) // LEAST_SHARE
        while queue and queue[0].began_s + self._deadline_s <= until_s:
            waiting = queue.popleft()
            if waiting.decided:
                continue
            charges, requests = charges - len(waiting.legs), requests - 1
            on_decided, decision = waiting.time_is_up(now_s, own_fault=self._own_fault)
            on_decided(decision)
            if charges <= 0 and requests <= 0:
                self._loop.call_soon(self._decide_due, until_s, context=self._context)
                return
        self._arm()
