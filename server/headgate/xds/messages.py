"""Bytes of a stream from and to what the machine speaks: requests, and responses with source text.

Text of a resource that came before is not made again: with `sotw`, servers send everything with every change.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from headgate.errors import BadRequest
from headgate.xds.stream import Protocol, XdsRequest, XdsResponse
from headgate.xds.text import config_text, shown_name
from headgate.xds.wire.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)
from headgate.xds.wire.node_pb2 import Node
from headgate.xds.wire.ratelimit_config_pb2 import RateLimitConfig
from headgate.xds.wire.status_pb2 import Status

TYPE_URL: Final = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
_SERVICE: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService"
METHODS: Final[Mapping[Protocol, str]] = {
    "sotw": f"{_SERVICE}/StreamAggregatedResources",
    "delta": f"{_SERVICE}/DeltaAggregatedResources",
}
_INVALID_ARGUMENT: Final = 3


class Messages:
    """Reads and writes the messages of one protocol."""

    def __init__(self, protocol: Protocol, node_id: str, metadata: Mapping[str, str]) -> None:
        self._delta = protocol == "delta"
        self._node = Node(id=node_id)
        self._node.metadata.update(metadata)
        self._texts: dict[bytes, tuple[str, bytes]] = {}

    def encode(self, request: XdsRequest) -> bytes:
        """Bytes of a request. Only the first one of a stream names the node, and asks for everything."""
        node = self._node if request.first else None
        reason = Status(code=_INVALID_ARGUMENT, message=request.reason) if request.reason else None
        if self._delta:
            return DeltaDiscoveryRequest(
                node=node, type_url=TYPE_URL, response_nonce=request.nonce, error_detail=reason
            ).SerializeToString()
        return DiscoveryRequest(
            version_info=request.version,
            node=node,
            type_url=TYPE_URL,
            response_nonce=request.nonce,
            error_detail=reason,
        ).SerializeToString()

    def decode(self, data: bytes) -> XdsResponse | None:
        """XdsResponse with its resources as text; None for another type. Raises BadRequest for what is no response."""
        try:
            message = DeltaDiscoveryResponse.FromString(data) if self._delta else DiscoveryResponse.FromString(data)
        except DecodeError as error:
            raise BadRequest(f"a response that can't be read: {error}") from None
        if message.type_url not in ("", TYPE_URL):
            return None
        if isinstance(message, DeltaDiscoveryResponse):
            sent = [(item.name, item.resource) for item in message.resources]
            found, problems = self._read(sent)
            return XdsResponse(message.nonce, found, removed=tuple(message.removed_resources), problems=problems)
        found, problems = self._read(("", item) for item in message.resources)
        return XdsResponse(message.nonce, found, version=message.version_info, problems=problems)

    def _read(self, sent: Iterable[tuple[str, AnyMessage]]) -> tuple[dict[str, bytes], list[str]]:
        found: dict[str, bytes] = {}
        problems: list[str] = []
        texts: dict[bytes, tuple[str, bytes]] = {}
        for given, item in sent:
            try:
                own, text = texts[item.value] = self._texts.get(item.value) or _text(item)
            except BadRequest as error:
                problems.append(f"xds/{shown_name(given)}: {error}")
                continue
            name = given or own
            # The same name twice: one wins, and always the same.
            found[name] = max(text, found.get(name, b""))
        if not self._delta:  # there only what changed is sent
            self._texts = texts
        return found, problems


def _text(item: AnyMessage) -> tuple[str, bytes]:
    """Name and source text of one resource."""
    if item.type_url != TYPE_URL:
        raise BadRequest(f"a resource of type {item.type_url!r}, expected {TYPE_URL!r}")
    try:
        config = RateLimitConfig.FromString(item.value)
    except DecodeError as error:
        raise BadRequest(f"a resource that can't be read: {error}") from None
    return config.name or config.domain, config_text(config)
