"""A request as envoyproxy/ratelimit tells it back in an answer's dynamic metadata."""

from typing import Any

from google.protobuf import text_format
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest


def told_back(payload: bytes) -> dict[str, Any]:
    """Return `domain`, `descriptors` and, if the request names a cost, `hitsAddend`. The request has been checked."""
    request = RateLimitRequest.FromString(payload)
    told: dict[str, Any] = {"domain": request.domain, "descriptors": [_descriptor(d) for d in request.descriptors]}
    return {**told, "hitsAddend": request.hits_addend} if request.hits_addend else told


def _descriptor(descriptor: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"entries": [f"{entry.key}={entry.value}" for entry in descriptor.entries]}
    if descriptor.HasField("limit"):
        told["limit"] = text_format.MessageToString(descriptor.limit, as_one_line=True)
    if descriptor.HasField("hits_addend"):
        told["hitsAddend"] = descriptor.hits_addend.value
    return told
