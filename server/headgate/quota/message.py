"""Messages of regions about quota keys, as plain values. Regions are numbers, in the order of their names."""

from hashlib import blake2b
from typing import NamedTuple

from headgate.quota.membership import Mark


class QuotaEntry(NamedTuple):
    """One limit key: what the sender needs of it, and all gifts that it knows of, its own and others'."""

    key: bytes
    window_ms: int
    need: int
    """The sender's, as a share; 0 when it is not published."""
    over: int
    """Share that the sender uses above its slice: it had taken it from a lost region."""
    rows: tuple[tuple[int, int, int, int], ...]
    """(epoch, giver, receiver, total)"""


class QuotaMessage(NamedTuple):
    """One message of one region to another. Sent every second, also without entries, as a sign of life."""

    tag: bytes
    """Name of the set of regions: numbers of regions mean something within one set only."""
    mark: Mark
    """Name of this message; the acknowledgement repeats its number."""
    echo: Mark
    """The newest message of the receiver that the sender has heard."""
    stores: tuple[int, ...]
    """Store that the sender last heard from, by region, its own included. After a loss the number is higher."""
    filled: bool
    """The sender knows all gifts that were ever told. False after a loss, until all others have answered."""
    answers: int
    """The receiver's store that is told everything, by this message at the latest if it is `whole`."""
    whole: bool
    """Nothing that the receiver has not acknowledged is left out."""
    changed_ago_ms: int
    """Time since the sender was filled after a change of the set of regions; 0: not yet; -1: no change is known."""
    silent_ms: tuple[tuple[int, int], ...]
    """(region, for how long): whom the sender has not heard for 30 s and more."""
    entries: tuple[QuotaEntry, ...]


def set_tag(regions: tuple[str, ...]) -> bytes:
    """Hash the names of a set of regions, in whatever order they come."""
    text = b"".join(b"%d:%s" % (len(name.encode()), name.encode()) for name in sorted(regions))
    return blake2b(text, digest_size=8).digest()
