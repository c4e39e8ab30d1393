"""Refusals by the guard through the front: a message that only the two of them know.

The guard can't answer a caller by itself without disturbing what the front and the caller
share (header compression, flow control, the state of streams). So in place of a message
that it keeps back, it forwards a short one that begins with a secret of this process, and
the front's own intake answers it with the right status.
"""

import secrets
from enum import IntEnum
from struct import Struct

_DETAIL = Struct(">BQ")
_SECRET_BYTES = 32
"""Callers who guessed it could have their own calls refused, and no more."""


class Refusal(IntEnum):
    """The reason for which a message was kept back, or a call."""

    TOO_LARGE = 1
    EXPANDS = 2
    """A compressed message that is too large once it is unpacked."""
    UNFINISHED = 3
    """Too much is unfinished already, on the connection or altogether."""
    NO_PLACE = 4
    """Too many calls are under way, and this connection has its share of them."""


class Refusals:
    """One secret, for one guard and its front."""

    size = _SECRET_BYTES + _DETAIL.size

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(_SECRET_BYTES)

    def encode(self, refusal: Refusal, size: int) -> bytes:
        return self.secret + _DETAIL.pack(refusal, size)

    def matches(self, payload: bytes) -> bool:
        return payload.startswith(self.secret)

    def decode(self, payload: bytes) -> tuple[Refusal, int]:
        """Return the reason, and the size that the caller announced."""
        refusal, size = _DETAIL.unpack_from(payload, _SECRET_BYTES)
        return Refusal(refusal), size
