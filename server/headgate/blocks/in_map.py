"""Blocks in the region's map: how they are written there, and how what stands there comes into force here."""

import hashlib
from collections.abc import Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.errors import BadRequest
from headgate.keys.naming import describe
from headgate.limiter.blocks import Block, BlockedEntry, Blocks
from headgate.origin.region_map import MAX_VALUE_BYTES, NEW, MapEntry
from headgate.region.region_map import RegionMapReplica

PREFIX: Final = b"b:"
"""Begins the names of blocks in the map; a digest of the entry follows, so that a name is short however long it is."""


def name_of(entry: BlockedEntry) -> bytes:
    """Return an entry's name in the map."""
    digest = hashlib.blake2b(digest_size=16)
    for part in entry:
        text = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(text) + text)
    return PREFIX + digest.hexdigest().encode()


def entry_of(block: Block) -> MapEntry:
    """Build the map's entry of a block. Raises BadRequest for one that is too long."""
    value = block.encode()
    if len(value) > MAX_VALUE_BYTES:
        raise BadRequest(
            f"the block takes {len(value)} bytes, at most {MAX_VALUE_BYTES} are stored: shorten `why`, or block a "
            "shorter entry of the descriptor"
        )
    return MapEntry(name_of(block.entry), value, block.expires_ms, NEW)


def removal_of(entry: BlockedEntry) -> MapEntry:
    """Build the map's entry that ends a block."""
    return MapEntry(name_of(entry), b"", 0, NEW)


def follow(region_map: RegionMapReplica, blocks: Blocks, history: FilteringBoundLogger) -> None:
    """Bring what stands in the map into force, now and whenever it changes.

    Each node notes what is in force on itself: its log alone explains its denials, whichever node was asked to block,
    and whether that log is still there.
    """
    named: dict[bytes, BlockedEntry] = {}

    def changed(entries: Sequence[MapEntry]) -> None:
        ours = [entry for entry in entries if entry.name.startswith(PREFIX)]
        made = {entry.name: block for entry in ours if (block := _read(entry)) is not None}
        gone = [named.pop(entry.name) for entry in ours if entry.name not in made and entry.name in named]
        named.update({name: block.entry for name, block in made.items()})
        for block in made.values():
            if blocks.get(block.entry) != block:
                history.debug(
                    "block_in_force",
                    key=_key(block.entry),
                    until_ms=block.expires_ms,
                    made_ms=block.made_ms,
                    who=block.who,
                    why=block.why,
                )
        for entry in gone:
            history.debug("block_ended", key=_key(entry))
        blocks.change(made.values(), gone)

    region_map.listen(changed)


def _key(entry: BlockedEntry) -> str:
    return describe(entry.domain, ((entry.key, entry.value),))


def _read(entry: MapEntry) -> Block | None:
    """None for one that was removed, or that this version can't read: then the rules decide."""
    if not entry.value:
        return None
    try:
        return Block.decode(entry.value, entry.expires_ms)
    except ValueError:
        return None
