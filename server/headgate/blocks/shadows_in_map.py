"""Shadows in the region's map: how they are written there, and how what stands there comes into force here."""

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from headgate.errors import BadRequest
from headgate.limiter.rule_name import Steps
from headgate.limiter.shadows import Shadow, Shadows
from headgate.origin.region_map import MAX_VALUE_BYTES, NEW, MapEntry
from headgate.region.region_map import RegionMapReplica

PREFIX: Final = b"s:"
"""Begins the names of shadows in the map; a digest of domain and path follows."""
_SOURCE: Final = "region"


def name_of(domain: str, path: Steps) -> bytes:
    """Return the name of a shadow in the map."""
    text = json.dumps([domain, path]).encode()
    return PREFIX + hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def entry_of(domain: str, shadow: Shadow, who: str, why: str) -> MapEntry:
    """Build the map's entry of a shadow. Raises BadRequest for one that is too long."""
    value = json.dumps({"domain": domain, "path": shadow.path, "who": who, "why": why}).encode()
    if len(value) > MAX_VALUE_BYTES:
        raise BadRequest(f"the shadow takes {len(value)} bytes, at most {MAX_VALUE_BYTES} are stored: shorten `why`")
    return MapEntry(name_of(domain, shadow.path), value, shadow.until_ms, NEW)


def removal_of(domain: str, path: Steps) -> MapEntry:
    """Build the map's entry that ends a shadow."""
    return MapEntry(name_of(domain, path), b"", 0, NEW)


def follow(region_map: RegionMapReplica, shadows: Shadows) -> None:
    """Bring what stands in the map into force, now and whenever it changes. The map ends them, by its shard's time."""
    named: dict[bytes, tuple[str, Shadow]] = {}

    def changed(entries: Sequence[MapEntry]) -> None:
        ours = [entry for entry in entries if entry.name.startswith(PREFIX)]
        if not ours:
            return
        for entry in ours:
            named.pop(entry.name, None)
            if (found := _read(entry)) is not None:
                named[entry.name] = found
        laid: dict[str, list[Shadow]] = {}
        for domain, shadow in named.values():
            laid.setdefault(domain, []).append(shadow)
        shadows.lay(_SOURCE, laid)

    region_map.listen(changed)


def _read(entry: MapEntry) -> tuple[str, Shadow] | None:
    """None for one that was removed, or that this version can't read: then the rules deny."""
    if not entry.value:
        return None
    try:
        fields = json.loads(entry.value)
        path = tuple((str(key), str(value)) for key, value in fields["path"])
        return str(fields["domain"]), Shadow(path, entry.expires_ms, ends_elsewhere=True)
    except (ValueError, TypeError, KeyError):
        return None
