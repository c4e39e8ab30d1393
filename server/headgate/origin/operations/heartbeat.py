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
"""Names of what a shard keeps: when each run was last heard; the same of those that leave room for allowances beyond
`P`, which older versions do not; and when each other region was."""


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


class Presence(MemoryPart):
    """Times at which runs of nodes, and other regions, were last heard."""

    def __init__(self) -> None:
        self.beats: dict[bytes, int] = {}
        self.older: set[bytes] = set()
        """Those that count on all allowances being within `P`: none of this version."""
        self.regions: dict[bytes, int] = {}

    def beat(self, run: bytes, now_ms: int) -> bool:
        """Note that a run lives, and drop those that do not; whether it was known."""
        beats = {name: at_ms for name, at_ms in self.beats.items() if at_ms > now_ms - NODE_GONE_MS}
        known = run in beats
        # One that lies ahead was written before the clock was set back, and would count for too long.
        self.beats = {name: at_ms for name, at_ms in beats.items() if at_ms <= now_ms + NODE_GONE_MS}
        self.beats[run] = now_ms
        self.regions = {region: at_ms for region, at_ms in self.regions.items() if abs(now_ms - at_ms) < REGION_GONE_MS}
        return known


@dataclass(frozen=True, slots=True)
class Heartbeat(Operation[Pulse]):
    """Say that this run lives; the shard says how many do, and whether it remembers this one."""

    run: bytes

    lua: ClassVar[tuple[str, ...]] = ("origin/heartbeat",)
    own_connection: ClassVar[bool] = True

    def apply(self, memory: ShardMemory) -> Pulse:
        now_ms, presence = memory.now_ms(), memory.part(Presence)
        known = presence.beat(self.run, now_ms)
        mark, older = memory.part(RegionMap).mark, len(presence.older.intersection(presence.beats))
        return Pulse(now_ms, memory.epoch, len(presence.beats), known, len(presence.regions), mark, older)

    def pack(self, space: KeySpace) -> Packed:
        return Packed(space.named(LIVE, HEARD, ABOUT, NEWER), (self.run, NODE_GONE_MS, REGION_GONE_MS))

    def unpack(self, reply: Any, epoch: bytes) -> Pulse:
        time_ms, live_nodes, known, heard, generation, version, older = reply
        return Pulse(time_ms, epoch, live_nodes, known == 1, heard, MapMark(generation, version), older)
