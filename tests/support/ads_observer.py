"""A second client of a control plane's ADS stream, which notes when each set of limits was sent."""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from headgate.xds.messages import METHODS, TYPE_URL
from headgate.xds.wire.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from headgate.xds.wire.node_pb2 import Node
from headgate.xds.wire.ratelimit_config_pb2 import RateLimitConfig, RateLimitDescriptor

from tests.support.waiting import wait_until


class AdsObserver:
    """Sees what Headgate sees, with the certificates of a directory."""

    def __init__(self, address: str, certs: Path) -> None:
        files = [(certs / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
        options = [("grpc.ssl_target_name_override", "envoy-gateway")]
        self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(*files), options)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._pushes: list[tuple[float, set[tuple[str, int]]]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "AdsObserver":
        first = DiscoveryRequest(node=Node(id="envoy-ratelimit"), type_url=TYPE_URL)
        self._requests.put(first.SerializeToString())
        self._thread.start()
        wait_until(lambda: bool(self._pushes), "the first push")
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._channel.close()
        self._thread.join()

    def pushed_s(self, route: str, requests: int) -> float:
        """The time (monotonic) of the first push in which a limit of that route is that; 0: none yet."""
        for at_s, limits in list(self._pushes):
            if any(f"/{route}/" in name and limit == requests for name, limit in limits):
                return at_s
        return 0.0

    def _read(self) -> None:
        call: Any = self._channel.stream_stream(METHODS["sotw"])
        with contextlib.suppress(grpc.RpcError):
            for data in call(iter(self._requests.get, None)):
                response = DiscoveryResponse.FromString(data)
                self._pushes.append((time.monotonic(), set(_limits(response))))
                ack = DiscoveryRequest(
                    version_info=response.version_info, response_nonce=response.nonce, type_url=TYPE_URL
                )
                self._requests.put(ack.SerializeToString())


def _limits(response: DiscoveryResponse) -> Iterator[tuple[str, int]]:
    """First key and limit of every rule."""
    for resource in response.resources:
        for descriptor in RateLimitConfig.FromString(resource.value).descriptors:
            for rule in _rules(descriptor):
                yield descriptor.key, rule.rate_limit.requests_per_unit


def _rules(descriptor: RateLimitDescriptor) -> Iterator[RateLimitDescriptor]:
    if descriptor.HasField("rate_limit"):
        yield descriptor
    for child in descriptor.descriptors:
        yield from _rules(child)
