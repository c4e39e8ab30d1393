"""A waiting request's hard deadline, on the event loop: the engine itself has no timer.

When the loop comes late to the deadline, what has arrived meanwhile is read first. Else every
stall of this process would be held against all of its shards.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headgate.limiter.decision import Decision
from headgate.region.waiting import Waiting

LOOP_LATE_S: Final = 0.001
"""A timer that comes so much later than it was set for was kept from running by the loop."""
OWN_FAULT_S: Final = 0.02
"""By so much only a process that did not run at all is late: what it missed says nothing about a shard."""
ANSWER_TURNS: Final = 4
"""Turns of the loop from the bytes of an answer to the requests that wait for it: read, parsed, handed on."""


class Deadline:
    """Has a waiting request decided in time; `future` brings the decision."""

    __slots__ = ("_due_s", "_loop", "_monotonic", "_own_fault", "_timer", "_turns", "_waiting", "future")

    def __init__(self, waiting: Waiting, deadline_s: float, monotonic: Callable[[], float]) -> None:
        self._waiting = waiting
        self._monotonic = monotonic
        self._due_s = monotonic() + deadline_s
        self._turns = ANSWER_TURNS
        self._own_fault = False
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Decision] = self._loop.create_future()
        self._timer: asyncio.Handle = self._loop.call_later(deadline_s, self._ring)
        waiting.then(self._decided)

    def _ring(self) -> None:
        late_s = self._monotonic() - self._due_s
        if self._turns == ANSWER_TURNS:
            self._own_fault = late_s > OWN_FAULT_S
        if self._turns and late_s > LOOP_LATE_S:
            self._turns -= 1
            self._timer = self._loop.call_soon(self._ring)
        else:
            self._waiting.time_is_up(own_fault=self._own_fault)

    def _decided(self, decision: Decision) -> None:
        self._timer.cancel()
        if not self.future.done():  # the caller may have gone away; what was decided is counted all the same
            self.future.set_result(decision)
