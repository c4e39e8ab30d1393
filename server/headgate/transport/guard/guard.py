"""Accepting callers, within bounds, and looking after their connections.

Owns the listening sockets. Each connection is a Relay; a tick looks at all of them, so that
nothing on the way of a call has to look at a clock. When there are too many, the one whose last call is longest ago
makes room for a new one.
"""

import asyncio
import contextlib
import heapq
import math
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from headgate.clock import SystemClock
from headgate.endpoint.trust import Trust, network_of
from headgate.telemetry.bounded import BoundedLogger
from headgate.transport.allocator import Trimmer
from headgate.transport.descriptors import NO_DESCRIPTORS, Spares, make_table, room_for
from headgate.transport.guard.addresses import Addresses
from headgate.transport.guard.budget import Backlog, Budget, BudgetShare
from headgate.transport.guard.connection import Connection
from headgate.transport.guard.inspector import Inspector
from headgate.transport.guard.open_calls import OpenCalls, Places
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.refusals import Refusals
from headgate.transport.guard.relay import Relay
from headgate.transport.guard.share import Account, Turns, unbounded
from headgate.transport.guard.surroundings import GuardTimeouts, Scratch, Surroundings
from headgate.transport.guard.tls_relay import TlsRelay
from headgate.transport.interface import GuardStats, Serving

TICK_S = 0.5
LOOKED_AT_ONCE = 8
"""Connections that a tick looks at in one turn of the loop: with a hundred calls each they take a millisecond."""
ACCEPTED_AT_ONCE = 16
"""Connections taken, or refused, in one turn of the loop: calls that are under way have theirs in between."""
ACCEPT_STEPS = 4
"""Cost of a new connection in its turn (share.py), TLS not included."""
TRIMMED_FROM = 500
"""Connections and calls of which half have ended, after which it is worth it to give memory back."""
TRIM_PAUSE_S = 60.0
"""Time between two such trims: nobody can take memory for as long as one goes on, some 30 ms for 300 MB."""
MADE_ROOM_AT_ONCE = 16
"""Connections that are chosen together to make room: looking at all of them for each new one would take longer."""
AGE_JITTER = 0.1
"""Connections that began together, as after a restart, must not end together."""
CLOSE_S = 0.5
"""Time for callers to take the last answers and close their side, once the front is gone."""
CUT_OFF = frozenset({"share", "header_block", "frame_size", "streams", "protocol"})
"""Ends of connections that are logged, a few in each 10 s: somebody does what no honest caller does."""
UNFINISHED_SHARE = 16
"""One connection may hold this part of all unfinished bytes, and never less than a message."""


