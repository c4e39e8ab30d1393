"""The native transport behind a guard: fast, and fit for callers who are not trusted.

The front listens on a Unix socket in a directory that only we may enter; callers reach
the guard alone. What the guard bounds: connections, in total and per address; the time of
a handshake, of a message and of idleness, and the age of a connection; the size of
messages, as sent and unpacked; and all bytes that wait for the rest of something.
"""

import errno
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from headgate.address import UnixAddress, parse_address
from headgate.endpoint.listening import listen
from headgate.endpoint.socketfile import OWNER_ONLY, binding_at
from headgate.endpoint.tls import TlsFiles, server_context
from headgate.endpoint.trust import Trust
from headgate.transport.guard.guard import Guard
from headgate.transport.guard.refusals import Refusals
from headgate.transport.interface import Serving, Transport
from headgate.transport.native import NativeTransport
from headgate.transport.private_directory import PrivateDirectory

# Only this machine reaches it: for where no file can be made.
_FRONT_ON_LOOPBACK = "127.0.0.1:0"


class GuardedTransport(Transport):
    """A transport made with pygrpc-native, behind a guard."""

    name = "guarded"

    def __init__(self, endpoint: Serving, *, tls: TlsFiles | None = None, trust: Trust | None = None) -> None:
        super().__init__(endpoint)
        self._tls = tls
        self._trust = trust or Trust()
        self._refusals = Refusals()
        self._callers: dict[str, str] = {}
        """Who is behind each of the front's connections, by the front's name for it."""
        self._stop_timeout_s = 0.0
        self._native: NativeTransport | None = None

    def set_serving(self, serving: bool) -> None:
        if self._native is not None:
            self._native.set_serving(serving)

    async def start(self) -> None:
        tls_context = server_context(self._tls, self._endpoint.logger) if self._tls else None
        async with AsyncExitStack() as cleanup:
            with binding_at(self._address, self._endpoint.socket_mode, cleanup):
                listeners, self._address = listen(self._address, reuse_port=self._endpoint.reuse_port)
            for listener in listeners:
                cleanup.callback(listener.close)
            behind = replace(
                self._endpoint, address=self._front_address(cleanup), reuse_port=False, socket_mode=OWNER_ONLY
            )
            native = NativeTransport(behind, stats=self.stats, refusals=self._refusals, callers=self._callers)
            await native.start()
            try:
                guard = self._guard(listeners, native.address, tls_context)
            except BaseException:
                await native.stop(0)
                raise
            # The front goes first: its last answers and its GOAWAY pass the guard, which closes last.
            cleanup.push_async_callback(guard.stop)
            cleanup.push_async_callback(self._stop_front, native)
            self._native = native
            self._cleanup = cleanup.pop_all()

    def _guard(
        self, listeners: list[socket.socket], front: str, tls_context: Callable[[], ssl.SSLContext] | None
    ) -> Guard:
        guard = Guard(
            listeners,
            FrontDialler(front),
            self._endpoint,
            callers=self._callers,
            refusals=self._refusals,
            trust=self._trust,
            tls_context=tls_context,
            stats=self.stats.guard,
            pending=lambda: self.stats.pending_calls,
        )
        guard.start()
        return guard

    def _front_address(self, cleanup: AsyncExitStack) -> str:
        try:
            directory = PrivateDirectory()
        except OSError as error:
            self._endpoint.logger.warning("front_on_loopback", reason=str(error))
            return _FRONT_ON_LOOPBACK
        cleanup.callback(directory.remove)
        return f"unix:{os.path.join(directory.path, 'front.sock')}"

    async def stop(self, timeout_s: float) -> None:
        self._stop_timeout_s = timeout_s
        cleanup, self._cleanup = self._cleanup, AsyncExitStack()
        await cleanup.aclose()

    async def _stop_front(self, native: NativeTransport) -> None:
        await native.stop(self._stop_timeout_s)


class FrontDialler:
    """Connects to the front, at once. Nobody else does."""

    def __init__(self, address: str) -> None:
        parsed = parse_address(address)
        self._family = socket.AF_UNIX if isinstance(parsed, UnixAddress) else socket.AF_INET
        self._target = parsed.path if isinstance(parsed, UnixAddress) else (parsed.host, parsed.port)
        self._connections = 0

    def __call__(self) -> tuple[socket.socket, str]:
        """Return a connection, and what the front calls it. Raises OSError, also where too many others are in line."""
        front = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            front.setblocking(False)
            failed = front.connect_ex(self._target)
            # Over TCP it takes a moment, in which the socket takes nothing.
            if failed not in (0, errno.EINPROGRESS):
                raise OSError(failed, os.strerror(failed))
            return front, self._name(front)
        except BaseException:
            front.close()
            raise

    def _name(self, front: socket.socket) -> str:
        if self._family == socket.AF_INET:
            host, port = front.getsockname()
            return f"ipv4:{host}:{port}"
        # The front numbers those on Unix sockets, in the order in which they came; a process has one front.
        self._connections += 1
        return f"unix:{self._connections}"
