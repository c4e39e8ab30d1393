"""Keys in Redis: the names that an operation's packing gives to what its script reads and writes."""

from typing import Final, NamedTuple

LIMIT: Final = b"k:"
"""Begins the names of limit records behind the shard's prefix. No other name of a shard begins so."""

COMPONENT: Final = b"c"
BUCKET_COMPONENT: Final = b"d"
REGION: Final = b"f"
"""Begin the names of fields in a limit record, so that fields of different kinds can't meet."""


class KeySpace(NamedTuple):
    """Keys of one shard, of one region and prefix."""

    prefix: bytes
    """Begins every key of the shard. In a Cluster it has the hash tag that keeps them in one slot."""
    region: bytes
    """The region that the shard belongs to."""

    def limit(self, key: bytes) -> bytes:
        """Redis key of a limit key's record."""
        return self.prefix + LIMIT + key

    def named(self, *names: bytes) -> list[bytes]:
        """Redis keys of what the shard has once, in the order of their names."""
        return [self.prefix + name for name in names]
