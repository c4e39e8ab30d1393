"""Bulletins: what each node of a region says of itself, for whoever looks at the region, kept by one shard.

Every node posts one every two seconds, under the name of its run, and is told what somebody looks for just now: so a
bulletin is short while nobody looks. Whoever looks reads all of them, with their ages: of a node that fell silent the
last one stays for a while. What they say is the nodes' own matter; here they are bytes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import msgpack

from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.shard_memory import MemoryPart, ShardMemory

POSTED: Final = b"bulletins"
HEARD: Final = b"bulletins:heard"
WANTED: Final = b"bulletins:wanted"
"""Names of what the shard keeps: bulletins by run, when each was posted, and what is wanted, with until when."""
KEPT_MS: Final = 300_000
"""Time for which the last bulletin of a node that fell silent is kept: it is missed by name that long."""
WANTED_MS: Final = 10_000
"""Time for which nodes go on saying what somebody looked for: five looks of the page."""
MOST_BULLETINS: Final = 256
MAX_BULLETIN_BYTES: Final = 64 * 1024
"""Bounds of what a region's shard keeps: 16 MiB, in practice some kilobytes of each node."""
MOST_WANTED: Final = 8
"""Things that are wanted at once, at most: the page knows three."""


class Posted(NamedTuple):
    """Result of a post."""

    accepted: bool
    """False: so many nodes have posted that there is no room."""
    wanted: tuple[bytes, ...]
    """Names of what somebody looks for, sorted."""


class Bulletin(NamedTuple):
    """One node's, as it is read."""

    run: bytes
    age_ms: int
    content: bytes


class Board(MemoryPart):
    """Bulletins of a shard in memory."""

    def __init__(self) -> None:
        self._posted: dict[bytes, tuple[int, bytes]] = {}
        self._wanted: dict[bytes, int] = {}

    def post(self, run: bytes, content: bytes, now_ms: int) -> Posted:
        """Take a bulletin in place of the run's last one; an empty one ends it."""
        self._posted = {name: kept for name, kept in self._posted.items() if abs(now_ms - kept[0]) < KEPT_MS}
        accepted = run in self._posted or len(self._posted) < MOST_BULLETINS
        if not content:
            self._posted.pop(run, None)
        elif accepted:
            self._posted[run] = now_ms, content
        return Posted(accepted, tuple(sorted(name for name, until_ms in self._wanted.items() if until_ms > now_ms)))

    def read(self, wanted: bytes, now_ms: int) -> tuple[Bulletin, ...]:
        """Return all, by run; nodes hear that `wanted` is looked for."""
        self._wanted = {name: until_ms for name, until_ms in self._wanted.items() if until_ms > now_ms}
        if wanted in self._wanted or len(self._wanted) < MOST_WANTED:
            self._wanted[wanted] = now_ms + WANTED_MS
        found = [(run, now_ms - at_ms, content) for run, (at_ms, content) in self._posted.items()]
        return tuple(Bulletin(*one) for one in sorted(found) if abs(one[1]) < KEPT_MS)


@dataclass(frozen=True, slots=True)
class PostBulletin(Operation[Posted]):
    """Post a run's bulletin, in place of its last one."""

    run: bytes
    content: bytes
    """Empty: the run ends."""

    lua: ClassVar[tuple[str, ...]] = ("origin/post_bulletin",)

    def apply(self, memory: ShardMemory) -> Posted:
        return memory.part(Board).post(self.run, self.content, memory.now_ms())

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(POSTED, HEARD, WANTED), (self.run, self.content, KEPT_MS, MOST_BULLETINS))

    def unpack(self, reply: Any, epoch: bytes) -> Posted:
        accepted, *wanted = reply
        return Posted(accepted == 1, tuple(sorted(wanted)))


@dataclass(frozen=True, slots=True)
class ReadBulletins(Operation[tuple[Bulletin, ...]]):
    """Read all bulletins of the region."""

    wanted: bytes
    """Something that nodes shall say for the next ten seconds."""

    lua: ClassVar[tuple[str, ...]] = ("origin/read_bulletins",)
    own_connection: ClassVar[bool] = True
    """Not the one of decisions: the answer may have megabytes."""

    def apply(self, memory: ShardMemory) -> tuple[Bulletin, ...]:
        return memory.part(Board).read(self.wanted, memory.now_ms())

    def pack(self, space: KeySpace) -> Packed:
        names = space.named(POSTED, HEARD, WANTED)
        return Packed(names, (self.wanted, WANTED_MS, KEPT_MS, MOST_WANTED))

    def unpack(self, reply: Any, epoch: bytes) -> tuple[Bulletin, ...]:
        # Packed from Lua, where a text is bytes; an empty array and an empty map are one there.
        flat: list[Any] = list(msgpack.unpackb(reply, raw=True))
        return tuple(sorted(Bulletin(*flat[at : at + 3]) for at in range(0, len(flat), 3)))
