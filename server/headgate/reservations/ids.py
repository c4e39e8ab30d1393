"""Ids of reservations: all that is needed to settle one, signed, so that nothing is kept for those that are open.

An id holds the request whose estimate was charged, when it expires, and a name that nobody can guess. It is signed with
a key that the nodes of a region share in their book; so any of them can settle it, and nobody can make one up.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

from headgate.errors import BadRequest, NotFound

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16
"""Size of the name that says which reservation it is: 128 bits of chance."""
MAX_REQUEST_BYTES: Final = 2_048
"""Size of the request that an id holds; ordinary ones are under 200."""
MAX_ID_CHARS: Final = 4_096
_VERSION: Final = b"\x01"
_KEY_ID_BYTES: Final = 4
_TAG_BYTES: Final = 16
_HEAD: Final = struct.Struct(f">c{_KEY_ID_BYTES}s{NONCE_BYTES}sQ")


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation, as its id says it."""

    nonce: bytes
    expires_ms: int
    """Time of the shard that the nonce belongs to."""
    request: bytes
    """The serialized RateLimitRequest whose estimate was charged."""


def encode(reservation: Reservation, key: bytes) -> str:
    """The id."""
    head = _HEAD.pack(_VERSION, _key_id(key), reservation.nonce, reservation.expires_ms)
    body = head + reservation.request
    return base64.urlsafe_b64encode(body + _tag(body, key)).rstrip(b"=").decode()


def decode(text: str, keys: list[bytes]) -> Reservation:
    """Raises BadRequest for what is no id, NotFound for one that was signed by nobody known here."""
    if len(text) > MAX_ID_CHARS:
        raise BadRequest(f"id: {len(text)} characters; what Reserve gave has at most {MAX_ID_CHARS}")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, key_id, nonce, expires_ms = _HEAD.unpack_from(data)
    except (binascii.Error, ValueError, struct.error):
        raise BadRequest("id: not one that Reserve gave") from None
    body, tag = data[:-_TAG_BYTES], data[-_TAG_BYTES:]
    if version != _VERSION or len(body) < _HEAD.size:
        raise BadRequest("id: not one that Reserve gave, or of a newer version")
    known = [key for key in keys if _key_id(key) == key_id]
    if not known:
        raise NotFound(
            "id: signed by a key that this node does not have: it was made in another region, by a node on its own, or "
            "before the region's origin and all its nodes lost theirs. Nothing has changed; its estimate stands"
        )
    if not any(hmac.compare_digest(_tag(body, key), tag) for key in known):
        raise BadRequest("id: not one that Reserve gave: its signature is wrong")
    return Reservation(nonce, expires_ms, body[_HEAD.size :])


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"id" + key).digest()[:_KEY_ID_BYTES]


def _tag(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_TAG_BYTES]
