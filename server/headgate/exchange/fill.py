"""Recovery after a loss: a region asks its peers for everything, and knows when it has it.

Each shard's memory has a name, drawn when it began, and its server has an epoch. The digest of both is the mark that a
shard carries per peer once that peer has sent everything. A shard without the right mark may lack something: then the
peers are asked, with the marks that will be right. So nothing but the shards themselves has to remember which peer was
asked for what.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

MARK_BYTES: Final = 8
UNKNOWN: Final = bytes(MARK_BYTES)
"""Mark of a shard that has not answered: there is nothing to mark yet."""


def mark_of(generation: bytes, epoch: bytes) -> bytes:
    """Mark for a shard with this memory."""
    return blake2b(len(generation).to_bytes(4, "big") + generation + epoch, digest_size=MARK_BYTES).digest()


def join_fill(marks: Iterable[bytes]) -> bytes:
    """All shards' marks, as they are asked for and confirmed."""
    return b"".join(marks)


def split_fill(fill: bytes, shards: int) -> Sequence[bytes]:
    """Marks by shard; none where the words are of another number of shards, or of a shard that was unknown."""
    if len(fill) != MARK_BYTES * shards:
        return [b""] * shards
    marks = [fill[at : at + MARK_BYTES] for at in range(0, len(fill), MARK_BYTES)]
    return [b"" if mark == UNKNOWN else mark for mark in marks]
