"""Recovery after a loss: a region asks its peers for everything, and knows when it has it.

Each shard's memory has a name, drawn when it began, and its server has an epoch. The digest of both is the mark that a
shard carries per peer once that peer has sent everything. A shard without the right mark may lack something: then the
peers are asked, with the marks that will be right. So nothing but the shards themselves has to remember which peer was
asked for what.

Something else may be missing without a loss: what a peer said of keys that the rules here did not share yet. Then the
shards' marks are replaced by marks that say so (`again`), and everything is asked for once more, under another name.
What this region itself had counted is not missing then, and is not taken back.

A fill that a change of the teller's list of shards cuts into is told again from the beginning: a key that moves would
be told from where it comes without what the asker lacks. So a walk is named by the list too.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from headgate.origin.placement import Placement

MARK_BYTES: Final = 8
UNKNOWN: Final = bytes(MARK_BYTES)
"""Mark of a shard that has not answered: there is nothing to mark yet."""
AGAIN: Final = b"again:"
"""Begins a mark that asks for everything once more; what follows is drawn."""
MAX_FILL_BYTES: Final = 8 * 1024
"""Most bytes that ask for a fill: the marks of 1,000 shards. A region keeps its peer's, on each of its own shards."""


def mark_of(generation: bytes, epoch: bytes) -> bytes:
    """Mark for a shard with this memory."""
    return blake2b(len(generation).to_bytes(4, "big") + generation + epoch, digest_size=MARK_BYTES).digest()


def again(drawn: bytes) -> bytes:
    """Mark for a shard whose memory is whole, and that is to be told everything once more."""
    return AGAIN + drawn


def is_lost(mark: bytes, right: bytes) -> bool:
    """Say if a shard with this mark, and that memory, may have lost what it once had."""
    return mark != right and not mark.startswith(AGAIN)


def join_fill(marks: Iterable[bytes], present: Iterable[bytes] = ()) -> bytes:
    """All shards' marks, as they are asked for and confirmed; with those that they have now, as far as they say again.

    Whoever of the region asks says the same, in whatever order it knows the shards, and no two fills have one name.
    """
    repeated = b"".join(sorted(mark for mark in present if mark.startswith(AGAIN)))
    return b"".join(sorted(marks)) + (blake2b(repeated, digest_size=MARK_BYTES).digest() if repeated else b"")


def marks_in(fill: bytes) -> frozenset[bytes]:
    """Return the marks in it. A digest of what says again is among them, and is no shard's mark."""
    return frozenset(fill[at : at + MARK_BYTES] for at in range(0, len(fill), MARK_BYTES)) - {UNKNOWN}


def walk_of(wanted: bytes, placement: Placement) -> bytes:
    """Name of the walk by which a peer that asked for a fill is told everything, while this list is in force."""
    return wanted + _list_of(placement)


def wanted_of(walk: bytes, placement: Placement) -> bytes:
    """Return what the peer asked for with a walk, if that was begun by this list and no key has moved since; else
    nothing.
    """
    suffix = _list_of(placement)
    return b"" if placement.before or not walk.endswith(suffix) else walk[: len(walk) - len(suffix)]


def _list_of(placement: Placement) -> bytes:
    """Nothing for a region's first list: as versions have it that know of none."""
    if placement.number <= 1:
        return b""
    return b"@%d" % placement.number + (b"+" if placement.before else b"")
