"""Ask Headgate, or any other server of Envoy's rate limit service v3, for decisions.

`Client` is for threads, `AsyncClient` for asyncio. The messages themselves are in
`headgate_client.wire`.
"""

from headgate_client.aio import AsyncClient
from headgate_client.channel import Tls
from headgate_client.client import Client
from headgate_client.values import Code, Decision, Descriptor, DescriptorStatus, Limit, RateLimitError

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Code",
    "Decision",
    "Descriptor",
    "DescriptorStatus",
    "Limit",
    "RateLimitError",
    "Tls",
    "__version__",
]
