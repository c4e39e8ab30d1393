"""The key that signs a region's reservations: drawn by whoever needs it first, and kept in the region's book."""

import random
from collections.abc import Callable
from typing import Final

from headgate.origin.interface import OriginError
from headgate.origin.region_map import FIRST, MapEntry
from headgate.region.region_map import RegionMapReplica
from headgate.reservations.ids import KEY_BYTES

NAME: Final = b"reservations"
"""Name of its entry in the book."""
LOOK_EVERY_S: Final = 0.2
"""Shortest time between two looks at the book because of an id that nobody knows."""


class SigningKey:
    """The key that this node signs with, and all keys that it accepts."""

    def __init__(self, book: RegionMapReplica, random: random.Random, monotonic: Callable[[], float]) -> None:
        self._book = book
        self._monotonic = monotonic
        self._look_again_s = 0.0
        self._own = random.randbytes(KEY_BYTES)
        """Key of this node alone, for as long as the region has none: only this node can settle what it signed."""

    async def current(self) -> bytes:
        """The region's; while its origin is away and nobody has drawn one, this node's own."""
        shared = self._book.get(NAME)
        if shared is None:
            try:
                await self._book.write([MapEntry(NAME, self._own, 0, FIRST)])
            except OriginError:
                return self._own
            shared = self._book.get(NAME)
        return shared or self._own

    async def look_again(self) -> bool:
        """Look for a key that was not known a moment ago; True if there is one. Asked seldom, whatever ids come."""
        now_s, before = self._monotonic(), self._book.get(NAME)
        if now_s < self._look_again_s:
            return False
        self._look_again_s = now_s + LOOK_EVERY_S
        await self._book.refresh()
        return self._book.get(NAME) != before

    def accepted(self) -> list[bytes]:
        """The region's and this node's own."""
        shared = self._book.get(NAME)
        return [self._own] if shared is None or shared == self._own else [shared, self._own]
