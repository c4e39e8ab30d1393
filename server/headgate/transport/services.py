"""Further unary methods on the listener that decides, for the same callers: raw bytes, in grpc.aio.

The portable transport serves them itself, the native one from the private server behind it. They are called far less
often than decisions are asked for.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import grpc

from headgate.endpoint.methods import CODES, MethodHandlers
from headgate.transport.answers import Failures
from headgate.transport.callers import Callers

UnaryMethod = Callable[[bytes], Awaitable[bytes]]
UnaryMethods = Mapping[str, UnaryMethod]
"""Methods by path. Each raises what `errors.status_of` maps to a status."""

_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


def method_handlers(methods: UnaryMethods, callers: Callers, failures: Failures) -> MethodHandlers:
    """Make handlers for a grpc.aio server, guarded as decisions are."""
    return {
        path: grpc.unary_unary_rpc_method_handler(_guarded(method, callers, failures))
        for path, method in methods.items()
    }


def _guarded(
    method: UnaryMethod, callers: Callers, failures: Failures
) -> Callable[[bytes, _Context], Awaitable[bytes]]:
    async def serve(payload: bytes, context: _Context) -> bytes:
        try:
            callers.check_context(context)
            return await method(payload)
        except Exception as error:
            code, message = failures.answer(error)
            await context.abort(CODES[code], message)

    return serve
