"""Resets in the region's map: how the other nodes of a region hear of one within a second.

Those of another region stand there too, written by who takes them in (origin/told_resets.py).

The reset itself is in the key's record, made by the node that was asked; a node would learn of it with its next call
for the key. But one that denies from memory makes none, so it is told.
"""

import json
from collections.abc import Sequence
from typing import Final

from headgate.keys.naming import KeyNames, NamedKey
from headgate.origin import told_resets
from headgate.origin.region_map import NEW, MapEntry
from headgate.region.node import RegionNode
from headgate.region.region_map import RegionMapReplica

PREFIX: Final = b"r:"
"""Begins the names of resets in the map; the limit key follows."""
TOLD_FOR_MS: Final = 30_000
"""Time for which a reset stands there: every node that lives reads the map once a second."""
MAX_ENTRY_BYTES: Final = 4_096


def entry_of(key: NamedKey, number: int, now_ms: int) -> MapEntry | None:
    """Build the entry of a reset; None for a key that is too long to be told of."""
    value = json.dumps({"domain": key.domain, "entries": key.entries, "number": number}).encode()
    if len(PREFIX) + len(key.key) + len(value) > MAX_ENTRY_BYTES:
        return None
    return MapEntry(PREFIX + key.key, value, now_ms + TOLD_FOR_MS, NEW)


def follow(region_map: RegionMapReplica, names: KeyNames, node: RegionNode) -> None:
    """Act on resets that other nodes made, now and whenever there is one."""

    def changed(entries: Sequence[MapEntry]) -> None:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.value:
                _learn(entry, names, node)
            elif (abroad := told_resets.read(entry)) is not None:
                _learn_from_abroad(*abroad, node)

    region_map.listen(changed)


def _learn_from_abroad(key: bytes, number: int, node: RegionNode) -> None:
    """Another region reset the key: a node that has no counter of it has nothing to forget."""
    counter = node.engine.counters.find(key)
    if counter is not None:
        node.learn_reset(key, counter.limit, number, counter.place)


def _learn(entry: MapEntry, names: KeyNames, node: RegionNode) -> None:
    try:
        fields = json.loads(entry.value)
        entries = tuple([(str(name), str(value)) for name, value in fields["entries"]])
        domain, number = str(fields["domain"]), int(fields["number"])
    except (ValueError, TypeError, KeyError):
        return  # of a version that says it differently: its next call tells
    key = names.find(domain, entries)
    if key is not None and entry.name == PREFIX + key.key:
        node.learn_reset(key.key, key.limit, number, key.shard_key)
