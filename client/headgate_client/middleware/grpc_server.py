"""Limits for a gRPC server that runs on threads.

```python
server = grpc.server(pool, interceptors=[RateLimitInterceptor(limiter, key=lambda call: {"method": call.method})])
```

A denial is RESOURCE_EXHAUSTED, with `google.rpc.RetryInfo` in its details and `retry-after` in its trailing metadata.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from headgate_client.arguments import OnError
from headgate_client.client import Headgate
from headgate_client.middleware.gate import CostGiven, Gate, KeyFunction, need, refuse_coroutines
from headgate_client.middleware.grpc_call import RpcCall
from headgate_client.middleware.rpc_status import MESSAGE, denial_metadata


class RateLimitInterceptor(grpc.ServerInterceptor):
    """Options are those of `Gate`; `exempt` are methods, like `/grpc.health.v1.Health/*`."""

    def __init__(
        self,
        limiter: Headgate,
        key: KeyFunction[RpcCall],
        *,
        cost: CostGiven[RpcCall] = 1,
        exempt: Sequence[str] = (),
        dry_run: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        need(limiter, Headgate, "a gRPC server of threads")
        refuse_coroutines(key, cost, "a gRPC server of threads")
        self.gate: Gate[RpcCall] = Gate(
            key, cost=cost, exempt=exempt, dry_run=dry_run, on_error=on_error, meant=_is_abort
        )
        self._limiter = limiter

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)

        def unary(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            def limited(request: Any, context: grpc.ServicerContext) -> Any:
                self._pass(method, context)
                return behaviour(request, context)

            return limited

        def stream(behaviour: Callable[[Any, Any], Iterator[Any]]) -> Callable[[Any, Any], Iterator[Any]]:
            def limited(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
                self._pass(method, context)
                yield from behaviour(request, context)

            return limited

        return wrapped(handler, unary, stream)

    def _pass(self, method: str, context: grpc.ServicerContext) -> None:
        call = RpcCall(method, context.invocation_metadata() or (), context)
        decision = self.gate.check(self._limiter, call, method)
        if decision is not None and not self.gate.passes(decision, method):
            context.set_trailing_metadata(tuple(denial_metadata(decision)))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, MESSAGE)


def wrapped(handler: Any, unary: Callable[[Any], Any], stream: Callable[[Any], Any]) -> Any:
    """The same handler with its behaviour wrapped, by whether it answers with one message or with many."""
    coders = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    if handler.request_streaming:
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream(handler.stream_stream), **coders)
        return grpc.stream_unary_rpc_method_handler(unary(handler.stream_unary), **coders)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream(handler.unary_stream), **coders)
    return grpc.unary_unary_rpc_method_handler(unary(handler.unary_unary), **coders)


def _is_abort(error: Exception) -> bool:
    """Tell `context.abort`, which raises an exception of no kind and without words, from a key function that fails."""
    return type(error) is Exception and not error.args
