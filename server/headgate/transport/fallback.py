"""A private grpcio server for the methods that the native front can't serve itself.

Reflection streams both ways, which the front doesn't; it forwards whatever it doesn't
know to this server, on a Unix socket in a directory that only we may enter.
"""

import os
import shutil
import tempfile

import grpc

from headgate.transport.interface import TransportLimits
from headgate.transport.methods import MethodHandlers, Methods

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
        # mkdtemp makes it 0700.
        self._directory = tempfile.mkdtemp(prefix="headgate-")
        self.path = os.path.join(self._directory, "fallback.sock")

    async def start(self) -> None:
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            self._remove_directory()
            raise OSError(f"can't listen on {self.path}") from error
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)
        self._remove_directory()

    def _remove_directory(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
