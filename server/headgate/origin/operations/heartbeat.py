"""Heartbeat: a node's run says that it lives, and hears how many do."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from headgate.origin.interface import NODE_GONE_MS, REGION_GONE_MS
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.region_map import ABOUT, MapMark, RegionMap
from headgate.origin.shard_memory import MemoryPart, ShardMemory

LIVE: Final = b"live"
NEWER: Final = b"live2"
HEARD: Final = b"heard"
LISTED: Final = b"listed"
LIST: Final = b"list:"
"""Names of what a shard keeps: when each run was last heard; the same of those that leave room for allowances beyond
`P`, which older versions do not; when each other region was; and when each run was heard that says by which list of
shards it places keys, of all lists and (followed by its name) of one."""


class Pulse(NamedTuple):
    """Result of a heartbeat."""

    time_ms: int
    epoch: bytes
    live_nodes: int
    known: bool
    """False: the run's last heartbeat is gone, so its reports may be gone with it."""
    regions_heard: int = 0
    """Other regions that have said something lately, where they say it."""
    region_map: MapMark = MapMark()
    """Point that the region's map has reached, on the shard that keeps it."""
    older: int = 0
    """Those of the living that count on all allowances being within `P`."""
    listed_otherwise: int = 0
    """Those of the living that place keys by another list of shards: such keys have a record on each side."""


class Presence(MemoryPart):
    """Times at which runs of nodes, and other regions, were last heard."""

    def __init__(self) -> None:
        self.beats: dict[bytes, int] = {}
        self.older: set[bytes] = set()
        """Those that count on all allowances being within `P`: none of this version."""
        self.regions: dict[bytes, int] = {}
        self.lists: dict[bytes, bytes] = {}
        """List of shards by which each run places keys; older versions do not say it."""

    def beat(self, run: bytes, now_ms: int) -> bool:
        """Note that a run lives, and drop those that do not; whether it was known."""
        beats = {name: at_ms for name, at_ms in self.beats.items() if at_ms > now_ms - NODE_GONE_MS}
        known = run in beats
        # One that lies ahead was written before the clock was set back, and would count for too long.
        self.beats = {name: at_ms for name, at_ms in beats.items() if at_ms <= now_ms + NODE_GONE_MS}
        self.beats[run] = now_ms
        self.lists = {name: shards for name, shards in self.lists.items() if name in self.beats}
        self.regions = {region: at_ms for region, at_ms in self.regions.items() if abs(now_ms - at_ms) < REGION_GONE_MS}
        return known

    def place_by(self, run: bytes, shard_list: bytes) -> int:
        """Note by which list of shards a run that lives places keys; return how many others do so by another one."""
        self.lists[run] = shard_list
        return sum(shards != shard_list for shards in self.lists.values())


@dataclass(frozen=True, slots=True)
class Heartbeat(Operation[Pulse]):
    """Say that this run lives; the shard says how many do, and whether it remembers this one."""

    run: bytes
    shard_list: bytes = b""
    """The list of shards by which it places keys."""

    lua: ClassVar[tuple[str, ...]] = ("origin/heartbeat",)
    own_connection: ClassVar[bool] = True

    def apply(self, memory: ShardMemory) -> Pulse:
        now_ms, presence = memory.now_ms(), memory.part(Presence)
        known = presence.beat(self.run, now_ms)
        mark, older = memory.part(RegionMap).mark, len(presence.older.intersection(presence.beats))
        otherwise = presence.place_by(self.run, self.shard_list)
        return Pulse(now_ms, memory.epoch, len(presence.beats), known, len(presence.regions), mark, older, otherwise)

    def pack(self, space: KeySpace) -> Packed:
        names = LIVE, HEARD, ABOUT, NEWER, LISTED, LIST + self.shard_list
        return Packed(space.named(*names), (self.run, NODE_GONE_MS, REGION_GONE_MS))

    def unpack(self, reply: Any, epoch: bytes) -> Pulse:
        time_ms, live_nodes, known, heard, generation, version, older, otherwise = reply
        return Pulse(time_ms, epoch, live_nodes, known == 1, heard, MapMark(generation, version), older, otherwise)
