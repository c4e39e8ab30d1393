"""The seam between sockets and decisions: bytes in, bytes out.

A transport serves Envoy's `RateLimitService`, gRPC health and reflection on one address, and knows nothing of what the
bytes mean. It calls the handler on the asyncio loop, or, as the native one does, on another thread that holds the
loop's lock (shared_loop.py): one of them at a time, so that what is behind the handler needs no lock of its own.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from headgate.address import parse_address
from headgate.endpoint.socketfile import OWNER_ONLY
from headgate.heirs import mypyc_attr
from headgate.pending import CallerMethod, PendingAnswer
from headgate.telemetry.histogram import HistogramCounts
from headgate.telemetry.traces import Tracing
from headgate.transport.callers import EVERYBODY, Callers

DURATION_BOUNDS_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
"""Bounds of the histogram of decisions: most take well under a millisecond, and none longer than its deadline."""

RATE_LIMIT_SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
RATE_LIMIT_METHOD = f"/{RATE_LIMIT_SERVICE}/ShouldRateLimit"


class Handler(Protocol):
    """Answers serialized RateLimitRequests with serialized RateLimitResponses."""

    def answer(self, payload: bytes, caller: str = "") -> bytes | PendingAnswer:
        """Answer at once where that is possible, else later. Raises, or hands on later, what `errors.status_of` maps to
        a status. On the loop, or on a thread that holds its lock."""


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """Bounds on connections, for callers who are not trusted by their address."""

    max_connections: int = 1_000
    max_connections_per_address: int = 200
    max_new_connections_per_s: float = 20.0
    """New ones, once an address has made as many at once as it may have."""
    max_open_calls: int = 4_000
    """Calls under way on all connections together."""
    handshake_timeout_s: float = 10.0
    """Time from the connection to the first bytes of HTTP/2, TLS included."""
    message_timeout_s: float = 10.0
    """Time from the first byte of a message, a header block or a frame to its last; also for one who does not read."""
    idle_timeout_s: float = 300.0
    """Without a call under way."""
    max_connection_age_s: float = 3_600.0
    max_unfinished_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Bounds on what callers can make a transport hold."""

    max_message_bytes: int = 64 * 1024
    max_pending_calls: int = 10_000
    max_pending_bytes: int = 64 * 1024 * 1024
    max_concurrent_streams: int = 100
    """Per connection: the only bound on what the native transport queues below us."""
    guard: GuardLimits = field(default_factory=GuardLimits)


@dataclass(slots=True)
class GuardStats:
    """Counts of connections, by reasons that the code names; all zero where no guard is."""

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    unfinished_bytes: int = 0
    """Bytes at the last tick."""
    slowed: int = 0
    """Times that a connection took more than its share of the loop, at the last tick."""
    refused_calls: int = 0
    """Calls for which there was no place among all that are open, at the last tick."""

    @property
    def live(self) -> int:
        return self.accepted - self.closed.total()


@dataclass(slots=True)
class TransportStats:
    """Plain counters: incremented where it happens, read by whoever exports them.

    Each counter is written by one thread only, or by whoever holds the loop's lock, so none needs another; what is
    pending is the difference of two that only grow.
    """

    calls: int = 0
    """Calls received, whatever became of them; those of health and reflection are not among them."""
    accepted_calls: int = 0
    """Calls that had to wait, health checks among them. A call that was answered as it was received is in none of these
    four: it has never been pending."""
    accepted_bytes: int = 0
    finished_calls: int = 0
    finished_bytes: int = 0
    refused_too_large: int = 0
    refused_overload: int = 0
    refused_unauthenticated: int = 0
    refused_forbidden: int = 0
    refused_unfinished: int = 0
    """Calls refused by the guard, because too much is unfinished already."""
    dropped_expired: int = 0
    failed_internal: int = 0
    durations: HistogramCounts = field(default_factory=lambda: HistogramCounts(DURATION_BOUNDS_S))
    """Time from receiving calls to their answers. Calls that came together and were answered at once count with the
    time of all of them: so a batch costs one measurement, and a figure is never too low."""
    guard: GuardStats = field(default_factory=GuardStats)

    @property
    def pending_calls(self) -> int:
        return self.accepted_calls - self.finished_calls

    @property
    def pending_bytes(self) -> int:
        return self.accepted_bytes - self.finished_bytes


@dataclass(frozen=True, slots=True)
class Serving:
    """The task of a transport: what it serves, where, to whom, and within which bounds."""

    address: str
    handler: Handler
    limits: TransportLimits
    logger: FilteringBoundLogger
    callers: Callers = EVERYBODY
    reuse_port: bool = False
    socket_mode: int = OWNER_ONLY
    services: Mapping[str, CallerMethod] = field(default_factory=dict)
    """Further unary methods, by path, for the same callers: decided in turns with the handler's."""
    tracing: Tracing | None = None
    """None: nothing is traced, and nobody looks for a caller's trace context."""
    tidy: Callable[[], None] = lambda: None
    """Housekeeping that can't wait for the loop, because it takes longer the more was decided since: called where calls
    are decided off the loop, after each moment of it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport(ABC):
    """A gRPC server on one address, whichever library it is made with."""

    name: str

    def __init__(self, endpoint: Serving, stats: TransportStats | None = None) -> None:
        self.stats = stats or TransportStats()
        self._endpoint = endpoint
        self._address = parse_address(endpoint.address)
        self._cleanup = AsyncExitStack()

    @property
    def address(self) -> str:
        """The address that a client would dial: `host:port` (the real port) or `unix:/path`."""
        return str(self._address)

    @abstractmethod
    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address can't be had."""

    @abstractmethod
    def set_serving(self, serving: bool) -> None:
        """Set what gRPC health answers from now on, Watch streams included. Not serving until told."""

    @abstractmethod
    async def stop(self, timeout_s: float) -> None:
        """Wait, at most `timeout_s`, until nothing is pending, then close without losing an answer.

        What is still pending after that is answered UNAVAILABLE.
        """


TransportFactory = Callable[[Serving], Transport]
"""Makes the service's transport, whichever it is."""
