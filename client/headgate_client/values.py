"""What goes into a call and what comes out of it, as plain values, and the way to the wire and back."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from google.protobuf.duration_pb2 import Duration

from headgate_client.unmet import Unmet, nothing_applied, unmet_of
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
    limit: str | None = None
    """A limit of its own, such as `5/minute`: what becomes of it is up to the server (`request_limits`)."""


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
    unmet: Unmet | None = None
    """Why no limit applies, where none does and the server says it."""

    @property
    def allowed(self) -> bool:
        return self.code is not Code.OVER_LIMIT

    @property
    def reset_after(self) -> float | None:
        """`reset_ms` in seconds."""
        return None if self.reset_ms is None else self.reset_ms / 1000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a call is within its limits. True in an `if` when it is.

    `limit`, `remaining` and `reset_after` are those of the descriptor that is nearest to its limit; all of
    them are in `statuses`.
    """

    code: Code
    statuses: tuple[DescriptorStatus, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    """To be added to the answer of whoever was limited, where the server is set up to send them."""
    error: "RateLimitError | None" = None
    """Why the server did not decide, if it didn't."""
    rule: str = ""
    """The id of the rule that mattered most; this and the next two are empty unless the server is set to say why
    (`reason_metadata` or `reason_header`)."""
    path: str = ""
    """Which way the server decided, e.g. `local`, `deny_cache`, `degraded_open`."""
    id: str = ""
    """The decision's id in the server's decision log: what `headgate explain --id` finds."""

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def allowed(self) -> bool:
        return self.code is not Code.OVER_LIMIT

    @property
    def degraded(self) -> bool:
        """The server did not decide: `on_error` did, and `error` says why."""
        return self.error is not None

    @property
    def no_rule(self) -> bool:
        """No rule applied to any descriptor, so nothing limits such calls; False where the server does not say it."""
        return nothing_applied([status.unmet for status in self.statuses])

    @property
    def limit(self) -> int | None:
        """How many a window has; None when no limit applies, or none is known."""
        nearest = self.nearest
        return None if nearest is None or nearest.limit is None else nearest.limit.requests_per_unit

    @property
    def remaining(self) -> int | None:
        """What is left after this call; None when no limit applies, or none is known."""
        nearest = self.nearest
        return None if nearest is None else nearest.remaining

    @property
    def retry_after(self) -> float:
        """Seconds after which the same call would be admitted, as the server tells them: up to a fifth more than
        needed, so that callers come back apart; 0 when it was admitted, or when nobody knows."""
        return max((s.reset_ms or 0 for s in self.statuses if not s.allowed), default=0) / 1000

    @property
    def reset_after(self) -> float | None:
        """Seconds until the limit resets, as the server tells them; None when no limit applies, or none is known."""
        nearest = self.nearest
        return None if nearest is None else nearest.reset_after

    @property
    def admitted(self) -> bool:
        """The former name of `allowed`."""
        return self.allowed

    @property
    def nearest(self) -> DescriptorStatus | None:
        """The status that matters most: the one that denies longest, or else the one with the least left."""
        limited = [status for status in self.statuses if status.limit is not None]
        return min(limited, key=lambda s: (s.allowed, s.remaining, -(s.reset_ms or 0)), default=None)


class RateLimited(Exception):
    """Over the limit: what `limit(…)` raises instead of doing the work."""

    def __init__(self, decision: Decision) -> None:
        when = f": try again in {decision.retry_after:.3f} s" if decision.retry_after else ""
        why = f" ({decision.error})" if decision.error is not None else ""
        super().__init__(f"over the limit{why}{when}")
        self.decision = decision

    @property
    def retry_after(self) -> float:
        return self.decision.retry_after

    def __reduce__(self) -> tuple[type["RateLimited"], tuple[Decision]]:
        # Task queues and process pools send exceptions on.
        return type(self), (self.decision,)


class RateLimitError(Exception):
    """No decision: the server could not be reached, was too slow, or refused the request."""

    def __init__(self, status: str, message: str, hint: str = "") -> None:
        super().__init__(f"{status}: {message} ({hint})" if hint else f"{status}: {message}")
        self.status = status
        """The name of the gRPC status, e.g. `UNAVAILABLE`; or `BREAKER_OPEN`, `CLOSED` or `KEY_FAILED`, when nobody was
        asked."""
        self.message = message
        self.hint = hint
        """What may be wrong, where the message says too little: with TLS, gRPC's own words name no mistake."""

    def __reduce__(self) -> tuple[type["RateLimitError"], tuple[str, str, str]]:
        return type(self), (self.status, self.message, self.hint)


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


_REASON_METADATA: Final = "headgate"
_REASON_HEADER: Final = re.compile(r"domain=\S* (?:\w+=\S* )*path=\S*(?: id=\S+)?")


def _reason(response: rls_pb2.RateLimitResponse) -> Mapping[str, str]:
    """What the server says of why, in its metadata or in a header."""
    if response.HasField("dynamic_metadata") and _REASON_METADATA in response.dynamic_metadata.fields:
        said = response.dynamic_metadata.fields[_REASON_METADATA].struct_value.fields
        return {name: value.string_value for name, value in said.items()}
    for header in response.response_headers_to_add:
        if _REASON_HEADER.fullmatch(header.value):
            return dict(word.partition("=")[::2] for word in header.value.split(" "))
    return {}


def decode_response(response: rls_pb2.RateLimitResponse) -> Decision:
    """The decision that a server's message holds."""
    reason = _reason(response)
    return Decision(
        code=_code(response.overall_code),
        statuses=tuple(_status(status) for status in response.statuses),
        headers=tuple((header.key, header.value) for header in response.response_headers_to_add),
        rule=reason.get("rule", ""),
        path=reason.get("path", ""),
        id=reason.get("id", ""),
    )


_CODES: Final = {number: Code(name) for name, number in rls_pb2.RateLimitResponse.Code.items()}
_UNITS: Final = {number: name for name, number in rls_pb2.RateLimitResponse.RateLimit.Unit.items()}


def _code(number: int) -> Code:
    return _CODES.get(number, Code.UNKNOWN)


def _status(status: rls_pb2.RateLimitResponse.DescriptorStatus) -> DescriptorStatus:
    return DescriptorStatus(
        code=_code(status.code),
        limit=_limit(status.current_limit) if status.HasField("current_limit") else None,
        remaining=status.limit_remaining,
        reset_ms=_ms(status.duration_until_reset) if status.HasField("duration_until_reset") else None,
        unmet=unmet_of(status),
    )


def _ms(duration: Duration) -> int:
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def _limit(limit: rls_pb2.RateLimitResponse.RateLimit) -> Limit:
    return Limit(limit.requests_per_unit, _UNITS.get(limit.unit, str(limit.unit)), limit.name)
