"""Making up the difference between an estimate and what it came to: what settling is, wherever a claim is kept."""

from typing import Protocol

from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

from headgate.errors import BadRequest
from headgate.limiter.decision import Charge
from headgate.pending import PendingAnswer
from headgate.reservations.ids import MAX_REQUEST_BYTES
from headgate.reservations.returning import still_charged


class Charging(Protocol):
    """The handler, which decides serialized RateLimitRequests."""

    def charges(self, payload: bytes) -> tuple[Charge, ...]:
        """Return what a request would be charged on; nothing, where nothing limits it."""

    def reserve(self, payload: bytes, caller: str = "") -> bytes | PendingAnswer:
        """Decide an estimate of that caller; it is charged if it fits."""

    def charge_late(self, payload: bytes) -> None:
        """Charge in any case."""

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        """Undo costs that were charged, as far as they still count."""


def checked_request(request: RateLimitRequest) -> bytes:
    """Return the request whose estimate is charged, serialized. Raises BadRequest."""
    if not request.hits_addend:
        raise BadRequest("request.hits_addend: the estimate, at least 1")
    for index, descriptor in enumerate(request.descriptors):
        if descriptor.HasField("hits_addend"):
            raise BadRequest(
                f"request.descriptors[{index}].hits_addend: there is one estimate for all, request.hits_addend"
            )
        if descriptor.is_negative_hits:
            raise BadRequest(f"request.descriptors[{index}].is_negative_hits: what is reserved is not given back")
    payload = request.SerializeToString()
    if len(payload) > MAX_REQUEST_BYTES:
        raise BadRequest(f"request: {len(payload)} bytes, at most {MAX_REQUEST_BYTES} can be reserved for")
    return payload


def make_up(charging: Charging, request: bytes, actual: int, *, charged_ms: int, now_ms: int) -> None:
    """Charge what it came to beyond the estimate of `request`, or give back what still counts of the rest."""
    message = RateLimitRequest.FromString(request)
    estimate = message.hits_addend
    if actual > estimate:
        message.hits_addend = actual - estimate
        charging.charge_late(message.SerializeToString())
    elif actual < estimate:
        charges, unused = charging.charges(request), estimate - actual
        charging.uncharge(
            still_charged(charges, estimate=estimate, unused=unused, charged_ms=charged_ms, now_ms=now_ms)
        )
