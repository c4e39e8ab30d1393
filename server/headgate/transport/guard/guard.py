"""Accepting callers, within bounds, and looking after their connections.

Owns the listening sockets. Each connection is a Relay; a tick looks at all of them, so that
nothing on the way of a call has to look at a clock.
"""

import asyncio
import contextlib
import math
import random
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence

from headgate.endpoint.trust import Trust
from headgate.transport.descriptors import NO_DESCRIPTORS, Spares, room_for
from headgate.transport.guard.budget import Backlog, Budget, BudgetShare
from headgate.transport.guard.inspector import Inspector
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.refusals import Refusals
from headgate.transport.guard.relay import Relay
from headgate.transport.guard.surroundings import GuardTimeouts, Scratch, Surroundings
from headgate.transport.guard.tls_relay import TlsRelay
from headgate.transport.interface import GuardStats, Serving

TICK_S = 0.5
ACCEPTED_AT_ONCE = 64
"""Connections taken in one turn of the loop: calls that are under way have theirs in between."""
AGE_JITTER = 0.1
"""Connections that began together, as after a restart, must not end together."""
CLOSE_S = 0.5
"""Time for callers to take the last answers and close their side, once the front is gone."""
UNFINISHED_SHARE = 16
"""One connection may hold this part of all unfinished bytes, and never less than a message."""


class Guard:
    """Owns the listening sockets: accepts, bounds, and relays every connection to the front."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        connect: Callable[[], socket.socket],
        endpoint: Serving,
        *,
        refusals: Refusals,
        trust: Trust,
        tls_context: Callable[[], ssl.SSLContext] | None,
        stats: GuardStats,
    ) -> None:
        limits = endpoint.limits
        self._loop = asyncio.get_running_loop()
        self._listeners = listeners
        self._connect = connect
        self._limits = limits
        self._refusals = refusals
        self._trust = trust
        self._tls_context = tls_context
        self._stats = stats
        self._names = endpoint.callers.names
        """Names of client certificates that are allowed; None: any that the authority signed."""
        self._max_connections = room_for(limits.guard.max_connections)
        if self._max_connections < limits.guard.max_connections:
            endpoint.logger.warning(
                "max_connections_lowered", max_connections=self._max_connections, reason="the limit on open files"
            )
        share_bytes = max(limits.guard.max_unfinished_bytes // UNFINISHED_SHARE, 2 * limits.max_message_bytes)
        self._budget = Budget(limits.guard.max_unfinished_bytes, share_bytes)
        self._backlog = Backlog(limits.guard.max_unfinished_bytes)
        self._scratch = Scratch()
        self._relays: dict[Relay, str] = {}
        self._per_address: Counter[str] = Counter()
        self._random = random.Random()  # noqa: S311 (only spreads ends over time)
        self._spare = Spares(1)
        self._timer: asyncio.TimerHandle | None = None
        self._one_left = asyncio.Event()

    def start(self) -> None:
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)
        self._timer = self._loop.call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Accept no more, and let those finish whose front is gone; cut the rest."""
        self.stop_accepting()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while any(relay.is_delivering for relay in self._relays):
                    self._one_left.clear()
                    await self._one_left.wait()
        if self._timer is not None:
            self._timer.cancel()
        for relay in list(self._relays):
            relay.close("stopped")
        self._spare.close()

    def stop_accepting(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners = ()

    # Accepting

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                caller, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:
                    self._stats.refused["descriptors"] += 1
                    self._turn_away(listener)
                # Or its caller left while it was in line.
                continue
            # Callers on a Unix socket have no address.
            host = peer[0] if isinstance(peer, tuple) else ""
            trusted = self._trust.trusts_caller(host)
            if (reason := self._why_not(host, trusted)) is not None:
                self._stats.refused[reason] += 1
                caller.close()
                continue
            self._open(caller, host, trusted)

    def _turn_away(self, listener: socket.socket) -> None:
        """Accept the next one in line and close it, or it would wait, and wake us, for ever."""
        self._spare.release()
        with contextlib.suppress(OSError):
            listener.accept()[0].close()
        self._spare.refill()

    def _why_not(self, host: str, trusted: bool) -> str | None:
        if len(self._relays) >= self._max_connections:
            return "connections"
        if host and not trusted and self._per_address[host] >= self._limits.guard.max_connections_per_address:
            return "connections_per_address"
        return None

    def _open(self, caller: socket.socket, host: str, trusted: bool) -> None:
        caller.setblocking(False)
        with contextlib.suppress(OSError):
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        relay = self._relay(caller, trusted)
        self._relays[relay] = host
        self._per_address[host] += 1
        self._stats.accepted += 1
        relay.open()

    def _relay(self, caller: socket.socket, trusted: bool) -> Relay:
        frames = Frames() if trusted else self._inspector()
        around = Surroundings(
            backlog=self._backlog,
            relieve=self._relieve,
            scratch=self._scratch,
            timeouts=self._timeouts(trusted),
            connect=self._connect,
            now=self._loop.time(),
        )
        if self._tls_context is None:
            return Relay(caller, frames, around, self._forget)
        return TlsRelay(caller, frames, around, self._forget, self._tls_context(), self._names)

    def _inspector(self) -> Inspector:
        limits = self._limits
        return Inspector(
            limits.max_message_bytes,
            limits.max_concurrent_streams,
            self._refusals,
            BudgetShare(self._budget),
            self._loop.time(),
        )

    def _timeouts(self, trusted: bool) -> GuardTimeouts:
        guard = self._limits.guard
        if trusted:
            # Who is not looked at can't be told to go.
            return GuardTimeouts(guard.handshake_timeout_s, guard.message_timeout_s, math.inf, math.inf)
        age_s = guard.max_connection_age_s * self._random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER)
        return GuardTimeouts(guard.handshake_timeout_s, guard.message_timeout_s, guard.idle_timeout_s, age_s)

    def _forget(self, relay: Relay, reason: str) -> None:
        host = self._relays.pop(relay)
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]
        self._stats.closed[reason] += 1
        self._one_left.set()

    # Looking after them

    def _relieve(self) -> None:
        """Somebody has to go: whoever has not read for longest."""
        stalled = [relay for relay in self._relays if relay.stalled_since]
        if stalled:
            min(stalled, key=lambda relay: relay.stalled_since).close("stalled")

    def _tick(self) -> None:
        now = self._loop.time()
        for relay in list(self._relays):
            relay.tick(now)
        self._stats.unfinished_bytes = self._budget.used_bytes + self._backlog.bytes
        self._timer = self._loop.call_later(TICK_S, self._tick)
