"""A gRPC server with limits, and a caller that waits as it is told."""

import asyncio
import os
import sys
from typing import Any

import grpc
import grpc.aio
from headgate_client import AsyncHeadgate
from headgate_client.middleware.grpc_call import RpcCall
from headgate_client.middleware.grpc_client import RetryInfoInterceptor
from headgate_client.middleware.grpc_server_aio import RateLimitInterceptor
from headgate_client.middleware.obeying import Obey


def by_user(call: RpcCall) -> dict[str, str]:
    return {"user": call.headers.get("x-user", "nobody")}


async def hello(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return b"hello " + request


async def serve() -> None:
    async with AsyncHeadgate(os.environ.get("HEADGATE", "127.0.0.1:8081"), "edge") as limiter:
        limit = RateLimitInterceptor(limiter, by_user, exempt=["/grpc.health.v1.Health/*"])
        methods: dict[str, Any] = {"Hello": grpc.unary_unary_rpc_method_handler(hello)}
        server = grpc.aio.server(interceptors=[limit])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Greeter", methods),))
        port = server.add_insecure_port(f"127.0.0.1:{os.environ.get('PORT', '50051')}")
        await server.start()
        print(f"listening on 127.0.0.1:{port}", flush=True)
        await server.wait_for_termination()


def greet(address: str, user: str) -> bytes:
    """Waits up to ten seconds where the server says so."""
    channel = grpc.intercept_channel(grpc.insecure_channel(address), RetryInfoInterceptor(Obey(max_wait=10)))
    method: Any = channel.unary_unary("/demo.Greeter/Hello")
    return bytes(method(user.encode(), metadata=(("x-user", user),), timeout=5))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(greet(sys.argv[1], user="alice").decode())
    else:
        asyncio.run(serve())
