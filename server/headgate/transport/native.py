"""The fast transport: HTTP/2 in pygrpc-native, decisions where calls are received.

A receiving thread (intake.py) takes whole batches of calls, and decides them itself (batches.py) while it holds the
loop's lock (shared_loop.py): at most one of the two runs at a time, so what is behind the handler needs no lock. Calls
that must wait for somebody are answered from the loop when their answer comes. Health goes to the loop, reflection and
methods that nobody knows to a server beside (fallback.py). The loop never waits for a call, so a signal waits for
nobody.

The front below bounds neither messages nor what it queues, and it has no TLS: for callers
who aren't trusted it stands behind a guard (see guard/), which has both.
"""

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pygrpc_native._native import STREAM_SENT, NativeGrpcFront

from headgate.address import TcpAddress
from headgate.endpoint.socketfile import binding_at
from headgate.errors import ConfigError, Status
from headgate.pending import PendingAnswer
from headgate.transport import health
from headgate.transport.allocator import bound_allocator
from headgate.transport.answers import STOPPING, Failures
from headgate.transport.batches import BatchDecider, KeptBack
from headgate.transport.calls import Calls, not_bytes
from headgate.transport.drain import wait_until_quiet, wait_until_silent
from headgate.transport.fallback import Fallback
from headgate.transport.guard.addresses import counted_as_peer
from headgate.transport.guard.refusals import Refusals
from headgate.transport.intake import HealthBatch, Intake
from headgate.transport.interface import Serving, Transport, TransportStats
from headgate.transport.reflection import Reflection
from headgate.transport.shared_loop import SharedLoop
from headgate.transport.timeouts import TIMEOUT_HEADER, Timeouts

if TYPE_CHECKING:
    from pygrpc_native._native import Event

# True where the answer is a stream. The front numbers methods by their order: those that are decided come before these.
_HEALTH_METHODS = ((health.CHECK_METHOD, False), (health.WATCH_METHOD, True))
# One thread is 10 to 20% cheaper than two, and more than the loop can use.
_IO_THREADS = 1
# Behind a guard, which turns this refusal of the front's into one that gRPC knows.
_GUARDED_METADATA_BYTES = 16 * 1024
# Without one the refusal is HTTP 431, for gRPC clients UNKNOWN, which Envoy lets pass. So callers
# who are trusted by address have what they could not send by accident.
_TRUSTED_METADATA_BYTES = 1024 * 1024