class Guard:
    """Owns the listening sockets: accepts, bounds, and relays every connection to the front."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        connect: Callable[[], tuple[socket.socket, str]],
        endpoint: Serving,
        *,
        callers: dict[str, str],
        refusals: Refusals,
        trust: Trust,
        tls_context: Callable[[], ssl.SSLContext] | None,
        stats: GuardStats,
        pending: Callable[[], int],
    ) -> None:
        """`callers` is kept by it: who is behind each connection, by what the front calls it. `pending` gives the
        number of calls that have left the front and wait for their decisions."""
        limits = endpoint.limits
        self._loop = asyncio.get_running_loop()
        self._listeners = listeners
        self._connect = connect
        self._callers = callers
        self._limits = limits
        self._refusals = refusals
        self._trust = trust
        self._tls_context = tls_context
        self._stats = stats
        self._logger = BoundedLogger(endpoint.logger, SystemClock())
        self._names = endpoint.callers.names
        """Names of client certificates that are allowed; None: any that the authority signed."""
        self._max_connections = room_for(limits.guard.max_connections)
        if self._max_connections < limits.guard.max_connections:
            endpoint.logger.warning(
                "max_connections_lowered", max_connections=self._max_connections, reason="the limit on open files"
            )
        make_table(self._max_connections)
        share_bytes = max(limits.guard.max_unfinished_bytes // UNFINISHED_SHARE, 2 * limits.max_message_bytes)
        self._budget = Budget(limits.guard.max_unfinished_bytes, share_bytes)
        self._backlog = Backlog(limits.guard.max_unfinished_bytes)
        self._scratch = Scratch()
        self._turns = Turns(self._loop.call_soon, self._loop.call_later)
        self._places = Places(limits.guard.max_open_calls, pending)
        self._relays: dict[Connection, str] = {}
        """All connections, and what their callers are counted by."""
        self._addresses = Addresses(limits.guard.max_connections_per_address, limits.guard.max_new_connections_per_s)
        self._idlest: list[tuple[float, float, int, Connection]] = []
        """Connections that may make room, the first to go last."""
        self._trimmer = Trimmer(pause_s=TRIM_PAUSE_S)
        self._most_connections = 0
        """Most at once since memory was given back."""
        self._random = random.Random()  # noqa: S311 (only spreads ends over time)
        self._spare = Spares(1)
        self._timer: asyncio.Handle | None = None
        """The next look after everything, or after the rest of the connections."""
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
            host = network_of(peer[0]) if isinstance(peer, tuple) else ""
            trusted = self._trust.trusts_caller(peer[0] if host else "")
            self._turns.take(ACCEPT_STEPS)
            if (reason := self._why_not(host, trusted)) is not None:
                self._stats.refused[reason] += 1
                caller.close()
            else:
                self._open(caller, host, trusted)
            if self._turns.left <= 0:
                return

    def _turn_away(self, listener: socket.socket) -> None:
        """Accept the next one in line and close it, or it would wait, and wake us, for ever."""
        self._spare.release()
        with contextlib.suppress(OSError):
            listener.accept()[0].close()
        self._spare.refill()

    def _why_not(self, host: str, trusted: bool) -> str | None:
        if host and not trusted:
            reason = self._addresses.why_not(host, self._loop.time())
            if reason is not None:
                return reason
        if len(self._relays) >= self._max_connections and not self._make_room():
            return "connections"
        return None

    def _make_room(self) -> bool:
        """Close the connection whose last answer is longest ago, or that never had one. False: all are trusted."""
        while True:
            if not self._idlest:
                ranked = ((*relay.last_use(), id(relay), relay) for relay in self._relays)
                self._idlest = heapq.nsmallest(MADE_ROOM_AT_ONCE, ranked)[::-1]
            answered_at, opened_at, _, relay = self._idlest.pop()
            if relay in self._relays and relay.last_use() == (answered_at, opened_at):
                if answered_at == math.inf:
                    return False
                relay.make_room()
                return True

    def _open(self, caller: socket.socket, host: str, trusted: bool) -> None:
        caller.setblocking(False)
        with contextlib.suppress(OSError):
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        relay = self._relay(caller, host, trusted)
        self._relays[relay] = host
        self._addresses.add(host, self._loop.time())
        self._most_connections = max(self._most_connections, len(self._relays))
        self._stats.accepted += 1
        relay.open()

    def _relay(self, caller: socket.socket, host: str, trusted: bool) -> Relay:
        frames = Frames(unbounded(self._turns)) if trusted else self._inspector(host)
        around = Surroundings(
            turns=self._turns,
            backlog=self._backlog,
            relieve=self._relieve,
            scratch=self._scratch,
            timeouts=self._timeouts(trusted),
            connect=partial(self._dial, host),
            now=self._loop.time(),
        )
        if self._tls_context is None:
            return Relay(caller, frames, around, self._forget)
        return TlsRelay(caller, frames, around, self._forget, self._tls_context(), self._names)

    def _dial(self, host: str) -> tuple[socket.socket, str]:
        front, name = self._connect()
        self._callers[name] = host
        return front, name

    def _inspector(self, host: str) -> Inspector:
        limits = self._limits
        return Inspector(
            limits.max_message_bytes,
            limits.max_concurrent_streams,
            self._refusals,
            BudgetShare(self._budget),
            OpenCalls(self._places, host),
            Account(self._turns, host),
            self._loop.time(),
        )

    def _timeouts(self, trusted: bool) -> GuardTimeouts:
        guard = self._limits.guard
        if trusted:
            # Who is not looked at can't be told to go.
            return GuardTimeouts(guard.handshake_timeout_s, guard.message_timeout_s, math.inf, math.inf)
        age_s = guard.max_connection_age_s * self._random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER)
        return GuardTimeouts(guard.handshake_timeout_s, guard.message_timeout_s, guard.idle_timeout_s, age_s)

    def _forget(self, relay: Connection, reason: str) -> None:
        address = self._relays.pop(relay)
        self._addresses.remove(address)
        self._callers.pop(relay.front_name, None)
        if reason in CUT_OFF:
            self._logger.warning("connection_cut_off", reason=reason, address=address)
        self._stats.closed[reason] += 1
        self._one_left.set()

    # Looking after them

    def _relieve(self) -> None:
        """Somebody has to go: whoever has not read for longest."""
        stalled = [relay for relay in self._relays if relay.stalled_since]
        if stalled:
            min(stalled, key=lambda relay: relay.stalled_since).close("stalled")

    def _tick(self) -> None:
        """Look after everything, and then after the connections, some at a time."""
        now = self._loop.time()
        self._addresses.tick(now)
        self._stats.unfinished_bytes = self._budget.used_bytes + self._backlog.bytes
        self._stats.slowed = self._turns.slowed
        self._stats.refused_calls = self._places.refused
        self._trim_if_due(now)
        self._look_after(now, deque(self._relays))

    def _look_after(self, now: float, rest: deque[Connection]) -> None:
        """Look at the first of these, the others in the next turns, and then wait for the next tick."""
        for _ in range(min(len(rest), LOOKED_AT_ONCE)):
            relay = rest.popleft()
            if relay in self._relays:
                relay.tick(now)
        if rest:
            self._timer = self._loop.call_soon(self._look_after, now, rest)
        else:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _trim_if_due(self, now: float) -> None:
        """Give back the memory of many calls and connections once they are gone; it takes a while, so in a thread."""
        places, held = self._places, len(self._relays) + self._places.taken
        most = self._most_connections + places.most_taken
        if most >= TRIMMED_FROM and held <= most // 2:
            self._most_connections, places.most_taken = len(self._relays), places.taken
            self._trimmer.note(now)
        if now >= self._trimmer.due_at:
            self._loop.run_in_executor(None, self._trimmer.run)
