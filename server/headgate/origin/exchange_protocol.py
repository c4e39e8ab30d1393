"""Values that a region's exchangers and its shards say to each other: plain tuples, the same for every origin."""

from enum import IntEnum
from typing import NamedTuple


class ForeignCount(NamedTuple):
    """A region's component of one cell, as the exchanger received it: another one's, or this one's that comes back."""

    key: bytes
    window_ms: int
    sequence: int
    region: bytes
    total: int
    name: bytes = b""
    """Name of the key between regions: the own component is published from now on. Empty: it is not."""
    reset: int = 0
    """Number of the key's reset to which it belongs: a later one than is known empties the record, an earlier one
    is ignored."""
    refunded: int = 0
    """Refunded part of the total. Nothing of the own region's: refunds come back from the nodes alone."""


class Priority(IntEnum):
    """Changes to be published, by how often exchangers look for them."""

    NORMAL = 0
    URGENT = 1


class Changes(NamedTuple):
    """Changes of one shard and priority that one peer has not acknowledged yet, the oldest first."""

    time_ms: int
    epoch: bytes
    leased: bool
    """False: another exchanger of this region serves the peer at present, and is told the names. The rest is so."""
    since: int
    """Change up to which the peer has acknowledged all."""
    until: int
    """The change of the last name here: what to acknowledge."""
    latest: int
    """The newest change of all."""
    names: tuple[bytes, ...]
    generation: bytes
    """Drawn when the shard's memory began: another one means that it was lost."""
    mark: bytes
    """Mark that MarkFilled wrote last for this peer."""
    walk: bytes
    """Walk that the peer asked for last (BeginWalk)."""
    walk_until: int
    """Names up to this change go with the peer's own components; the walk is over when they are acknowledged."""
    beat_ms: int
    """The latest beat of the peer's region."""


class Published(NamedTuple):
    """A published key's components, as the shard has them. Cells are named by `sequence`: nothing is rolled over."""

    sequence: int
    current: int
    previous: int
    """This region's own; all 0 when the key has none."""
    peer_sequence: int
    peer_current: int
    peer_previous: int
    """The peer's; all 0 when none is known."""
    reset: int = 0
    """Number of the key's reset to which all of these belong; 0: it was never reset."""
    current_refunded: int = 0
    previous_refunded: int = 0
    """Refunded part of this region's own."""


class NewKeys(NamedTuple):
    """Room on one shard for records of keys that it does not know, for what one peer says."""

    peer: bytes
    most_bytes: int
    """Bytes by estimate, at once, and again over each day."""


class Stamp(NamedTuple):
    """A sign of life of another region, kept beside its counts."""

    region: bytes
    beat_ms: int
