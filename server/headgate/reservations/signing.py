"""The key that signs a region's reservations: drawn by whoever needs it first, and kept in the region's book."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

from headgate.origin.interface import OriginError
from headgate.origin.region_map import FIRST, MapEntry
from headgate.region.region_map import RegionMapReplica
from headgate.reservations.ids import KEY_BYTES

NAME: Final = b"reservations"
"""Name of its entry in the book."""
AGAIN_S: Final = 0.2
"""Shortest time between two looks at the book because of an id that nobody knows, and between two attempts to draw."""


class SigningKey:
    """The key that this node signs with, and all keys that it accepts."""

    def __init__(self, book: RegionMapReplica, random: random.Random, monotonic: Callable[[], float]) -> None:
        self._book = book
        self._drawing, self._looking = _Attempt(self._write, monotonic), _Attempt(book.refresh, monotonic)
        self._own = random.randbytes(KEY_BYTES)
        """Key of this node alone, for as long as the region has none: only this node can settle what it signed."""

    @property
    def is_drawn(self) -> bool:
        """Tell whether the region has a key, as far as this node knows."""
        return self._book.get(NAME) is not None

    @property
    def current(self) -> bytes:
        """The region's; while it has none, this node's own."""
        return self._book.get(NAME) or self._own

    def accepted(self) -> list[bytes]:
        """The region's and this node's own."""
        shared = self._book.get(NAME)
        return [self._own] if shared is None or shared == self._own else [shared, self._own]

    async def draw(self) -> None:
        """Give the region a key, if its origin answers. While it does not, this is tried seldom."""
        await self._drawing.make()

    async def _write(self) -> None:
        with contextlib.suppress(OriginError):
            await self._book.write([MapEntry(NAME, self._own, 0, FIRST)])

    def may_look_again(self) -> bool:
        """Tell whether to look for a key that was not known a moment ago."""
        return self._looking.is_due

    async def look_again(self) -> None:
        """Look whether the region has another key by now."""
        await self._looking.make()


class _Attempt:
    """Something that is tried seldom: who comes while it is under way waits for it, who comes soon after does not."""

    def __init__(self, attempt: Callable[[], Awaitable[object]], monotonic: Callable[[], float]) -> None:
        self._attempt = attempt
        self._monotonic = monotonic
        self._under_way = asyncio.Lock()
        self._again_s = 0.0

    @property
    def is_due(self) -> bool:
        return self._under_way.locked() or self._monotonic() >= self._again_s

    async def make(self) -> None:
        async with self._under_way:
            if self._monotonic() >= self._again_s:
                self._again_s = self._monotonic() + AGAIN_S
                await self._attempt()
