"""The receiving half of the native transport: a thread that takes calls off the front.

Calls are decided right here (batches.py). Health goes to the loop, in whole batches; what is over a bound is
refused, and its bytes dropped, because the front below queues without any bound. Where callers need a token, those
without one are refused here too: the front could check tokens by itself, but for good, and for health too.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pygrpc_native._native import NativeGrpcFront

from headgate.endpoint.tokens import header_of
from headgate.errors import NotReady, TooLarge, Unauthenticated
from headgate.telemetry.traces import parent_of
from headgate.transport.allocator import TRIM_DELAY_MS, Trimmer
from headgate.transport.answers import STOPPING, overloaded, too_large
from headgate.transport.batches import BatchDecider, KeptBack
from headgate.transport.interface import Serving, TransportStats

if TYPE_CHECKING:
    # A name in the stubs alone.
    from pygrpc_native._native import DetailedEvent, Event

# Large enough that a batch costs nothing per call.
_BATCH_CALLS = 256
# While calls wait to be decided, all others are received: it may be the turn of who comes last.
_ALL_CALLS = 65_536
# How long the thread sleeps when nothing comes. Nothing waits for it: signals go to the loop's thread, a front that is
# closed wakes it, and memory has a time of its own. Shorter is what an idle server costs.
_IDLE_MS = 60_000
# The thread ends as soon as the front is closed.
_JOIN_S = 5.0

HealthBatch = tuple[float, int, "list[Event]"]
"""Time of receipt (monotonic), bytes of the payloads, and events: health calls, and ends of Watch streams."""


class Intake:
    """Owns the receiving thread."""

    def __init__(
        self,
        front: NativeGrpcFront,
        decider: BatchDecider,
        endpoint: Serving,
        stats: TransportStats,
        *,
        deliver: Callable[[HealthBatch], None],
        fail: Callable[[int, Exception], None],
        kept_back: KeptBack,
    ) -> None:
        """`deliver` and `fail` are called on the receiving thread."""
        self._front = front
        self._decider = decider
        self._limits = endpoint.limits
        self._stats = stats
        self._deliver = deliver
        self._fail = fail
        self._kept_back = kept_back
        self._callers = endpoint.callers
        self._traces = endpoint.tracing is not None
        self._parents: dict[int, str | bytes] = {}
        """Trace contexts of the calls of a batch, where traces are on."""
        self._trimmer = Trimmer()
        self._refusing = False
        self._thread = threading.Thread(target=self._receive, name="headgate-receive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def refuse_all(self) -> None:
        """Refuse all further health calls, because the server is stopping."""
        self._refusing = True

    def join(self) -> None:
        """Wait for the thread's end. Close the front first."""
        self._thread.join(_JOIN_S)

    def _receive(self) -> None:
        receive = self._receive_known if self._callers.tokens is not None or self._traces else self._front.recv_batch
        decider, parent_of_call = self._decider, self._parents.get if self._traces else None
        trimmer, stats = self._trimmer, self._stats
        idle_ms = _IDLE_MS
        while (events := receive(_ALL_CALLS, 0) if decider.has_waiting else receive(_BATCH_CALLS, idle_ms)) is not None:
            now = time.monotonic()
            if now >= trimmer.due_at:
                # Before what came now is looked at: what is noted of it is for another time.
                trimmer.run()
                idle_ms = _IDLE_MS
            if events or decider.has_waiting:
                too_large_before = stats.refused_too_large
                events = decider.take(now, events, parent_of_call)
                if events:
                    self._admit(now, events)
                if stats.refused_too_large != too_large_before and self._kept_back.size < 0:
                    # A guard lets none come that is too large: there is nothing to give back.
                    trimmer.note(now)
                    idle_ms = TRIM_DELAY_MS
            # The next ones may be long in coming: nothing of these is held meanwhile.
            events = None

    def _receive_known(self, max_events: int, timeout_ms: int) -> "list[Event] | None":
        """Receive as `recv_batch` does, without the calls of strangers: they are told so."""
        self._parents.clear()
        events = self._front.recv_batch_details(max_events, timeout_ms)
        return None if events is None else [event[:5] for event in events if self._is_known(event)]

    def _is_known(self, event: "DetailedEvent") -> bool:
        _, call_id, method, payload, _, details = event
        if method >= self._decider.methods or payload is None:
            return True
        metadata = details[0] if details else None
        try:
            self._callers.check_token(header_of(metadata))
        except Unauthenticated as error:
            self._stats.calls += 1
            self._stats.refused_unauthenticated += 1
            self._fail(call_id, error)
            return False
        if self._traces and (parent := parent_of(metadata) if metadata else None) is not None:
            self._parents[call_id] = parent
        return True

    # Health

    def _admit(self, now: float, events: "list[Event]") -> None:
        """Hand these events to the loop, but for the calls that a bound refuses."""
        kept: list[Event] = []
        calls = size = 0
        for event in events:
            payload = event[3]
            if payload is not None:
                try:
                    self._check(payload, calls, size)
                except Exception as error:
                    self._fail(event[1], error)
                    continue
                calls += 1
                size += len(payload)
            kept.append(event)
        self._stats.accepted_calls += calls
        self._stats.accepted_bytes += size
        if kept:
            self._deliver((now, size, kept))

    def _check(self, payload: bytes, calls: int, size: int) -> None:
        """Raise why a call is refused, when `calls` and `size` were accepted before it from the same batch."""
        limits, stats = self._limits, self._stats
        self._kept_back.check(payload)
        if len(payload) > limits.max_message_bytes:
            stats.refused_too_large += 1
            raise TooLarge(too_large(len(payload), limits))
        if self._refusing:
            raise NotReady(STOPPING)
        calls += stats.pending_calls
        size += stats.pending_bytes + len(payload)
        # Being overloaded must not look like being dead: health calls may use the same room that decisions have once
        # more. They have a bound too, lest they pile up instead.
        if calls >= limits.max_pending_calls * 2 or size > limits.max_pending_bytes * 2:
            stats.refused_overload += 1
            raise NotReady(overloaded(limits))
