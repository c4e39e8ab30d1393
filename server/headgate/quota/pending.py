"""PendingKeys: which keys each peer has yet to be told of. One leaves it when its present version is acknowledged.

Bounded by the number of keys: a key is in it once per peer, however often it changes.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

ENTRIES_PER_MESSAGE: Final = 500
"""About 40 KB at five regions: the rest goes in the next message."""

BYTES_PER_MESSAGE: Final = 1 << 20
"""Bytes of keys, beside one: they are some ten bytes long, or some thousand."""


class UnderWay(NamedTuple):
    """The last message to a peer, not acknowledged yet, with the version of each key in it."""

    number: int
    versions: dict[bytes, int]


class PendingKeys:
    """The keys to tell each peer, in the order in which they changed."""

    def __init__(self, peers: Iterable[int]) -> None:
        self._pending: dict[int, dict[bytes, None]] = {peer: {} for peer in peers}
        self._under_way: dict[int, UnderWay] = {}

    def add(self, key: bytes, but: int | None = None) -> None:
        """For all peers, but the one from which it was heard."""
        for peer, pending in self._pending.items():
            if peer != but:
                pending[key] = None

    def add_all(self, peer: int, keys: Iterable[bytes]) -> None:
        """The peer has lost what it knew. What is under way to it may have been lost with the rest."""
        self._under_way.pop(peer, None)
        self._pending[peer].update(dict.fromkeys(keys))

    def page(self, peer: int, is_ready: Callable[[bytes], bool]) -> tuple[list[bytes], bool]:
        """Choose the keys to tell the peer of now; return them, and True if that is all."""
        chosen: list[bytes] = []
        is_all, size = True, 0
        for key in self._pending[peer]:
            if len(chosen) == ENTRIES_PER_MESSAGE or size > BYTES_PER_MESSAGE:
                return chosen, False
            if is_ready(key):
                chosen.append(key)
                size += len(key)
            else:
                is_all = False
        return chosen, is_all

    def sent(self, peer: int, number: int, versions: dict[bytes, int]) -> None:
        self._under_way[peer] = UnderWay(number, versions)

    def acknowledged(self, peer: int, number: int, version_of: Callable[[bytes], int]) -> None:
        """Only of the last message: what an earlier one carried was in the later ones too."""
        under_way = self._under_way.get(peer)
        if under_way is None or under_way.number != number:
            return
        del self._under_way[peer]
        for key, version in under_way.versions.items():
            if version_of(key) == version:
                self._pending[peer].pop(key, None)

    def drop(self, key: bytes) -> None:
        for pending in self._pending.values():
            pending.pop(key, None)
