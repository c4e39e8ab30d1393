"""One process's side of the exchange: all that its parts have in common."""

import random
from dataclasses import dataclass
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.origin.interface import Origin

NEW_KEYS_BYTES: Final = 512 * 1024 * 1024
"""Bytes of the region's origin that one peer may take with new keys, at once and again per day: some million keys."""


class KeyScopes(Protocol):
    """The rules of this region, as far as other regions have to do with them."""

    @property
    def version(self) -> object:
        """Another one when other keys may be shared."""

    def is_global(self, key: bytes, place: bytes, window_ms: int) -> bool:
        """Say if all regions count the key together, in windows of this length, on the shard that `place` chooses."""


@dataclass(frozen=True, slots=True)
class ExchangeSite:
    """Region and origin of an exchanger, and its name, time, chance, log and rules."""

    region: str
    origin: Origin
    owner: bytes
    """Name that its leases have in the origin."""
    clock: Clock
    random: random.Random
    logger: FilteringBoundLogger
    scopes: KeyScopes
    new_keys_bytes: int = NEW_KEYS_BYTES
    """Bytes of the origin that one peer may take with new keys, at once and again per day."""
