"""Accepting HTTP connections: bounded in number, and some although no descriptor is left.

When there are too many, the one that has been idle for longest is cut for a new one: a health check finds room however
many connections others hold open. When the process may open no more files, descriptors that were kept aside are used.
"""

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import Sequence

from aiohttp import web

from headgate.transport.descriptors import NO_DESCRIPTORS, Spares

ACCEPTED_AT_ONCE = 64
"""Connections that are being opened: decisions have their turns in between. Fewer than may be open."""
SPARES = 8
"""Connections at a time for when there are no descriptors: several probes, and a scrape."""
RETRY_S = 0.1
"""Time until descriptors are looked for again."""


class HttpConnections:
    """Owns the listening sockets of one HTTP server, and knows which of its connections are in use."""

    def __init__(self, max_connections: int) -> None:
        self.cut: Counter[str] = Counter()
        """Connections that made room for others, by what was short: `connections` or `descriptors`."""
        self._max_connections = max_connections
        self._turn = itertools.count()
        self._last_use: dict[web.RequestHandler, int] = {}
        self._busy: set[web.RequestHandler] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._listeners: Sequence[socket.socket] = ()
        self._spares: Spares
        self._server: web.Server
        self._loop: asyncio.AbstractEventLoop

    def start(self, listeners: Sequence[socket.socket], server: web.Server) -> None:
        """Accept from now on, for `server`; `stop` closes the listening sockets."""
        self._loop = asyncio.get_running_loop()
        self._listeners, self._server, self._spares = listeners, server, Spares(SPARES)
        self._accept_again()

    async def stop(self) -> None:
        """Accept no more. What is connected stays so: it is the server's to close."""
        if self._retry is not None:
            self._retry.cancel()
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._spares.close()
        await asyncio.gather(*self._opening)

    def began(self, connection: web.RequestHandler) -> None:
        """A request is under way: it is cut only when all others are busy too."""
        self._busy.add(connection)

    def ended(self, connection: web.RequestHandler) -> None:
        """The request was answered, or given up."""
        self._busy.discard(connection)
        if connection in self._last_use:
            self._last_use[connection] = next(self._turn)

    # Accepting

    def _accept_again(self) -> None:
        self._retry = None
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)
        self._refill()

    def _accept(self, listener: socket.socket) -> None:
        # Those that are opening can't be cut yet; a few turns later they can.
        while len(self._opening) < ACCEPTED_AT_ONCE:
            try:
                accepted = listener.accept()[0]
            except (BlockingIOError, InterruptedError):
                self._refill()
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTORS and not self._spares.release():
                    self._wait_for_descriptors()
                    return
                # Tried again with the descriptor that was kept; or its caller left while it was in line.
                continue
            self._open(accepted)

    def _open(self, accepted: socket.socket) -> None:
        if self._is_full:
            self._forget_gone()
            if self._is_full:
                self._cut_one("connections")
        accepted.setblocking(False)
        opening = self._loop.create_task(self._connect(accepted))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            _, connection = await self._loop.connect_accepted_socket(self._server, accepted)
        except OSError:
            accepted.close()
        else:
            self._last_use[connection] = next(self._turn)

    # Making room

    @property
    def _is_full(self) -> bool:
        return len(self._last_use) + len(self._opening) >= self._max_connections

    def _forget_gone(self) -> None:
        live = set(self._server.connections)
        self._last_use = {each: turn for each, turn in self._last_use.items() if each in live}
        self._busy &= live

    def _cut_one(self, reason: str) -> None:
        """Whoever is idle for longest; where nobody is, whoever began first."""
        if not self._last_use:
            return
        longest = min(self._last_use, key=lambda each: (each in self._busy, self._last_use[each]))
        del self._last_use[longest]
        if longest.transport is not None:
            longest.transport.abort()
            self.cut[reason] += 1

    def _wait_for_descriptors(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        self._forget_gone()
        self._cut_one("descriptors")
        self._try_later()

    def _refill(self) -> None:
        """Those that were used are to be had again when their connections have ended."""
        if not self._spares.refill():
            self._try_later()

    def _try_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._accept_again)
