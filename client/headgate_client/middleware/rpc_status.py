"""How a gRPC answer says when to come back: `google.rpc.RetryInfo` in the status's details, and plain metadata.

The messages are defined here, in a pool of their own: this package depends on grpcio and protobuf alone, and must not
meet anybody's copy of the official ones.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.message import DecodeError

from headgate_client.clock import SYSTEM_CLOCK
from headgate_client.middleware.http import limit_headers
from headgate_client.spread import stretched_s
from headgate_client.values import Decision

DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_AFTER_KEY: Final = "retry-after"
PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"
"""What gRPC's own retry policies obey: milliseconds, or a negative number, not to repeat the call at all."""
LONGEST_PUSHBACK_S: Final = 30.0
"""A policy waits as long as it is told, and its caller with it. Who would wait for longer is told to give up."""
UNKNOWN_S: Final = 1.0
"""For a denial of which nobody knows when it ends, because the server was away: 0 would mean at once."""
RETRY_INFO_URL: Final = "type.googleapis.com/google.rpc.RetryInfo"
RESOURCE_EXHAUSTED: Final = 8
MESSAGE: Final = "over the rate limit"

_Field = descriptor_pb2.FieldDescriptorProto


def _messages() -> tuple[Any, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="rpc.proto", package="headgate.rpc", syntax="proto3")
    file.dependency.extend([any_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    status = file.message_type.add(name="Status")
    status.field.add(name="code", number=1, type=_Field.TYPE_INT32, label=_Field.LABEL_OPTIONAL)
    status.field.add(name="message", number=2, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    details = status.field.add(name="details", number=3, type=_Field.TYPE_MESSAGE, label=_Field.LABEL_REPEATED)
    details.type_name = ".google.protobuf.Any"
    info = file.message_type.add(name="RetryInfo")
    delay = info.field.add(name="retry_delay", number=1, type=_Field.TYPE_MESSAGE, label=_Field.LABEL_OPTIONAL)
    delay.type_name = ".google.protobuf.Duration"
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"headgate.rpc.{name}") for name in ("Status", "RetryInfo"))
    return tuple(message_factory.GetMessageClass(one) for one in found)  # type: ignore[return-value]


_Status, _RetryInfo = _messages()


def denial_metadata(
    decision: Decision, random: Callable[[], float] = SYSTEM_CLOCK.random
) -> list[tuple[str, str | bytes]]:
    """The trailing metadata of a denial. All times in it are stretched alike."""
    uniform = random()
    wait_s = stretched_s(decision.retry_after, uniform) or UNKNOWN_S
    wait_ms = math.ceil(wait_s * 1000)
    info = _RetryInfo()
    info.retry_delay.FromMilliseconds(wait_ms)
    status = _Status(code=RESOURCE_EXHAUSTED, message=MESSAGE)
    status.details.add(type_url=RETRY_INFO_URL, value=info.SerializeToString())
    return [
        *[(name.lower(), value) for name, value in limit_headers(decision, lambda: uniform)],
        (PUSHBACK_KEY, str(wait_ms if wait_s <= LONGEST_PUSHBACK_S else -1)),
        (DETAILS_KEY, status.SerializeToString()),
    ]


def retry_delay_s(metadata: Iterable[tuple[str, str | bytes]] | None) -> float | None:
    """What a status's metadata says; None when it says nothing that can be understood."""
    said = {str(key).lower(): value for key, value in metadata or ()}
    details = said.get(DETAILS_KEY)
    if isinstance(details, bytes):
        delay_s = _from_details(details)
        if delay_s is not None:
            return delay_s
    for key, unit_s in ((PUSHBACK_KEY, 0.001), (RETRY_AFTER_KEY, 1.0)):
        try:
            delay_s = float(said[key]) * unit_s
        except (KeyError, ValueError):
            continue
        if 0 <= delay_s < math.inf:
            return delay_s
    return None


def _from_details(details: bytes) -> float | None:
    try:
        for detail in _Status.FromString(details).details:
            if detail.type_url.endswith("/google.rpc.RetryInfo"):
                info = _RetryInfo.FromString(detail.value)
                return max(0.0, float(info.retry_delay.ToMilliseconds()) / 1000)
    except DecodeError:
        return None
    return None
