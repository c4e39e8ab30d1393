"""TakeClaim: a name that can be taken once, so that a thing happens once in a region, whichever node is asked.

A claim holds until it expires, and nobody can take an expired one: so whoever claims in time is the only one ever. The
value says who it was; the same value again is the same claim, after an answer that was lost. A name is taken by the
latest list of shards alone, as a record begins (docs/convergence.md, 12.3 and 12.4).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.placement import SHARDS, KeptPlacement
from headgate.origin.shard_memory import MemoryPart, ShardMemory

CLAIM: Final = b"claim:"
"""Begins the Redis names of claims behind the shard's prefix."""
MAX_CLAIM_BYTES: Final = 512
"""Name and value."""


class ClaimState(IntEnum):
    """Outcome of a claim."""

    MINE = 0
    TAKEN = 1
    EXPIRED = 2
    ELSEWHERE = 3
    """It is not taken here, and can't be: it leaves, or the shard has heard of a later list."""


class Claim(NamedTuple):
    """Result of a claim."""

    state: ClaimState
    value: bytes = b""
    """Value of the claim that holds."""


class Claims(MemoryPart):
    """Claims of a shard in memory."""

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

    @property
    def names(self) -> tuple[bytes, ...]:
        """Names that are taken."""
        return tuple(self._held)

    def copy(self, name: bytes, now_ms: int) -> tuple[bytes, int] | None:
        """Return the value of a claim, and for how long it holds; None where it is not taken."""
        value, until_ms = self._held.get(name, (b"", 0))
        return (value, until_ms - now_ms) if until_ms > now_ms else None

    def sweep(self, now_ms: int) -> None:
        """Forget those that are over."""
        for name in [name for name, (_, until_ms) in self._held.items() if until_ms <= now_ms]:
            del self._held[name]


@dataclass(frozen=True, slots=True)
class TakeClaim(Operation[Claim]):
    """Take a name that can be taken once until it expires; the same value may ask again."""

    name: bytes
    value: bytes
    expires_ms: int
    number: int = 0
    """Number of the list of shards by which it belongs here."""
    leaving: bool = False
    """It leaves this shard: where it is not taken yet, it can't be."""

    lua: ClassVar[tuple[str, ...]] = ("origin/fence", "origin/take_claim")

    def apply(self, memory: ShardMemory) -> Claim:
        now_ms, claims = memory.sweep(), memory.part(Claims)
        is_new = self.expires_ms > now_ms and claims.copy(self.name, now_ms) is None
        if is_new and (not memory.part(KeptPlacement).goes_by(self.number) or self.leaving):
            return Claim(ClaimState.ELSEWHERE)
        return claims.take(self.name, self.value, self.expires_ms, now_ms)

    def pack(self, space: KeySpace) -> Packed:
        arguments = self.value, self.expires_ms, self.number, int(self.leaving)
        return Packed(space.named(CLAIM + self.name, SHARDS), arguments)

    def unpack(self, reply: Any, epoch: bytes) -> Claim:
        state, held = reply
        return Claim(ClaimState(state), held)
