"""Limits for a gRPC server of asyncio (`grpc.aio`); the same as `grpc_server`'s for threads.

```python
server = grpc.aio.server(interceptors=[RateLimitInterceptor(limiter, key=lambda call: {"method": call.method})])
```
"""

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from headgate_client.aio import AsyncHeadgate
from headgate_client.arguments import OnError
from headgate_client.middleware.gate import CostGiven, Gate, KeyFunction, need
from headgate_client.middleware.grpc_call import RpcCall
from headgate_client.middleware.grpc_server import wrapped
from headgate_client.middleware.rpc_status import MESSAGE, denial_metadata


class RateLimitInterceptor(grpc.aio.ServerInterceptor):
    """Options are those of `Gate`; `exempt` are methods, like `/grpc.health.v1.Health/*`."""

    def __init__(
        self,
        limiter: AsyncHeadgate,
        key: KeyFunction[RpcCall],
        *,
        cost: CostGiven[RpcCall] = 1,
        exempt: Sequence[str] = (),
        dry_run: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        need(limiter, AsyncHeadgate, "a gRPC server of asyncio")
        self.gate: Gate[RpcCall] = Gate(
            key, cost=cost, exempt=exempt, dry_run=dry_run, on_error=on_error, meant=_is_abort
        )
        self._limiter = limiter

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)

        def unary(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            async def limited(request: Any, context: Any) -> Any:
                await self._pass(method, context)
                answer = behaviour(request, context)
                return await answer if inspect.isawaitable(answer) else answer

            return limited

        def stream(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            if not inspect.isasyncgenfunction(behaviour):
                # It writes its answers by `context.write`.
                return unary(behaviour)

            async def limited(request: Any, context: Any) -> AsyncIterator[Any]:
                await self._pass(method, context)
                async for answer in behaviour(request, context):
                    yield answer

            return limited

        return wrapped(handler, unary, stream)

    async def _pass(self, method: str, context: Any) -> None:
        call = RpcCall(method, context.invocation_metadata() or (), context)
        decision = await self.gate.check_async(self._limiter, call, method)
        if decision is not None and not self.gate.passes(decision, method):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, MESSAGE, tuple(denial_metadata(decision)))


def _is_abort(error: Exception) -> bool:
    """Tell `context.abort` from a key function that fails."""
    return isinstance(error, grpc.aio.AbortError)
