"""The portable transport: grpc.aio, with TLS, for callers who aren't trusted, and everywhere.

Handlers take and give raw bytes. Same answers as the native transport, at some ten times
the cost; grpc-core itself refuses oversized messages before it holds them.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Never, TypeAlias

import grpc

from headgate.endpoint.listening import listen_by_grpcio
from headgate.endpoint.methods import CODES, MethodHandlers, Methods
from headgate.endpoint.socketfile import binding_at
from headgate.endpoint.tls import TlsFiles, server_credentials
from headgate.errors import Forbidden, NotReady, Unauthenticated
from headgate.telemetry.traces import parent_of
from headgate.transport import health
from headgate.transport.allocator import bound_allocator
from headgate.transport.answers import STOPPING, Failures
from headgate.transport.calls import Calls, Decide, not_bytes
from headgate.transport.drain import wait_until_quiet, wait_until_silent
from headgate.transport.guard.addresses import counted_as_peer
from headgate.transport.interface import Serving, Transport
from headgate.transport.reflection import Reflection

# grpc-core's own limit is one ping in five minutes, and then it cuts the connection:
# proxies with an ordinary keepalive would lose it again and again.
_MIN_PING_INTERVAL_MS = 5_000
# An int to grpc-core.
_NO_BOUND = 2**31 - 1
# Ends as soon as all answers have left; only streams that nobody ends, as those of
# reflection, use it up.
_CLOSE_GRACE_S = 0.5
# Only the newest status matters to a watcher who reads slowly.
_KEPT_STATUSES = 4

# A status to send, or the stream's end.
_Statuses = asyncio.Queue[bytes | None]
_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class GrpcioTransport(Transport):
    """A transport made with grpc.aio."""

    name = "grpcio"

    def __init__(self, endpoint: Serving, *, tls: TlsFiles | None = None) -> None:
        super().__init__(endpoint)
        self._tls = tls
        self._failures = Failures(self.stats, endpoint.logger)
        self._health: health.Health[_Statuses] = health.Health()
        self._calls = Calls(endpoint, self.stats)
        # Calls whose answer comes later.
        self._waiting: set[asyncio.Future[bytes]] = set()

    def set_serving(self, serving: bool) -> None:
        self._health.set(serving)

    # Lifecycle

    async def start(self) -> None:
        bound_allocator()
        credentials = server_credentials(self._tls, self._endpoint.logger) if self._tls else None
        async with AsyncExitStack() as cleanup:
            with binding_at(self._address, self._endpoint.socket_mode, cleanup):
                server = grpc.aio.server(handlers=[Methods(self._methods())], options=self._options())
                cleanup.push_async_callback(server.stop, _CLOSE_GRACE_S)
                self._address = listen_by_grpcio(server, self._address, credentials)
            await server.start()
            self._cleanup = cleanup.pop_all()

    def _options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_receive_message_length", self._endpoint.limits.max_message_bytes),
            ("grpc.max_concurrent_streams", self._endpoint.limits.max_concurrent_streams),
            # Or the first calls of a new connection, sent before the caller can know the bound
            # above, are refused. Who knows it is held to it.
            ("grpc.http.overload_protection", 0),
            # Or calls that come while the loop is busy, from the thousandth on, end as CANCELLED,
            # for which nobody tries again. They wait instead, as many as connections may have
            # streams, and get a decision or UNAVAILABLE from us.
            ("grpc.server.max_pending_requests", _NO_BOUND),
            ("grpc.server.max_pending_requests_hard_limit", _NO_BOUND),
            ("grpc.so_reuseport", int(self._endpoint.reuse_port)),
            ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            *self._connection_options(),
        ]

    def _connection_options(self) -> list[tuple[str, int]]:
        """The bounds of the guard that grpc-core has too; those per address and on the loop's time it has not."""
        limits = self._endpoint.limits.guard
        return [
            ("grpc.max_allowed_incoming_connections", limits.max_connections),
            ("grpc.server_handshake_timeout_ms", _ms(limits.handshake_timeout_s)),
            ("grpc.max_connection_idle_ms", _ms(limits.idle_timeout_s)),
            ("grpc.max_connection_age_ms", _ms(limits.max_connection_age_s)),
        ]

    def _methods(self) -> MethodHandlers:
        return {
            **{path: self._method(decide) for path, decide in self._calls.methods.items()},
            health.CHECK_METHOD: grpc.unary_unary_rpc_method_handler(self._check),
            health.WATCH_METHOD: grpc.unary_stream_rpc_method_handler(self._watch),
            **Reflection(self._endpoint.callers).methods(),
        }

    async def stop(self, timeout_s: float) -> None:
        await wait_until_quiet(self.stats, timeout_s)
        # From here on nobody gets a decision, and everybody is told.
        self._calls.stop()
        for reply in self._waiting:
            _settle(reply, NotReady(STOPPING))
        for statuses in self._health.watchers:
            _put(statuses, None)
        # Once it closes, grpcio cancels those who keep coming instead of telling them.
        await wait_until_silent(self.stats)
        await self._cleanup.aclose()

    # Calls

    def _method(self, decide: Decide) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(partial(self._answer, decide))

    async def _answer(self, decide: Decide, payload: bytes, context: _Context) -> bytes:
        self.stats.calls += 1
        remaining_s = context.time_remaining()
        if remaining_s is not None and remaining_s <= 0:
            self.stats.dropped_expired += 1
            return b""  # to nobody: the call has ended
        try:
            began_s = time.monotonic()
            self._check_caller(context)
            answer = await self._decide(decide, payload, context)
            self.stats.durations.add(time.monotonic() - began_s)
            return answer
        except Exception as error:
            return await self._abort(context, error)

    def _check_caller(self, context: _Context) -> None:
        try:
            self._endpoint.callers.check_context(context)
        except Unauthenticated:
            self.stats.refused_unauthenticated += 1
            raise
        except Forbidden:
            self.stats.refused_forbidden += 1
            raise

    async def _decide(self, decide: Decide, payload: bytes, context: _Context) -> bytes:
        parent = None if self._endpoint.tracing is None else parent_of(context.invocation_metadata())
        answer = decide(payload, parent, counted_as_peer(context.peer()))
        if isinstance(answer, bytes):
            return answer
        # A future of the call's own: a caller who goes away cancels it, and the decision goes on.
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.on_answer = partial(self._complete, reply, len(payload))
        self._waiting.add(reply)
        try:
            return await reply
        finally:
            self._waiting.discard(reply)

    def _complete(self, reply: asyncio.Future[bytes], size: int, answer: bytes | Exception) -> None:
        """Hand the answer to its call and stop counting the call as pending."""
        self._calls.complete(1, size)
        _settle(reply, answer if isinstance(answer, bytes | Exception) else not_bytes(answer))

    # Health

    async def _check(self, payload: bytes, context: _Context) -> bytes:
        try:
            return self._health.check(payload)
        except Exception as error:
            return await self._abort(context, error)

    async def _watch(self, payload: bytes, context: _Context) -> AsyncIterator[bytes]:
        statuses: _Statuses = asyncio.Queue(_KEPT_STATUSES)
        try:
            self._health.watch(statuses, payload, partial(_put, statuses), counted_as_peer(context.peer()))
            while (status := await statuses.get()) is not None:
                yield status
            raise NotReady(STOPPING)
        except Exception as error:
            await self._abort(context, error)
        finally:
            self._health.unwatch(statuses)

    async def _abort(self, context: _Context, error: Exception) -> Never:
        code, message = self._failures.answer(error)
        await context.abort(CODES[code], message)


def _ms(seconds: float) -> int:
    return min(int(seconds * 1000), _NO_BOUND)


def _settle(reply: asyncio.Future[bytes], outcome: bytes | Exception) -> None:
    if reply.done():
        return
    if isinstance(outcome, bytes):
        reply.set_result(outcome)
    else:
        reply.set_exception(outcome)


def _put(statuses: _Statuses, status: bytes | None) -> None:
    if statuses.full():
        statuses.get_nowait()
    statuses.put_nowait(status)
