"""Accepting HTTP connections: bounded in number, and some although no descriptor is left.

There are three kinds, each with places of its own. A connection that has said nothing yet is a bare socket; of too
many the oldest of the address that has most is cut. One whose first words are a whole health check is answered and
closed. Of all others, when there are too many, one is cut for a new one: of the address that has most, the one that has
been idle for longest, and where none is, the one that began first. So whatever others hold open or send half of, a
probe is answered. When the process may open no more files, descriptors that were kept aside are used.

New connections of a network take their part of its share of the loop's time (http_share.py), and health checks and
scrapes one each of their own: of whoever makes more, those that are too many are closed once they have spoken.
"""

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from headgate.endpoint.trust import network_of
from headgate.transport.descriptors import NO_DESCRIPTORS, Spares
from headgate.transport.http_access import SCRAPED
from headgate.transport.http_share import LoopShares, RequestKind

ACCEPTED_AT_ONCE: Final = 32
"""Connections that are accepted in one turn of the loop, half a millisecond's work: decisions have their turns in
between, and the system's line, in which probes stand too, does not get too long."""
OPENED_AT_ONCE: Final = 8
"""Connections that are being opened at a time, about a millisecond's work."""
MOST_PROBES: Final = 16
"""Health checks that are answered at a time, beside all other connections."""
MOST_SILENT: Final = 64
"""Connections that have said nothing yet: at a thousand new ones a second each has 64 ms to speak."""
SPARES: Final = 8
"""Connections at a time for when there are no descriptors: several probes, and a scrape."""
RETRY_S: Final = 0.1
"""Time until descriptors are looked for again."""

_PROBES: Final = tuple(
    f"{method} {path} HTTP/1.".encode()
    for method in ("GET", "HEAD")
    for path in ("/healthz", "/readyz", "/healthcheck")
)
_MOST_PROBE_BYTES: Final = 2_048
"""A check has a few headers: kubelet's and Envoy's are under 200 bytes."""
_SCRAPES: Final = tuple(f"GET {SCRAPED}{after}".encode() for after in " ?")

ProtocolFactory = Callable[[], web.RequestHandler]


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection: a bare socket until its caller speaks, then a protocol of aiohttp's."""

    socket: socket.socket
    network: str
    """Network of the caller; empty for all callers on a Unix socket."""
    turn: int
    """Its place among all, by when it was last used."""
    protocol: web.RequestHandler | None = None
    busy: bool = False
    """A request is under way."""
    silence: asyncio.TimerHandle | None = None
    """Ends it if it says nothing."""


