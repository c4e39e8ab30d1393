"""gRPC health (grpc.health.v1) as state: who is told what, without any I/O.

Two names are known: "" and "ratelimit", and they always agree. Check answers NOT_FOUND
for any other; Watch tells SERVICE_UNKNOWN and stays open, as the protocol asks.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from headgate.errors import BadRequest, NotFound, NotReady

SERVICE = "grpc.health.v1.Health"
CHECK_METHOD = f"/{SERVICE}/Check"
WATCH_METHOD = f"/{SERVICE}/Watch"
SERVICE_NAMES = ("", "ratelimit")
# A proxy or probe holds one stream; this many are a mistake or an attack.
MAX_WATCHERS = 256
# Of one caller, by address: so one alone can't keep all others from watching.
MAX_WATCHERS_EACH = 32

Send = Callable[[bytes], None]
Key = TypeVar("Key", bound=Hashable)


def _encode(status: int) -> bytes:
    return health_pb2.HealthCheckResponse(status=status).SerializeToString()


_SERVING = _encode(health_pb2.HealthCheckResponse.SERVING)
_NOT_SERVING = _encode(health_pb2.HealthCheckResponse.NOT_SERVING)
_SERVICE_UNKNOWN = _encode(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)


def _service_name(payload: bytes) -> str:
    try:
        return health_pb2.HealthCheckRequest.FromString(payload).service
    except DecodeError as error:
        raise BadRequest("malformed HealthCheckRequest") from error


class Health(Generic[Key]):
    """The state that gRPC health shows: not serving until told. Watchers are keyed by whatever identifies their
    stream.
    """

    def __init__(self) -> None:
        self._serving = False
        self._watchers: dict[Key, Send] = {}
        self._callers: dict[Key, str] = {}

    @property
    def watchers(self) -> list[Key]:
        return list(self._watchers)

    def set(self, serving: bool) -> None:
        if serving == self._serving:
            return
        self._serving = serving
        for send in list(self._watchers.values()):
            send(self._status())

    def check(self, payload: bytes) -> bytes:
        service = _service_name(payload)
        if service not in SERVICE_NAMES:
            raise NotFound(f"unknown service {service!r}")
        return self._status()

    def watch(self, key: Key, payload: bytes, send: Send, caller: str) -> None:
        """Send the status now, and again whenever it changes until `unwatch`. `caller` is counted by that name."""
        service = _service_name(payload)
        if len(self._watchers) >= MAX_WATCHERS:
            raise NotReady(f"overloaded: more than {MAX_WATCHERS} Watch streams are open")
        if sum(each == caller for each in self._callers.values()) >= MAX_WATCHERS_EACH:
            raise NotReady(f"overloaded: more than {MAX_WATCHERS_EACH} Watch streams of this caller are open")
        self._callers[key] = caller
        known = service in SERVICE_NAMES
        # Registered even when unknown: an open stream counts, whatever it watches.
        self._watchers[key] = send if known else _ignore
        send(self._status() if known else _SERVICE_UNKNOWN)

    def unwatch(self, key: Key) -> None:
        self._watchers.pop(key, None)
        self._callers.pop(key, None)

    def _status(self) -> bytes:
        return _SERVING if self._serving else _NOT_SERVING


def _ignore(_status: bytes) -> None:
    """Drop changes: a watcher of an unknown service is not told of them."""
