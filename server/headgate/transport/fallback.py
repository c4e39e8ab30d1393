"""A private grpcio server for the methods that the native front can't serve itself.

Reflection streams both ways, which the front doesn't; it forwards whatever it doesn't
know to this server, on a Unix socket in a directory that only we may enter.
"""

import grpc

from headgate.endpoint.methods import MethodHandlers, Methods
from headgate.transport.interface import TransportLimits
from headgate.transport.private_directory import PrivateDirectory

# Beyond what reflection allows itself there are only calls to unknown methods, quickly answered.
_MAX_CALLS = 128


class Fallback:
    """The private server, from `start` to `stop`. Raises OSError where no directory can hold its socket."""

    def __init__(self, methods: MethodHandlers, limits: TransportLimits) -> None:
        self._server = grpc.aio.server(
            handlers=[Methods(methods)],
            options=[("grpc.max_receive_message_length", limits.max_message_bytes)],
            maximum_concurrent_rpcs=_MAX_CALLS,
        )
        self._directory = PrivateDirectory()
        self.path = str(self._directory.path / "fallback.sock")

    async def start(self) -> None:
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            self._directory.remove()
            raise OSError(f"can't listen on {self.path}") from error
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)
        self._directory.remove()
