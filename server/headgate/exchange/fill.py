"""Recovery after a loss: a region asks its peers for everything, and knows when it has it.

Each shard's memory has a name, drawn when it began, and its server has an epoch. The digest of both is the mark that a
shard carries per peer once that peer has sent everything. A shard without the right mark may lack something: then the
peers are asked, with the marks that will be right. So nothing but the shards themselves has to remember which peer was
asked for what.

Something else may be missing without a loss: what a peer said of keys that the rules here did not share yet. Then the
shards' marks are replaced by marks that say so (`again`), and everything is asked for once more, under another name.
What this region itself had counted is not missing then, and is not taken back.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

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

    Whoever of the region asks says the same, and no two fills have one name.
    """
    repeated = b"".join(mark for mark in present if mark.startswith(AGAIN))
    return b"".join(marks) + (blake2b(repeated, digest_size=MARK_BYTES).digest() if repeated else b"")


def split_fill(fill: bytes, shards: int) -> Sequence[bytes]:
    """Marks by shard; none where the words are of another number of shards, or of a shard that was unknown."""
    if len(fill) not in (MARK_BYTES * shards, MARK_BYTES * (shards + 1)):
        return [b""] * shards
    marks = [fill[at : at + MARK_BYTES] for at in range(0, MARK_BYTES * shards, MARK_BYTES)]
    return [b"" if mark == UNKNOWN else mark for mark in marks]
