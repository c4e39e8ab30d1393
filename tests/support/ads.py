"""An ADS server with the habits of Envoy Gateway's: on a thread of its own, restartable on the same port.

It says nothing before it has a set; sends everything with every change, in random order; counts versions from 1;
answers a refusal at once with the same set; ignores stale nonces, and nodes that it does not know.
"""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from headgate.xds.messages import METHODS, TYPE_URL
from headgate.xds.wire.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    Resource,
)
from headgate.xds.wire.ratelimit_config_pb2 import RateLimitConfig, RateLimitDescriptor, RateLimitPolicy

from tests.support.waiting import PATIENCE_S

FIVE_MINUTES_MS = 300_000


def config(domain: str, requests: int, unit: int = 6) -> RateLimitConfig:
    """One limit per value of `user`; of a year, so that no window ends during a test."""
    policy = RateLimitPolicy(unit=unit, requests_per_unit=requests)  # type: ignore[arg-type]
    return RateLimitConfig(name=domain, domain=domain, descriptors=[RateLimitDescriptor(key="user", rate_limit=policy)])


class AdsServer:
    """Serves one set to all streams; every method may be called from any thread."""

    def __init__(self, node_id: str = "envoy-ratelimit", port: int = 0) -> None:
        self.requests: list[DiscoveryRequest | DeltaDiscoveryRequest] = []
        """All that came."""
        self.metadata: list[dict[str, str]] = []
        """Headers of each stream."""
        self._node_id = node_id
        self._configs: dict[str, RateLimitConfig] | None = None
        self._version = 0
        self._changed: set[asyncio.Event] = set()
        self._random = random.Random(1)
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "AdsServer":
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def refusals(self) -> list[Any]:
        return [request for request in list(self.requests) if request.HasField("error_detail")]

    @property
    def acks(self) -> list[Any]:
        return [item for item in list(self.requests) if item.response_nonce and not item.HasField("error_detail")]

    def stop(self) -> None:
        if self._thread.is_alive():
            self._call(self._server.stop(0))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()

    def send(self, configs: Sequence[RateLimitConfig]) -> None:
        """Make this the whole set, and push it."""
        self._call(self._set(configs))

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self) -> None:
        options = [
            ("grpc.http2.min_recv_ping_interval_without_data_ms", FIVE_MINUTES_MS),
            ("grpc.http2.max_ping_strikes", 1),
        ]
        self._server = grpc.aio.server(options=options)
        handlers: dict[str, Any] = {
            METHODS["sotw"].rpartition("/")[2]: grpc.stream_stream_rpc_method_handler(self._sotw),
            METHODS["delta"].rpartition("/")[2]: grpc.stream_stream_rpc_method_handler(self._delta),
        }
        service = METHODS["sotw"].split("/")[1]
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
        self.port = self._server.add_insecure_port(self.address)
        await self._server.start()

    async def _set(self, configs: Sequence[RateLimitConfig]) -> None:
        self._configs = {item.name: item for item in configs}
        self._version += 1
        for event in self._changed:
            event.set()

    async def _sotw(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for nonce in self._stream(requests, context, DiscoveryRequest):
            configs = list((self._configs or {}).values())
            self._random.shuffle(configs)
            response = DiscoveryResponse(version_info=str(self._version), type_url=TYPE_URL, nonce=str(nonce))
            response.resources.extend(map(_packed, configs))
            yield response.SerializeToString()

    async def _delta(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        known: dict[str, RateLimitConfig] = {}
        async for nonce in self._stream(requests, context, DeltaDiscoveryRequest):
            now = dict(self._configs or {})
            response = DeltaDiscoveryResponse(type_url=TYPE_URL, nonce=str(nonce))
            response.removed_resources.extend(name for name in known if name not in now)
            changed = [item for name, item in now.items() if known.get(name) != item]
            response.resources.extend(Resource(name=item.name, resource=_packed(item)) for item in changed)
            known = now
            yield response.SerializeToString()

    async def _stream(self, requests: AsyncIterator[bytes], context: Any, kind: Any) -> AsyncIterator[int]:
        """Yield the nonce of each response that is due."""
        self.metadata.append({key: value for key, value in context.invocation_metadata() if isinstance(value, str)})
        due = asyncio.Event()
        self._changed.add(due)
        nonce = 0
        known = False

        async def listen() -> None:
            nonlocal known
            async for data in requests:
                request = kind.FromString(data)
                self.requests.append(request)
                known = known or request.node.id == self._node_id
                first = request.HasField("node")
                refused = request.HasField("error_detail") and request.response_nonce == str(nonce)
                if first or refused:
                    due.set()

        listening = asyncio.ensure_future(listen())
        try:
            while True:
                await due.wait()
                due.clear()
                if known and self._configs is not None:
                    nonce += 1
                    yield nonce
        finally:
            listening.cancel()
            self._changed.discard(due)


def _packed(item: RateLimitConfig) -> AnyMessage:
    return AnyMessage(type_url=TYPE_URL, value=item.SerializeToString())