class NativeTransport(Transport):
    """A transport made with pygrpc-native."""

    name = "native"

    def __init__(
        self,
        endpoint: Serving,
        *,
        stats: TransportStats | None = None,
        refusals: Refusals | None = None,
        callers: dict[str, str] | None = None,
    ) -> None:
        """`callers`: who is behind each connection, by the front's name for it, where there is a guard, which knows."""
        super().__init__(endpoint, stats)
        self._refusals = refusals
        self._callers = callers
        self._failures = Failures(self.stats, endpoint.logger)
        self._health: health.Health[int] = health.Health()
        self._timeouts = Timeouts()
        self._calls = Calls(endpoint, self.stats)
        self._check = len(self._calls.methods)
        """Number of the method Check."""
        self._batches: deque[HealthBatch] = deque()
        self._handed_over = False
        # Calls whose answer comes later.
        self._waiting: set[int] = set()
        # Answers that are sent when whoever gave them has given all: calls, their sizes, when they came, the answers.
        self._ready: list[tuple[int, int, float, bytes]] = []
        self._started = False
        self._loop: SharedLoop
        self._front: NativeGrpcFront
        self._intake: Intake

    def set_serving(self, serving: bool) -> None:
        self._health.set(serving)

    # Lifecycle

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SharedLoop):
            raise TypeError(f"the native transport runs on a SharedLoop, not on a {type(loop).__name__}")
        self._loop = loop
        bound_allocator()
        async with AsyncExitStack() as cleanup:
            with binding_at(self._address, self._endpoint.socket_mode, cleanup):
                self._front = self._bind()
            self._intake = self._make_intake()
            self._intake.start()
            cleanup.push_async_callback(asyncio.to_thread, self._intake.join)
            cleanup.push_async_callback(asyncio.to_thread, self._front.close)
            fallback = await self._start_fallback()
            if fallback is not None:
                cleanup.push_async_callback(fallback.stop)
            self._front.start()
            self._started = True
            self._cleanup = cleanup.pop_all()

    def _make_intake(self) -> Intake:
        kept_back = KeptBack(self._refusals, self._endpoint.limits, self.stats)
        callers = {} if self._callers is None else self._callers
        return Intake(
            self._front,
            BatchDecider(
                tuple(self._calls.methods.values()),
                self._front.respond,
                self,
                self._loop.lock,
                self.stats,
                kept_back,
                callers,
                self._endpoint.limits,
                self._endpoint.tidy,
            ),
            self._endpoint,
            self.stats,
            deliver=self._hand_over,
            fail=self.fail,
            kept_back=kept_back,
        )

    def _bind(self) -> NativeGrpcFront:
        try:
            front = NativeGrpcFront(
                str(self._address),
                [*((path, False) for path in self._calls.methods), *_HEALTH_METHODS],
                _IO_THREADS,
                # It tells one of the two with a call. Behind a guard, which is on the loop, a call that waited for the
                # loop has not come yet; and callers who are not trusted take turns.
                client_key_metadata=TIMEOUT_HEADER if self._callers is None else None,
                call_details=self._endpoint.callers.tokens is not None or self._endpoint.tracing is not None,
                max_concurrent_streams=self._endpoint.limits.max_concurrent_streams,
                max_metadata_size=_GUARDED_METADATA_BYTES if self._refusals else _TRUSTED_METADATA_BYTES,
                reuse_port=self._endpoint.reuse_port,
            )
        except OSError as error:
            # Its text names the address.
            raise ConfigError(f"can't listen on {error.strerror or error}") from error
        if isinstance(self._address, TcpAddress):
            self._address = TcpAddress(self._address.host, front.bound_port)
        return front

    async def _start_fallback(self) -> Fallback | None:
        """Reflection is a convenience: where there is no directory for its socket, we serve without."""
        try:
            # The guard has looked at names already.
            callers = replace(self._endpoint.callers, names=None)
            fallback = Fallback(Reflection(callers).methods(), self._endpoint.limits)
            await fallback.start()
        except OSError as error:
            self._endpoint.logger.warning("reflection_unavailable", reason=str(error))
            return None
        self._front.set_fallback(fallback.path)
        return fallback

    async def stop(self, timeout_s: float) -> None:
        if not self._started:
            return
        await wait_until_quiet(self.stats, timeout_s)
        # From here on nobody gets a decision, and everybody is told.
        self._calls.stop()
        self._intake.refuse_all()
        for call_id in (*self._waiting, *self._health.watchers):
            self._front.fail(call_id, Status.UNAVAILABLE, STOPPING)
        await wait_until_silent(self.stats)
        await self._cleanup.aclose()

    # Answers, from whoever holds the loop's lock

    def fail(self, call_id: int, error: Exception) -> None:
        code, message = self._failures.answer(error)
        self._front.fail(call_id, code, message)

    def mark_pending(self, call_id: int, size: int, received_at: float, answer: PendingAnswer) -> None:
        """Keep the call until `complete` is called with its answer."""
        self._waiting.add(call_id)
        answer.on_answer = partial(self.complete, call_id, size, received_at)

    def complete(self, call_id: int, size: int, received_at: float, answer: bytes | Exception) -> None:
        """Send the answer and stop counting the call as pending. On the loop."""
        self._waiting.discard(call_id)
        if type(answer) is bytes:
            # Answers of one reply come together, and go together: each by itself would wake the front.
            if not self._ready:
                self._loop.call_soon(self._send_ready)
            self._ready.append((call_id, size, received_at, answer))
            return
        self.fail(call_id, answer if isinstance(answer, Exception) else not_bytes(answer))
        self._calls.complete(1, size)

    def _send_ready(self) -> None:
        ready, self._ready = self._ready, []
        respond, stats, now_s = self._front.respond, self.stats, time.monotonic()
        together, came_at, finished_bytes = 0, 0.0, 0
        for call_id, size, received_at, answer in ready:
            respond(call_id, answer)
            finished_bytes += size
            # Most came together: what came in one batch is counted in one go.
            if received_at != came_at:
                stats.durations.add(now_s - came_at, together)
                together, came_at = 0, received_at
            together += 1
        stats.durations.add(now_s - came_at, together)
        self._calls.complete(len(ready), finished_bytes)

    # Health, handed over from the receiving thread to the loop

    def _hand_over(self, batch: HealthBatch) -> None:
        self._batches.append(batch)
        # One wake-up until the loop has come: it takes all that is there by then. It clears
        # the flag before it looks, so whatever it doesn't see wakes it again.
        if not self._handed_over:
            self._handed_over = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                # The loop was closed without stop(): nobody will answer.
                self._front.close()

    def _take(self) -> None:
        self._handed_over = False
        batches = self._batches
        # What comes while we work wakes us again: others run in between.
        for _ in range(len(batches)):
            self._serve_health(*batches.popleft())

    def _serve_health(self, received_at: float, size: int, events: "list[Event]") -> None:
        calls = 0
        for _, call_id, method, payload, timeout in events:
            if payload is None:
                self._health.unwatch(call_id)
                continue
            calls += 1
            # The front gives the caller's address, a string, where there is no such header.
            if type(timeout) is bytes and time.monotonic() - received_at >= self._timeouts[timeout]:
                self.stats.dropped_expired += 1
                continue
            try:
                if method == self._check:
                    self._front.respond(call_id, self._health.check(payload))
                else:
                    # Those with a deadline have one name: the front does not tell both.
                    caller = self._caller_of(timeout) if isinstance(timeout, str) else ""
                    self._health.watch(call_id, payload, partial(self._send, call_id), caller)
            except Exception as error:
                self.fail(call_id, error)
        self._calls.complete(calls, size)

    def _caller_of(self, name: str) -> str:
        return counted_as_peer(name) if self._callers is None else self._callers.get(name, name)

    def _send(self, call_id: int, status: bytes) -> None:
        """Send a status to a Watch stream, or end the stream if its caller does not read."""
        if self._front.stream_try_send(call_id, status) != STREAM_SENT:
            self._health.unwatch(call_id)
            self._front.fail(call_id, Status.UNAVAILABLE, "a Watch stream that isn't read is closed")
