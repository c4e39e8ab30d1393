"""gRPC for operators, on an address of its own: grpc.aio, few callers, all of them known.

It shares nothing with the listener that decides, so that no setting of that one opens this. Raw bytes in and out: what
the methods mean is their own affair.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, TypeAlias

import grpc
from structlog.typing import FilteringBoundLogger

from headgate.address import parse_address
from headgate.endpoint.admins import Admins, Operator
from headgate.endpoint.listening import listen_by_grpcio
from headgate.endpoint.methods import CODES, MethodHandlers, Methods
from headgate.endpoint.socketfile import OWNER_ONLY, binding_at
from headgate.endpoint.tls import TlsFiles, server_credentials
from headgate.transport.answers import Failures
from headgate.transport.interface import TransportStats

MAX_CALLS: Final = 16
"""At a time: people and their scripts. More are told RESOURCE_EXHAUSTED."""
MAX_CONNECTIONS: Final = 64
MAX_MESSAGE_BYTES: Final = 64 * 1024
HANDSHAKE_TIMEOUT_MS: Final = 5_000
IDLE_TIMEOUT_MS: Final = 60_000
"""Time that a connection may stay that has not begun to speak, or has no call."""

Method = Callable[[bytes, Operator], Awaitable[bytes]]
"""A serialized request and who makes it, to a serialized answer. Raises what `errors.status_of` maps to a status."""

_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class AdminServer:
    """Serves methods to operators, from `start` to `stop`."""

    def __init__(
        self,
        address: str,
        methods: Mapping[str, Method],
        admins: Admins,
        logger: FilteringBoundLogger,
        *,
        tls: TlsFiles | None = None,
        socket_mode: int = OWNER_ONLY,
    ) -> None:
        self.stats = TransportStats()
        self._address = parse_address(address)
        self._methods = methods
        self._admins = admins
        self._logger = logger
        self._failures = Failures(self.stats, logger)
        self._tls = tls
        self._socket_mode = socket_mode
        self._cleanup = AsyncExitStack()

    @property
    def address(self) -> str:
        """The address that it listens on, with the real port."""
        return str(self._address)

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address can't be had, or a certificate can't be used."""
        credentials = server_credentials(self._tls, self._logger) if self._tls else None
        async with AsyncExitStack() as cleanup:
            with binding_at(self._address, self._socket_mode, cleanup):
                server = grpc.aio.server(
                    handlers=[Methods(self._handlers())], options=self._options(), maximum_concurrent_rpcs=MAX_CALLS
                )
                self._address = listen_by_grpcio(server, self._address, credentials)
            await server.start()
            cleanup.push_async_callback(server.stop, None)
            self._cleanup = cleanup.pop_all()

    async def stop(self) -> None:
        """Calls under way are cut: whoever asked may look what came of it."""
        await self._cleanup.aclose()

    def _options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_concurrent_streams", MAX_CALLS),
            ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            ("grpc.max_connection_idle_ms", IDLE_TIMEOUT_MS),
            ("grpc.so_reuseport", 0),
        ]

    def _handlers(self) -> MethodHandlers:
        return {path: grpc.unary_unary_rpc_method_handler(self._guarded(call)) for path, call in self._methods.items()}

    def _guarded(self, method: Method) -> Callable[[bytes, _Context], Awaitable[bytes]]:
        async def serve(payload: bytes, context: _Context) -> bytes:
            self.stats.calls += 1
            try:
                return await method(payload, self._admins.identify(context))
            except Exception as error:
                code, message = self._failures.answer(error)
                await context.abort(CODES[code], message)

        return serve
