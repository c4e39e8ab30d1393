"""The receiving half of the native transport: a thread that takes calls off the front.

It takes them whether or not the loop keeps up, because the front below queues without
any bound. What can be decided right here is (`take`). Of the rest, what is over a bound is refused
and its bytes dropped; what is not goes to the loop in whole batches. Where callers need a token, those without one are
refused here too: the front could check tokens by itself, but for good, and for health too.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pygrpc_native._native import NativeGrpcFront

from headgate.endpoint.tokens import NO_TOKEN, TokenFile, header_of
from headgate.errors import Status
from headgate.telemetry.traces import parent_of
from headgate.transport.allocator import TRIM_DELAY_MS, Trimmer
from headgate.transport.answers import STOPPING, expands, overloaded, too_large, unfinished
from headgate.transport.deciding import RATE_LIMIT, Take
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.interface import TransportLimits, TransportStats

if TYPE_CHECKING:
    # A name in the stubs alone.
    from pygrpc_native._native import DetailedEvent, Event

# Large enough that handing over costs nothing per call, small enough for one turn of the
# loop: 256 decisions of 20 µs are 5 ms.
_BATCH_CALLS = 256
# How long the thread sleeps when nothing comes. Nothing waits for it: signals go to the loop's thread, a front that is
# closed wakes it, and memory has a time of its own. Shorter is what an idle server costs.
_IDLE_MS = 60_000
# The thread ends as soon as the front is closed.
_JOIN_S = 5.0

Batch = tuple[float, int, "list[Event]"]
"""When it was received (monotonic), the bytes of its payloads, its events."""


class Intake:
    """Owns the receiving thread. `deliver` is called on that thread."""

    def __init__(
        self,
        front: NativeGrpcFront,
        limits: TransportLimits,
        stats: TransportStats,
        deliver: Callable[[Batch], None],
        tokens: TokenFile | None = None,
        refusals: Refusals | None = None,
        traces: bool = False,
        take: Take | None = None,
    ) -> None:
        """`take`: who is asked first, on that thread too; None: `deliver` gets everything."""
        self._front = front
        self._limits = limits
        self._stats = stats
        self._deliver = deliver
        self._tokens = tokens
        # What a guard in front of it kept back comes as a message of this size; without a guard, of none.
        self._refusals = refusals or Refusals()
        self._refusal_bytes = self._refusals.size if refusals else -1
        self._traces = traces
        self._parents: dict[int, str | bytes] = {}
        """Trace contexts of calls that are pending, where traces are on."""
        self._trimmer = Trimmer()
        self._refusing = False
        self._take = take
        self._thread = threading.Thread(target=self._receive, name="headgate-receive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def refuse_all(self) -> None:
        """Refuse all further calls, because the server is stopping."""
        self._refusing = True
        self._take = None

    def join(self) -> None:
        """Wait for the thread's end. Close the front first."""
        self._thread.join(_JOIN_S)

    def _receive(self) -> None:
        receive = self._receive_known if self._tokens is not None or self._traces else self._front.recv_batch
        trimmer, monotonic = self._trimmer, time.monotonic
        idle_ms = _IDLE_MS
        while (events := receive(_BATCH_CALLS, idle_ms)) is not None:
            now = monotonic()
            if now >= trimmer.due_at:
                # Before what came now is looked at: what is noted of it is for another time.
                trimmer.run()
                idle_ms = _IDLE_MS
            if events and self._take is not None:
                events = self._take(now, events)
            if events:
                self._admit(now, events)
                idle_ms = TRIM_DELAY_MS if trimmer.noted else _IDLE_MS
            # The next ones may be long in coming: nothing of these is held meanwhile.
            events = None

    def _receive_known(self, max_events: int, timeout_ms: int) -> "list[Event] | None":
        """What `recv_batch` gives, without the calls of strangers: they are told so."""
        events = self._front.recv_batch_details(max_events, timeout_ms)
        return None if events is None else [event[:5] for event in events if self._is_known(event)]

    def take_parent(self, call_id: int) -> str | bytes | None:
        """The trace context that came with a call, once."""
        return self._parents.pop(call_id, None)

    def _is_known(self, event: "DetailedEvent") -> bool:
        _, call_id, method, payload, _, details = event
        if self._traces:
            self._note_parent(call_id, method, payload, details)
        if method != RATE_LIMIT or payload is None or self._tokens is None:
            return True
        if self._tokens.allows(header_of(details[0] if details else None)):
            return True
        self._stats.calls += 1
        self._stats.refused_unauthenticated += 1
        self._front.fail(call_id, Status.UNAUTHENTICATED, NO_TOKEN)
        return False

    def _note_parent(self, call_id: int, method: int, payload: bytes | None, details: Any) -> None:
        parent = parent_of(details[0]) if details and method == RATE_LIMIT and payload is not None else None
        # Refused calls never take theirs: the bound is that of pending calls, and then the oldest go.
        if parent is not None:
            if len(self._parents) >= self._limits.max_pending_calls:
                del self._parents[next(iter(self._parents))]
            self._parents[call_id] = parent

    def _admit(self, now: float, events: "list[Event]") -> None:
        limits, stats = self._limits, self._stats
        max_message_bytes = limits.max_message_bytes
        refusal_bytes, is_refusal = self._refusal_bytes, self._refusals.matches
        size = calls = others = 0
        refused = False
        for event in events:
            payload = event[3]
            if payload is not None:
                length = len(payload)
                size += length
                calls += 1
                if event[2] != RATE_LIMIT:
                    others += 1
                if length > max_message_bytes or (length == refusal_bytes and is_refusal(payload)):
                    refused = True
        stats.calls += calls - others
        if (
            refused
            or stats.pending_calls + calls > limits.max_pending_calls
            or stats.pending_bytes + size > limits.max_pending_bytes
            or self._refusing
        ):
            events, calls, size = self._select(now, events)
        stats.accepted_calls += calls
        stats.accepted_bytes += size
        if events:
            self._deliver((now, size, events))

    def _select(self, now: float, events: "list[Event]") -> "tuple[list[Event], int, int]":
        """The slow way, when something has to be refused: the events to keep, their calls and bytes."""
        kept: list[Event] = []
        calls = size = 0
        for event in events:
            payload = event[3]
            if payload is None:
                kept.append(event)
                continue
            length = len(payload)
            refusal = self._kept_back(payload) or self._refusal(now, event[2], length, calls, size)
            if refusal is None:
                kept.append(event)
                calls += 1
                size += length
            else:
                self._front.fail(event[1], *refusal)
        return kept, calls, size

    def _kept_back(self, payload: bytes) -> tuple[int, str] | None:
        """Why the guard did so, for what stands in place of a message."""
        if len(payload) != self._refusal_bytes or not self._refusals.matches(payload):
            return None
        refusal, size = self._refusals.decode(payload)
        if refusal is Refusal.UNFINISHED:
            self._stats.refused_unfinished += 1
            return Status.UNAVAILABLE, unfinished(self._limits)
        self._stats.refused_too_large += 1
        text = expands(size, self._limits) if refusal is Refusal.EXPANDS else too_large(size, self._limits)
        return Status.RESOURCE_EXHAUSTED, text

    def _refusal(self, now: float, method: int, length: int, calls: int, size: int) -> tuple[int, str] | None:
        """Why a call is refused, when `calls` and `size` were accepted before it from the same batch."""
        limits, stats = self._limits, self._stats
        if length > limits.max_message_bytes:
            stats.refused_too_large += 1
            self._trimmer.note(now)
            return Status.RESOURCE_EXHAUSTED, too_large(length, limits)
        if self._refusing:
            return Status.UNAVAILABLE, STOPPING
        calls += stats.pending_calls
        size += stats.pending_bytes + length
        # Being overloaded must not look like being dead: health calls may use the same
        # room once more. They have a bound too, lest they pile up instead.
        room = 1 if method == RATE_LIMIT else 2
        if calls >= limits.max_pending_calls * room or size > limits.max_pending_bytes * room:
            stats.refused_overload += 1
            return Status.UNAVAILABLE, overloaded(limits)
        return None