class HttpConnections:
    """Owns the listening sockets of one HTTP server, and knows which of its connections are in use."""

    def __init__(self, max_connections: int, max_per_address: int, max_silence_s: float, shares: LoopShares) -> None:
        """`max_silence_s`: the time for the first byte of a connection."""
        self.cut: Counter[str] = Counter()
        """Connections that made room for others, by what was short: `connections`, `address`, `silent`, `probes`,
        `descriptors`, or `share`, the network's of the loop's time."""
        self._shares = shares
        self._max_connections = max_connections
        self._max_per_address = max_per_address
        self._max_silence_s = max_silence_s
        self._turn = itertools.count()
        # Dicts for sets, in the order of insertion.
        self._silent: dict[_Connection, None] = {}
        self._probes: dict[_Connection, None] = {}
        self._others: dict[_Connection, None] = {}
        self._by_network: Counter[str] = Counter()
        """Numbers of the others."""
        self._by_protocol: dict[web.RequestHandler, _Connection] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._listeners: Sequence[socket.socket] = ()
        self._spares: Spares
        self._make_protocol: ProtocolFactory
        self._loop: asyncio.AbstractEventLoop

    def start(self, listeners: Sequence[socket.socket], make_protocol: ProtocolFactory) -> None:
        """Accept from now on; `stop` closes the listening sockets."""
        self._loop = asyncio.get_running_loop()
        self._listeners, self._make_protocol, self._spares = listeners, make_protocol, Spares(SPARES)
        self._accept_again()

    async def stop(self) -> None:
        """Accept no more, and end those that have said nothing. The others are the server's to close."""
        if self._retry is not None:
            self._retry.cancel()
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for connection in list(self._silent):
            self._close(connection)
        self._spares.close()
        await asyncio.gather(*self._opening)

    def began(self, protocol: web.RequestHandler) -> None:
        """A request is under way: it is cut only when all others are busy too."""
        connection = self._by_protocol.get(protocol)
        if connection is not None:
            connection.busy, connection.turn = True, next(self._turn)

    def ended(self, protocol: web.RequestHandler) -> None:
        """The request was answered, or given up."""
        connection = self._by_protocol.get(protocol)
        if connection is not None:
            connection.busy, connection.turn = False, next(self._turn)

    def is_probe(self, protocol: web.RequestHandler) -> bool:
        """Tell whether a connection has a place for health checks: it is for one request."""
        return self._by_protocol.get(protocol) in self._probes

    def left(self, protocol: web.RequestHandler) -> None:
        """A connection has ended: its place is free."""
        connection = self._by_protocol.get(protocol)
        if connection is not None:
            self._forget(connection)

    # Accepting

    def _accept_again(self) -> None:
        self._retry = None
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)
        self._refill()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if len(self._opening) >= OPENED_AT_ONCE:
                return  # they can't be cut yet
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                self._refill()
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTORS and not self._spares.release():
                    self._wait_for_descriptors()
                    return
                # Tried again with the descriptor that was kept; or its caller left while it was in line.
                continue
            self._take(accepted, network_of(address[0]) if isinstance(address, tuple) else "")

    def _take(self, accepted: socket.socket, network: str) -> None:
        accepted.setblocking(False)
        connection = _Connection(accepted, network, next(self._turn))
        if len(self._silent) >= MOST_SILENT:
            self._cut(self._longest_silent(), "silent")
        self._silent[connection] = None
        if not self._listen_to(connection):
            connection.silence = self._loop.call_later(self._max_silence_s, self._close, connection)
            self._loop.add_reader(accepted, self._listen_to, connection)

    def _listen_to(self, connection: _Connection) -> bool:
        """Hear the first words of a connection, and open it; False: it has said nothing yet."""
        try:
            words = connection.socket.recv(_MOST_PROBE_BYTES + 1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            words = b""
        if not words:
            self._close(connection)
            return True
        self._end_silence(connection)
        kind = _kind_of(words)
        # On a Unix socket all callers are one, whom nobody slows down.
        if connection.network and not self._shares.may_open(connection.network, kind):
            self._cut(connection, "share")
            return True
        self._place(connection, kind is RequestKind.PROBE)
        opening = self._loop.create_task(self._open(connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return True

    def _place(self, connection: _Connection, probe: bool) -> None:
        """Give a place to a connection that has spoken; somebody may have to make room."""
        if probe:
            if len(self._probes) >= MOST_PROBES:
                self._cut(next(iter(self._probes)), "probes")
            self._probes[connection] = None
            return
        network = connection.network
        if network and self._by_network[network] >= self._max_per_address:
            self._cut_one("address", network)
        elif len(self._others) >= self._max_connections:
            self._cut_one("connections")
        self._others[connection] = None
        self._by_network[network] += 1

    async def _open(self, connection: _Connection) -> None:
        if connection not in self._others and connection not in self._probes:
            return  # cut meanwhile
        protocol = connection.protocol = self._make_protocol()
        self._by_protocol[protocol] = connection
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection.socket)
        except OSError:
            connection.socket.close()
            self._forget(connection)

    # Making room

    def _longest_silent(self) -> _Connection:
        """Return the oldest of those that say nothing, of the network that has most of them."""
        most = Counter([each.network for each in self._silent]).most_common(1)[0][0]
        return next(each for each in self._silent if each.network == most)

    def _cut_one(self, reason: str, network: str | None = None) -> None:
        """Cut one connection of a network, or of the one that has most: idle ones first, then in order of use."""
        if not self._others:
            if self._silent:
                self._cut(next(iter(self._silent)), reason)
            return
        if network is None:
            network = self._by_network.most_common(1)[0][0]
        of_network = [each for each in self._others if each.network == network]
        self._cut(min(of_network, key=lambda each: (each.busy, each.turn)), reason)

    def _cut(self, connection: _Connection, reason: str) -> None:
        self.cut[reason] += 1
        transport = None if connection.protocol is None else connection.protocol.transport
        if transport is not None:
            transport.abort()
        self._close(connection) if connection.protocol is None else self._forget(connection)

    def _close(self, connection: _Connection) -> None:
        """End a connection that has said nothing, or is not open yet."""
        self._end_silence(connection)
        self._forget(connection)
        connection.socket.close()

    def _end_silence(self, connection: _Connection) -> None:
        self._silent.pop(connection, None)
        if connection.silence is not None:
            connection.silence.cancel()
            connection.silence = None
            self._loop.remove_reader(connection.socket)

    def _forget(self, connection: _Connection) -> None:
        self._probes.pop(connection, None)
        if connection.protocol is not None:
            self._by_protocol.pop(connection.protocol, None)
        if connection in self._others:
            del self._others[connection]
            self._by_network[connection.network] -= 1
            if not self._by_network[connection.network]:
                del self._by_network[connection.network]

    # Descriptors

    def _wait_for_descriptors(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        self._cut_one("descriptors")
        self._try_later()

    def _refill(self) -> None:
        """Those that were used are to be had again when their connections have ended."""
        if not self._spares.refill():
            self._try_later()

    def _try_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._accept_again)


def _kind_of(words: bytes) -> RequestKind:
    """Tell what a connection is for, by its first words."""
    if _is_probe(words):
        return RequestKind.PROBE
    return RequestKind.SCRAPE if words.startswith(_SCRAPES) else RequestKind.REQUEST


def _is_probe(words: bytes) -> bool:
    """Tell whether these are a whole health check and nothing else: no body, and no second request."""
    if not words.startswith(_PROBES) or len(words) > _MOST_PROBE_BYTES:
        return False
    head = words.lower()
    return head.find(b"\r\n\r\n") == len(head) - 4 and b"\ncontent-length:" not in head and b"\ntransfer-" not in head
