"""Deciding calls where they are received: on the receiving thread, with the loop's lock held, a moment at a time.

Mostly a batch takes less than that moment, and its calls are decided in the order in which they came. Where it does
not, the rest waits, and callers take turns (call_order.py): no caller takes more than its share of the loop's time,
whatever its calls ask for.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate.errors import NotReady, RequestError, TooLarge
from headgate.pending import PendingAnswer
from headgate.transport.answers import expands, no_place, overloaded, too_large, unfinished
from headgate.transport.call_order import CallOrder, WaitingCall
from headgate.transport.calls import Decide
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.interface import TransportLimits, TransportStats
from headgate.transport.shared_loop import LoopLock
from headgate.transport.timeouts import Timeouts

if TYPE_CHECKING:
    from pygrpc_native._native import Event

HELD_S = 0.0005
"""Time for which calls are decided before the loop may run: it relays what others send and are sent. Shorter, and the
threads change places more often than they work."""


Respond = Callable[[int, bytes], object]
"""Sends a call its answer."""


class Replies(Protocol):
    """The half of a transport that ends calls which are not answered at once, for whoever holds the loop's lock."""

    def fail(self, call_id: int, error: Exception) -> None:
        """Send what the error means to callers."""

    def mark_pending(self, call_id: int, size: int, received_at: float, answer: PendingAnswer) -> None:
        """Keep the call, of `size` bytes, until its answer comes."""


class KeptBack:
    """Messages that the guard kept back, by what stands in their place. Without a guard there are none."""

    def __init__(self, refusals: Refusals | None, limits: TransportLimits, stats: TransportStats) -> None:
        self._refusals = refusals or Refusals()
        self.size = self._refusals.size if refusals else -1
        """Bytes of every such message; -1: there are none."""
        self._limits = limits
        self._stats = stats

    def check(self, payload: bytes) -> None:
        """Raise what the caller of such a message is to be told."""
        if len(payload) == self.size and self._refusals.matches(payload):
            raise self._error(payload)

    def _error(self, payload: bytes) -> RequestError:
        refusal, size = self._refusals.decode(payload)
        if refusal is Refusal.UNFINISHED:
            self._stats.refused_unfinished += 1
            return NotReady(unfinished(self._limits))
        if refusal is Refusal.NO_PLACE:
            return NotReady(no_place(self._limits))
        self._stats.refused_too_large += 1
        return TooLarge((expands if refusal is Refusal.EXPANDS else too_large)(size, self._limits))


class BatchDecider:
    """Decides the calls of a batch: each is answered, fails, or is pending, by itself."""

    def __init__(
        self,
        decides: Sequence[Decide],
        respond: Respond,
        replies: Replies,
        lock: LoopLock,
        stats: TransportStats,
        kept_back: KeptBack,
        callers: dict[str, str],
        limits: TransportLimits,
        tidy: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`decides`: functions that decide calls, by the front's number of the method; all other methods are health's.
        `callers` names who is behind a connection, by the front's name for it; all others are one caller. `tidy` is
        called after each moment of deciding, with the lock held."""
        self._lock = lock
        self._stats = stats
        self._decides = decides
        self.methods = len(decides)
        """Number of methods whose calls are decided: the first ones."""
        self._kept_back = kept_back
        self._respond = respond
        self._fail = replies.fail
        self._mark_pending = replies.mark_pending
        self._timeouts = Timeouts()
        self._callers = callers
        self._limits = limits
        self._tidy = tidy
        self._monotonic = monotonic
        self._waiting = CallOrder(limits.max_pending_calls, limits.max_pending_bytes)

    @property
    def has_waiting(self) -> bool:
        """Say whether calls wait that were received: call `take` again, with whatever has come meanwhile."""
        return bool(self._waiting.turns)

    def take(
        self, received_at: float, events: "list[Event]", parent_of: Callable[[int], str | bytes | None] | None = None
    ) -> "list[Event]":
        """Decide calls for a moment: those that wait, and those among these events, received at that (monotonic) time.

        Returns the events that are no calls to decide. `parent_of` gives a call's trace context, where traces are on.
        """
        left: list[Event] = []
        answered, waits, monotonic, methods = 0, self.has_waiting, self._monotonic, self.methods
        with self._lock:
            until_s = monotonic() + HELD_S
            for event in events:
                _, call_id, method, payload, timeout = event
                if payload is None or method >= methods:
                    left.append(event)
                    continue
                # The front gives its name for the connection, a string, where there is no such header.
                caller = self._callers.get(timeout, "") if isinstance(timeout, str) else ""
                parent = None if parent_of is None else parent_of(call_id)
                if waits:
                    self._wait(WaitingCall(received_at, call_id, method, payload, timeout, parent, caller))
                elif type(timeout) is not bytes or self._has_time(received_at, timeout):
                    answered += self._take_call(received_at, call_id, method, payload, parent, caller)
                    waits = monotonic() >= until_s
            self._stats.calls += len(events) - len(left)
            self._stats.durations.add(monotonic() - received_at, answered)
            if self.has_waiting:
                self._take_turns(until_s)
            self._tidy()
        return left

    def _take_turns(self, until_s: float) -> None:
        """Decide calls that wait, by whose turn it is: one at least, however long it took to put others in line."""
        waiting, now_s = self._waiting, self._monotonic()
        while (call := waiting.first()) is not None:
            began_s, answered = now_s, False
            if type(call.timeout) is not bytes or self._has_time(call.received_at, call.timeout):
                answered = self._take_call(
                    call.received_at, call.call_id, call.method, call.payload, call.parent, call.caller
                )
            now_s = self._monotonic()
            waiting.decided(call, int((now_s - began_s) * 1e6))
            if answered:
                self._stats.durations.add(now_s - call.received_at)
            if now_s >= until_s:
                break

    def _has_time(self, received_at: float, timeout: bytes) -> bool:
        """Say whether somebody still waits for the call: who does not gets no decision."""
        if self._monotonic() - received_at < self._timeouts[timeout]:
            return True
        self._stats.dropped_expired += 1
        return False

    def _wait(self, call: WaitingCall) -> None:
        if self._waiting.has_room(call):
            self._waiting.add(call)
        else:
            self._stats.refused_overload += 1
            self._fail(call.call_id, NotReady(overloaded(self._limits)))

    def _take_call(
        self, received_at: float, call_id: int, method: int, payload: bytes, parent: str | bytes | None, caller: str
    ) -> bool:
        """Decide one call; True if it was answered."""
        try:
            if len(payload) == self._kept_back.size:
                self._kept_back.check(payload)
            answer = self._decides[method](payload, parent, caller)
            if isinstance(answer, bytes):
                self._respond(call_id, answer)
                return True
            self._mark_pending(call_id, len(payload), received_at, answer)
        except Exception as error:
            self._fail(call_id, error)
        return False
