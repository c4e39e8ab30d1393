"""Messages between two regions: plain values, the same on every kind of link.

One region sends batches, the other acknowledges each. A batch says what a counter *is*, never what
to add, so it may come late, twice or out of order. (docs/convergence.md, section 9.)
"""

from typing import NamedTuple, Protocol


class LinkError(Exception):
    """A batch was not acknowledged: whether it was taken in is not known. The message says why."""


class Refused(LinkError):
    """The peer will never take it as things are: another region, no right to speak for one, no common version."""


class Entry(NamedTuple):
    """One region's component of one limit key: its total in two cells that follow each other."""

    key: bytes
    window_ms: int
    sequence: int
    """The current cell's; the previous one's is one less."""
    current: int
    previous: int
    reset: int = 0
    """Reset of the key that it belongs to; 0: it was never reset."""
    current_refunded: int = 0
    previous_refunded: int = 0
    """Part of each total that was refunded."""


class Batch(NamedTuple):
    """Message from one region to another: its changes. Also sent empty, as a sign of life."""

    number: int
    """Rises by one per link, from 1 on; the acknowledgement repeats it."""
    time_ms: int
    """The sender's time when it read the entries: that of the shard which they are from."""
    entries: tuple[Entry, ...] = ()
    """The sender's own components, which no other region may state."""
    returned: tuple[Entry, ...] = ()
    """The receiver's own components as the sender's region has them: they come back after a loss."""
    fill_wanted: bytes = b""
    """The sender's region has lost something: the receiver is to send everything, returned components included,
    and to say `filled` with the same bytes when that is done. Empty: nothing is wanted."""
    filled: bytes = b""
    """All that was wanted by the receiver's `fill_wanted` with these bytes has been sent and acknowledged."""
    beat_ms: int = 0
    """The sender's clock. It goes through both origins and comes back as `heard_beat_ms`."""
    heard_beat_ms: int = 0
    """The latest beat of the receiver's region that the sender's origin has."""
    quota: bytes | None = None
    """The sender's message about quotas, packed and not read here. A batch with it has nothing else."""


class Ack(NamedTuple):
    """The receiver has taken a batch in: it is in its origin, or was refused for good."""

    number: int
    refused: int
    """Entries that made no sense and were left out."""
    quota: bytes = b""
    """The mark of the sender's last message about quotas that the receiver's region has taken in and saved, packed."""


class PeerLink(Protocol):
    """The way to one peer. Batches go one at a time: the acknowledgement is the flow control."""

    @property
    def is_renewed(self) -> bool:
        """True if its token or certificate has changed since it last connected: a refusal may not hold any more."""

    async def send(self, batch: Batch, timeout_s: float) -> Ack:
        """Connect if need be, send, wait for the acknowledgement. Raises LinkError."""

    async def close(self) -> None:
        """Close the link; nothing is sent after this."""


class Receiver(Protocol):
    """Consumer of a peer's batches, once the link has established which region it speaks for."""

    async def check(self, region: str) -> None:
        """Raises Forbidden for a region that is not heard here; OriginError while that is not known."""

    async def receive(self, region: str, batch: Batch) -> Ack:
        """Take it in. Raises OriginError when the own region's origin can't be written: then there is no
        acknowledgement, and the peer sends it again later."""
