"""Ids of reservations: all that is needed to settle one, signed, so that nothing is kept for those that are open.

An id holds the request whose estimate was charged, when that was, when it expires, and a name that nobody can guess.
It is signed with a key that the nodes of a region share in their book; so any of them can settle it, and nobody can
make one up.
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
_VERSION: Final = b"\x02"
_UNDATED: Final = b"\x01"
"""The version of 0.2, whose ids do not say when they were charged."""
_KEY_ID_BYTES: Final = 4
_TAG_BYTES: Final = 16
_HEAD: Final = struct.Struct(f">c{_KEY_ID_BYTES}s{NONCE_BYTES}sQ")
_CHARGED: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation, as its id says it."""

    nonce: bytes
    charged_ms: int
    """Time of the shard that the nonce belongs to; 0 where the id does not say it."""
    expires_ms: int
    """Time by the same clock."""
    request: bytes
    """The serialized RateLimitRequest whose estimate was charged."""


def encode(reservation: Reservation, key: bytes) -> str:
    """The id."""
    head = _HEAD.pack(_VERSION, _key_id(key), reservation.nonce, reservation.expires_ms)
    body = head + _CHARGED.pack(reservation.charged_ms) + reservation.request
    return _text(body + _tag(body, key))


def decode(text: str, keys: list[bytes]) -> Reservation:
    """Raises BadRequest for what is no id, NotFound for one that was signed by nobody known here."""
    if len(text) > MAX_ID_CHARS:
        raise BadRequest(f"id: {len(text)} characters; what Reserve gave has at most {MAX_ID_CHARS}")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, key_id, nonce, expires_ms = _HEAD.unpack_from(data)
    except (binascii.Error, ValueError, struct.error):
        raise BadRequest("id: not one that Reserve gave") from None
    if _text(data) != text:
        raise BadRequest("id: not one that Reserve gave: it was written otherwise")
    body, tag = data[:-_TAG_BYTES], data[-_TAG_BYTES:]
    dated = version == _VERSION
    start = _HEAD.size + (_CHARGED.size if dated else 0)
    if not (dated or version == _UNDATED) or len(body) < start:
        raise BadRequest("id: not one that Reserve gave, or of a newer version")
    known = [key for key in keys if _key_id(key) == key_id]
    if not known:
        raise NotFound(
            "id: signed by a key that this node does not have: it was made in another region, by a node on its own, or "
            "before the region's origin and all its nodes lost theirs. Nothing has changed; its estimate stands"
        )
    if not any(hmac.compare_digest(_tag(body, key), tag) for key in known):
        raise BadRequest("id: not one that Reserve gave: its signature is wrong")
    charged_ms = _CHARGED.unpack_from(body, _HEAD.size)[0] if dated else 0
    return Reservation(nonce, charged_ms, expires_ms, body[start:])


def _text(data: bytes) -> str:
    """Write an id: there is one way to."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"id" + key).digest()[:_KEY_ID_BYTES]


def _tag(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_TAG_BYTES]
