"""What a shard has to tell other regions, and how far each of them has been told.

Every published key stands in an index under the number of its last change; what a peer has not
acknowledged is what stands behind its cursor. So a change is never lost by an exchanger that dies, a
key that changes a thousand times is sent once, and telling everything again is setting a cursor to 0.
The index goes when the shard's memory goes, and the cursors with it.

The same in Lua: changes.lua, acknowledge.lua, walk.lua, mark.lua and give_back.lua.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.origin.protocol import Changes, Lane


@dataclass(slots=True)
class LaneIndex:
    """Published keys by the number of their last change."""

    latest: int = 0
    changed: dict[bytes, int] = field(default_factory=dict)
    """In the order of the changes: a key that changes goes to the end."""

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
    """How far one peer has been told, in one lane."""

    acknowledged: int = 0
    walk_until: int = 0


@dataclass(slots=True)
class PeerState:
    """What a shard keeps of one peer beside its counts, and who tells it at present: in both lanes the same one."""

    mark: bytes = b""
    walk: bytes = b""
    beat_ms: int = 0
    owner: bytes = b""
    leased_until_ms: int = 0

    def take(self, owner: bytes, lease_ms: int, now_ms: int) -> bool:
        """Whether `owner` serves this peer for the next `lease_ms`. A lease that a wrong clock gave binds nobody."""
        if self.owner != owner and now_ms < self.leased_until_ms <= now_ms + lease_ms:
            return False
        self.owner, self.leased_until_ms = owner, now_ms + lease_ms
        return True


class Outbox:
    """One shard's part of the exchange."""

    def __init__(self) -> None:
        self.lanes = {lane: LaneIndex() for lane in Lane}
        self._cursors: dict[tuple[Lane, bytes], PeerCursor] = {}
        self._peers: dict[bytes, PeerState] = {}
        self._generation = b""

    def __len__(self) -> int:
        return sum(len(index.changed) for index in self.lanes.values())

    def note(self, name: bytes, lane: Lane) -> None:
        """A published key has changed."""
        self.lanes[lane].note(name)

    def changes(
        self,
        peer: bytes,
        lane: Lane,
        owner: bytes,
        lease_ms: int,
        generation: bytes,
        most: int,
        now_ms: int,
        after: int = 0,
    ) -> Changes:
        """Take the lease, and read the next names for the peer. Time and epoch are the shard's to say.

        Who does not get the lease gets no names, and sees how far the peer has been told all the same.
        """
        self._generation = self._generation or generation
        cursor, index, state = self._cursor(peer, lane), self.lanes[lane], self._peer(peer)
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

    def acknowledge(self, peer: bytes, lane: Lane, generation: bytes, since: int, until: int) -> bool:
        """The peer has all up to `until`: if this is the memory that was read, and nobody moved the cursor."""
        cursor = self._cursor(peer, lane)
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
        for lane, index in self.lanes.items():
            cursor = self._cursor(peer, lane)
            cursor.acknowledged = 0
            if walk:
                cursor.walk_until = index.latest

    def mark_filled(self, peer: bytes, mark: bytes) -> None:
        """The peer has told everything that it knows, since the shard's memory began."""
        self._peer(peer).mark = mark

    def give_back(self, owner: bytes, peers: Iterable[bytes]) -> None:
        """Who served these peers leaves: another one need not wait for the end of the lease."""
        for state in map(self._peer, peers):
            if state.owner == owner:
                state.leased_until_ms = 0

    def heard(self, region: bytes, beat_ms: int) -> None:
        """A region lives: its latest beat."""
        self._peer(region).beat_ms = beat_ms

    def forget(self, names: Iterable[bytes], lane: Lane) -> None:
        """Keys whose records are gone."""
        for name in names:
            self.lanes[lane].changed.pop(name, None)

    def _cursor(self, peer: bytes, lane: Lane) -> PeerCursor:
        return self._cursors.setdefault((lane, peer), PeerCursor())

    def _peer(self, peer: bytes) -> PeerState:
        return self._peers.setdefault(peer, PeerState())
