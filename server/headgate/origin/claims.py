"""Names that can be taken once: what makes a thing happen once in a region, whichever node is asked, however often.

A claim holds until it expires, and nobody can take an expired one: so whoever claims in time is the only one ever. The
value says who it was; the same value again is the same claim, after an answer that was lost.
"""

from enum import IntEnum
from typing import Final, NamedTuple

MAX_CLAIM_BYTES: Final = 512
"""Name and value."""


class ClaimState(IntEnum):
    """What became of a claim."""

    MINE = 0
    TAKEN = 1
    EXPIRED = 2


class Claim(NamedTuple):
    """The answer to a claim."""

    state: ClaimState
    value: bytes = b""
    """Of whoever has it."""


class Claims:
    """Those of a shard in memory; the same in Redis is claim.lua."""

    def __init__(self) -> None:
        self._held: dict[bytes, tuple[bytes, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, name: bytes, value: bytes, expires_ms: int, now_ms: int) -> Claim:
        """Take it, unless somebody has, or its time is up."""
        if expires_ms <= now_ms:
            return Claim(ClaimState.EXPIRED)
        held, until_ms = self._held.get(name, (b"", 0))
        if until_ms > now_ms:
            return Claim(ClaimState.MINE if held == value else ClaimState.TAKEN, held)
        self._held[name] = (value, expires_ms)
        return Claim(ClaimState.MINE, value)

    def sweep(self, now_ms: int) -> None:
        """Forget those that are over."""
        for name in [name for name, (_, until_ms) in self._held.items() if until_ms <= now_ms]:
            del self._held[name]
