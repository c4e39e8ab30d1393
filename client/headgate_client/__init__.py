"""Ask Headgate, or any other server of Envoy's rate limit service v3, for decisions.

`Headgate` is for threads, `AsyncHeadgate` for asyncio. Middleware is in `headgate_client.middleware`, what
tests need in `headgate_client.testing`, exporters of counters in `headgate_client.metrics`, and the messages themselves
in `headgate_client.wire`.
"""

from headgate_client.aio import AsyncHeadgate
from headgate_client.arguments import OnError
from headgate_client.backoff import Backoff
from headgate_client.channel import Tls
from headgate_client.client import Headgate
from headgate_client.legacy import AsyncClient, Client
from headgate_client.reservations import AsyncReservation, Reservation
from headgate_client.values import (
    Code,
    Decision,
    Descriptor,
    DescriptorStatus,
    Limit,
    RateLimited,
    RateLimitError,
)

__version__ = "0.2.0"

__all__ = [
    "AsyncClient",
    "AsyncHeadgate",
    "AsyncReservation",
    "Backoff",
    "Client",
    "Code",
    "Decision",
    "Descriptor",
    "DescriptorStatus",
    "Headgate",
    "Limit",
    "OnError",
    "RateLimitError",
    "RateLimited",
    "Reservation",
    "Tls",
    "__version__",
]
