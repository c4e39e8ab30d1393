"""The seam for a feature that speaks to its counterparts in other regions through the exchange: quotas.

The exchange carries what it says, and does not read it.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from headgate.exchange.messages import Ack


class Teller(Protocol):
    """The way to one peer."""

    async def tell(self, said: bytes) -> Ack:
        """Send what the feature has to say; raises LinkError."""


class ExchangeExtension(Protocol):
    """A feature of one region, in one process of it. Runs beside the exchange, from its start to its stop."""

    async def run(self) -> None:
        """Work until cancelled."""

    async def receive(self, peer: str, said: bytes) -> bytes:
        """Take in what a peer says; return what the acknowledgement carries. Raises OriginError."""

    async def follow_peers(self) -> None:
        """Take in that the ways to peers, given at the beginning, are others now."""

    def between_ticks(self, timeout_s: float) -> AbstractAsyncContextManager[None]:
        """Hold back calls that would take the feature's lease again, from `timeout_s` at the latest."""

    async def stop(self) -> None:
        """Give up what is under way."""

    async def release(self, timeout_s: float) -> None:
        """Release the feature's lease: another process need not wait for its end. Raises OriginError."""

    def describe(self) -> Mapping[str, Any]:
        """Describe the feature for people."""
