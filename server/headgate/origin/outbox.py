"""Outbox: what a shard has to tell other regions, and how far each of them has been told.

Every published key stands in an index under the number of its last change; what a peer has not
acknowledged is what stands behind its cursor. So a change is never lost by an exchanger that dies, a
key that changes a thousand times is sent once, and telling everything again is setting a cursor to 0.
The index goes when the shard's memory goes, and the cursors with it.

The same in Lua: outbox.lua, and the scripts of ReadChanges, Acknowledge, BeginWalk, MarkFilled and ReleaseLeases.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headgate.origin.exchange_protocol import Changes, Priority
from headgate.origin.keyspace import KeySpace
from headgate.origin.shard_memory import MemoryPart

EXCHANGE: Final = b"exchange"
INDEX: Final = b"changed:"
"""Names of what a shard keeps for the exchange: a hash, and one index of published keys per priority."""


def outbox_keys(space: KeySpace) -> list[bytes]:
    """Redis keys of the exchange hash and of the indexes, in the order of outbox.lua."""
    return [*space.named(EXCHANGE), *(index_key(space, priority) for priority in Priority)]


def index_key(space: KeySpace, priority: Priority) -> bytes:
    """Redis key of the index of one priority."""
    return space.prefix + INDEX + b"%d" % priority


@dataclass(slots=True)
class PriorityIndex:
    """Published keys by the number of their last change."""

    latest: int = 0
    changed: dict[bytes, int] = field(default_factory=dict)
    """Numbers by name, in the order of the changes: a key that changes goes to the end."""

    def note(self, name: bytes) -> None:
        self.latest += 1
        self.changed.pop(name, None)
        self.changed[name] = self.latest

    def after(self, number: int, most: int) -> list[tuple[bytes, int]]:
        """The next ones, in order."""
        found: list[tuple[bytes, int]] = []
        for name, changed in self.changed.items():
            if changed > number:
                found.append((name, changed))
                if len(found) == most:
                    break
        return found


@dataclass(slots=True)
class PeerCursor:
    """Cursor of one peer in one priority: how far it has been told."""

    acknowledged: int = 0
    walk_until: int = 0


@dataclass(slots=True)
class PeerState:
    """State of one peer beside its counts, and the exchanger that tells it at present: in both priorities the same."""

    mark: bytes = b""
    walk: bytes = b""
    beat_ms: int = 0
    owner: bytes = b""
    leased_until_ms: int = 0

    def take(self, owner: bytes, lease_ms: int, now_ms: int) -> bool:
        """Give `owner` the lease for `lease_ms` if it is free; say if so. One that a wrong clock gave binds nobody."""
        if self.owner != owner and now_ms < self.leased_until_ms <= now_ms + lease_ms:
            return False
        self.owner, self.leased_until_ms = owner, now_ms + lease_ms
        return True


class Outbox(MemoryPart):
    """Indexes, cursors and leases of one shard."""

    def __init__(self) -> None:
        self.indexes = {priority: PriorityIndex() for priority in Priority}
        self._cursors: dict[tuple[Priority, bytes], PeerCursor] = {}
        self._peers: dict[bytes, PeerState] = {}
        self._generation = b""

    def __len__(self) -> int:
        return sum(len(index.changed) for index in self.indexes.values())

    def note(self, name: bytes, priority: Priority) -> None:
        """A published key has changed."""
        self.indexes[priority].note(name)

    def changes(
        self,
        peer: bytes,
        priority: Priority,
        owner: bytes,
        lease_ms: int,
        generation: bytes,
        most: int,
        now_ms: int,
        after: int = 0,
    ) -> Changes:
        """Take the lease, and read the next names for the peer. Time and epoch are the shard's to say.

        An exchanger that does not get the lease gets no names, and sees how far the peer has been told all the same.
        """
        self._generation = self._generation or generation
        cursor, index, state = self._cursor(peer, priority), self.indexes[priority], self._peer(peer)
        leased = state.take(owner, lease_ms, now_ms)
        found = index.after(max(cursor.acknowledged, after), most) if leased else []
        return Changes(
            now_ms,
            b"",
            leased,
            cursor.acknowledged,
            found[-1][1] if found else max(cursor.acknowledged, index.latest) if leased else cursor.acknowledged,
            index.latest,
            tuple([name for name, _ in found]),
            self._generation,
            state.mark,
            state.walk,
            cursor.walk_until,
            state.beat_ms,
        )

    def acknowledge(self, peer: bytes, priority: Priority, generation: bytes, since: int, until: int) -> bool:
        """The peer has all up to `until`: if this is the memory that was read, and nobody moved the cursor."""
        cursor = self._cursor(peer, priority)
        if generation != self._generation or cursor.acknowledged != since:
            return False
        cursor.acknowledged = until
        return True

    def begin_walk(self, peer: bytes, walk: bytes) -> None:
        """Tell the peer everything, with its own components; once per `walk`.

        Without a name, everything is told again, and that is all.
        """
        state = self._peer(peer)
        if walk and state.walk == walk:
            return
        state.walk = walk or state.walk
        for priority, index in self.indexes.items():
            cursor = self._cursor(peer, priority)
            cursor.acknowledged = 0
            if walk:
                cursor.walk_until = index.latest

    def mark_of(self, peer: bytes) -> tuple[bytes, bytes]:
        """The generation of this memory, and the mark that it has for a peer."""
        return self._generation, self._peer(peer).mark

    def mark_filled(self, peer: bytes, mark: bytes) -> None:
        """The peer has told everything that it knows, since the shard's memory began."""
        self._peer(peer).mark = mark

    def release_leases(self, owner: bytes, peers: Iterable[bytes]) -> None:
        """End the leases of `owner` on these peers: another one need not wait for their end."""
        for state in map(self._peer, peers):
            if state.owner == owner:
                state.leased_until_ms = 0

    def heard(self, region: bytes, beat_ms: int) -> None:
        """A region lives: its latest beat."""
        self._peer(region).beat_ms = beat_ms

    def forget_names(self, names: Iterable[bytes], priority: Priority) -> None:
        """Drop names of keys whose records are gone."""
        for name in names:
            self.indexes[priority].changed.pop(name, None)

    def _cursor(self, peer: bytes, priority: Priority) -> PeerCursor:
        return self._cursors.setdefault((priority, peer), PeerCursor())

    def _peer(self, peer: bytes) -> PeerState:
        return self._peers.setdefault(peer, PeerState())
