"""The owner of a limit key among the shards: highest random weight, the same on every node and in every version.

Each shard's weight for a key is a hash of the shard's configured name and the key; the
heaviest owns it. So a shard that is added takes its share from all others and nothing
else moves, and a shard that is removed leaves the others' keys where they are.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

WEIGHT_BYTES: Final = 8
"""64 bits: ties between shards do not happen, and would be broken by the order of names."""


def hash_of(data: bytes) -> int:
    """A stable hash of 64 bits; Python's own differs from process to process."""
    return int.from_bytes(blake2b(data, digest_size=WEIGHT_BYTES).digest(), "big")


def list_name(names: Sequence[str]) -> bytes:
    """Return a name for a list of shards: the same whatever their order, as that moves no key, but for the first one,
    which keeps what is not placed by a key.
    """
    listed = b"".join([b"%d:%s" % (len(name.encode()), name.encode()) for name in (names[0], *sorted(names))])
    return b"%016x" % hash_of(listed)


class Rendezvous:
    """Assigns limit keys to shards by the shards' names."""

    def __init__(self, names: Sequence[str]) -> None:
        # Length first, so that no two (name, key) pairs hash the same bytes.
        self._seeds = [
            blake2b(b"%d:%s" % (len(name.encode()), name.encode()), digest_size=WEIGHT_BYTES) for name in names
        ]
        self._order = sorted(range(len(names)), key=lambda index: names[index])

    def owner(self, key: bytes) -> int:
        """The position of the shard that owns `key`."""
        if len(self._order) == 1:
            return 0
        return max(self._order, key=lambda index: self._weight(index, key))

    def _weight(self, index: int, key: bytes) -> bytes:
        seed = self._seeds[index].copy()
        seed.update(key)
        return seed.digest()
