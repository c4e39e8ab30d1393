"""Overrides in the region's map: how they are written there, and how what stands there comes into force here."""

from collections.abc import Sequence
from typing import Final

from headgate.errors import BadRequest
from headgate.limiter.limit import MAX_UINT32, MILLION
from headgate.limiter.overrides import MAX_FACTOR, Override, Overrides
from headgate.origin.region_map import NEW, MapEntry
from headgate.region.region_map import RegionMapReplica
from headgate.v1 import keys_pb2 as pb
from headgate.v1.blocks_pb2 import SetBlockRequest

PREFIX: Final = b"o:"
"""Begins the names of overrides in the map; the limit key follows."""
MAX_ENTRY_BYTES: Final = 4_096
"""Name and value of one: with 10,000 of them at most 40 MB, in practice below 4."""
MAX_WHY_CHARS: Final = 256
LONGEST_MS: Final = 400 * 86_400_000
"""An override that shall hold for longer is a rule."""


def follow(region_map: RegionMapReplica, overrides: Overrides) -> None:
    """Bring what stands in the map into force, now and whenever it changes."""

    def changed(entries: Sequence[MapEntry]) -> None:
        ours = [entry for entry in entries if entry.name.startswith(PREFIX)]
        made = [override for entry in ours if (override := _read(entry)) is not None]
        kept = {override.key for override in made}
        gone = [key for entry in ours if (key := entry.name.removeprefix(PREFIX)) not in kept]
        overrides.change(made, gone)

    region_map.listen(changed)


def _read(entry: MapEntry) -> Override | None:
    """None for one that was removed, or that this version can't read: then the rule decides."""
    if not entry.value:
        return None
    try:
        return Override.decode(entry.name.removeprefix(PREFIX), entry.value, entry.expires_ms)
    except ValueError:
        return None


def entry_of(override: Override) -> MapEntry:
    """Build the entry of an override. Raises BadRequest for one that is too long."""
    entry = MapEntry(PREFIX + override.key, override.encode(), override.expires_ms, NEW)
    size = len(entry.name) + len(entry.value)
    if size > MAX_ENTRY_BYTES:
        raise BadRequest(
            f"the override takes {size} bytes, at most {MAX_ENTRY_BYTES} are stored: its descriptor is long"
        )
    return entry


def removal_of(key: bytes) -> MapEntry:
    return MapEntry(PREFIX + key, b"", 0, NEW)


def ends_ms(request: pb.SetOverrideRequest | SetBlockRequest, now_ms: int) -> int:
    """Return the time at which it ends, by the map's clock. Raises BadRequest."""
    match request.WhichOneof("ends"):
        case "until_ms":
            until_ms, said = request.until_ms, "until_ms"
        case "for_ms":
            until_ms, said = now_ms + request.for_ms, "for_ms"
        case _:
            raise BadRequest("until_ms or for_ms: it ends by itself; say when")
    if until_ms <= now_ms:
        raise BadRequest(f"{said}: it would have ended {now_ms - until_ms} ms ago, by the origin's clock")
    if until_ms > now_ms + LONGEST_MS:
        raise BadRequest(
            f"{said}: at most {LONGEST_MS // 86_400_000} days are accepted; what holds for longer is a rule"
        )
    return until_ms


def change_of(request: pb.SetOverrideRequest) -> tuple[int | None, int | None]:
    """The limit, or the factor in millionths. Raises BadRequest."""
    match request.WhichOneof("to"):
        case "limit":
            if request.limit > MAX_UINT32:
                raise BadRequest(f"limit: at most {MAX_UINT32}")
            return request.limit, None
        case "factor_millionths":
            if not 1 <= request.factor_millionths <= MAX_FACTOR * MILLION:
                raise BadRequest(f"factor: above 0, at most {MAX_FACTOR}; to block a key, override its limit with 0")
            return None, request.factor_millionths
        case _:
            raise BadRequest("limit or factor_millionths: say what the limit shall be")


def reason(text: str) -> str:
    """Return the reason, for the log. Raises BadRequest."""
    stripped = text.strip()
    if not stripped:
        raise BadRequest("why: say why, for whoever reads the audit log")
    if len(stripped) > MAX_WHY_CHARS:
        raise BadRequest(f"why: {len(stripped)} characters, at most {MAX_WHY_CHARS} are kept")
    return stripped
