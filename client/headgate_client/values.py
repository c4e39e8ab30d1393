"""What goes into a call and what comes out of it, as plain values, and the way to the wire and back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2

Entries = Mapping[str, str] | Sequence[tuple[str, str]]


class Code(StrEnum):
    """Whether a request, or one of its descriptors, is within its limit; UNKNOWN for a code of a newer server."""

    UNKNOWN = "UNKNOWN"
    OK = "OK"
    OVER_LIMIT = "OVER_LIMIT"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One thing to limit: its entries in order and, where it differs from the call's, its cost."""

    entries: Entries
    hits: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that applied to a descriptor."""

    requests_per_unit: int
    unit: str
    name: str


@dataclass(frozen=True, slots=True)
class DescriptorStatus:
    """The outcome for one descriptor of the request, in the request's order."""

    code: Code
    limit: Limit | None
    """None when no limit applies."""
    remaining: int
    reset_ms: int | None
    """Until the limit resets; on a denial, until the same call would be admitted."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The server's answer to one request."""

    code: Code
    statuses: tuple[DescriptorStatus, ...]
    headers: tuple[tuple[str, str], ...]
    """To be added to the answer of whoever was limited."""

    @property
    def admitted(self) -> bool:
        return self.code is not Code.OVER_LIMIT


class RateLimitError(Exception):
    """No decision: the server could not be reached, or refused the request."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        """The name of the gRPC status, e.g. `UNAVAILABLE`."""
        self.message = message


def encode_request(domain: str, descriptors: Iterable[Descriptor | Entries], hits: int) -> rls_pb2.RateLimitRequest:
    """The message to send. Raises ValueError for a cost that the wire can't hold."""
    request = rls_pb2.RateLimitRequest(domain=domain, hits_addend=hits)
    for given in descriptors:
        descriptor = given if isinstance(given, Descriptor) else Descriptor(given)
        message = request.descriptors.add()
        for key, value in _pairs(descriptor.entries):
            message.entries.add(key=key, value=value)
        if descriptor.hits is not None:
            message.hits_addend.value = descriptor.hits
    return request


def _pairs(entries: Entries) -> Iterable[tuple[str, str]]:
    return entries.items() if isinstance(entries, Mapping) else entries


def decode_response(response: rls_pb2.RateLimitResponse) -> Decision:
    """The decision that a server's message holds."""
    return Decision(
        code=_code(response.overall_code),
        statuses=tuple(_status(status) for status in response.statuses),
        headers=tuple((header.key, header.value) for header in response.response_headers_to_add),
    )


def _code(number: int) -> Code:
    try:
        return Code(rls_pb2.RateLimitResponse.Code.Name(number))
    except ValueError:
        return Code.UNKNOWN


def _status(status: rls_pb2.RateLimitResponse.DescriptorStatus) -> DescriptorStatus:
    return DescriptorStatus(
        code=_code(status.code),
        limit=_limit(status.current_limit) if status.HasField("current_limit") else None,
        remaining=status.limit_remaining,
        reset_ms=status.duration_until_reset.ToMilliseconds() if status.HasField("duration_until_reset") else None,
    )


def _limit(limit: rls_pb2.RateLimitResponse.RateLimit) -> Limit:
    try:
        unit = rls_pb2.RateLimitResponse.RateLimit.Unit.Name(limit.unit)
    except ValueError:
        unit = str(limit.unit)
    return Limit(limit.requests_per_unit, unit, limit.name)
