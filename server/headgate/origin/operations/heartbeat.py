"""Heartbeat: a node's run says that it lives, and hears how many do."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from headgate.origin.interface import NODE_GONE_MS, REGION_GONE_MS
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed
from headgate.origin.placement import NO_PLACEMENT, SHARDS, KeptPlacement, Placement, placement_of
from headgate.origin.region_map import ABOUT, MapMark, RegionMap
from headgate.origin.shard_memory import MemoryPart, ShardMemory

LIVE: Final = b"live"
NEWER: Final = b"live2"
HEARD: Final = b"heard"
MEMORY: Final = b"memory"
LISTED: Final = b"listed"
LIST: Final = b"list:"
"""Names of what a shard keeps: when each run was last heard; the same of those that leave room for allowances beyond
`P`, which older versions do not; when each other region was; the name of the shard's memory; and when each run was
heard that says by which list of shards it places keys, of all lists and (followed by its name) of one."""
NAME_KEPT_MS: Final = 86_400_000
"""Time for which a memory keeps its name without a heartbeat. A shard that no node has reached for longer is told
everything again, which costs a refill."""


class Pulse(NamedTuple):
    """Result of a heartbeat."""

    time_ms: int
    epoch: bytes
    live_nodes: int
    memory: bytes
    """Name of the shard's memory: another one than before, and something of what it knew is gone."""
    regions_heard: int = 0
    """Other regions that have said something lately, where they say it."""
    region_map: MapMark = MapMark()
    """Point that the region's map has reached, on the shard that keeps it."""
    older: int = 0
    """Those of the living that count on all allowances being within `P`."""
    listed_otherwise: int = 0
    """Those of the living that want another list of shards."""
    unlisted: int = 0
    """Those of the living that do not say by which list they go: of a version that knows of none."""
    placement: Placement = NO_PLACEMENT
    """Placement of the region's keys, as the shard was last told."""
    moved: bool = False
    """True once all of the shard's records are where they belong by it."""


class Presence(MemoryPart):
    """Times at which runs of nodes, and other regions, were last heard."""

    def __init__(self) -> None:
        self.beats: dict[bytes, int] = {}
        self.older: set[bytes] = set()
        """Those that count on all allowances being within `P`: none of this version."""
        self.regions: dict[bytes, int] = {}
        self.name = b""
        """Name of the shard's memory; none while it is empty."""
        self._named_ms = 0
        """Time of the last heartbeat: a name that nobody asked for in a day is gone."""
        self.lists: dict[bytes, bytes] = {}
        """List of shards by which each run places keys; older versions do not say it."""

    def beat(self, run: bytes, heard_ms: int, new_name: bytes, now_ms: int) -> None:
        """Note that a run lives, and drop those that do not; take the name, if the memory lacks one or its end."""
        beats = {name: at_ms for name, at_ms in self.beats.items() if at_ms > now_ms - NODE_GONE_MS}
        if not self.name or now_ms - self._named_ms >= NAME_KEPT_MS or beats.get(run, heard_ms) < heard_ms:
            self.name = new_name
        self._named_ms = now_ms
        # One that lies ahead was written before the clock was set back, and would count for too long.
        self.beats = {name: at_ms for name, at_ms in beats.items() if at_ms <= now_ms + NODE_GONE_MS}
        self.beats[run] = now_ms
        self.lists = {name: shards for name, shards in self.lists.items() if name in self.beats}
        self.regions = {region: at_ms for region, at_ms in self.regions.items() if abs(now_ms - at_ms) < REGION_GONE_MS}

    def place_by(self, run: bytes, shard_list: bytes) -> int:
        """Note by which list of shards a run that lives places keys; return how many others do so by another one."""
        self.lists[run] = shard_list
        return sum(shards != shard_list for shards in self.lists.values())


@dataclass(frozen=True, slots=True)
class Heartbeat(Operation[Pulse]):
    """Say that this run lives; the shard says how many do, and the name of its memory.

    A memory without a name is a new one, and is given one. So is one that has an older heartbeat of this run than it
    has answered: a copy that lacks the last writes. One that has none may only have been away for long.
    """

    run: bytes
    number: int = 1
    """Number of the heartbeat, rising per run: with the run it is a name that no memory ever had."""
    heard_ms: int = 0
    """Time of the run's last heartbeat that was answered, by the shard; 0: none was."""
    shard_list: bytes = b""
    """The list of shards that it would place keys by."""
    placement: Placement = NO_PLACEMENT
    """Placement of the region's keys, as the node knows it."""

    lua: ClassVar[tuple[str, ...]] = ("origin/heartbeat",)
    own_connection: ClassVar[bool] = True

    def apply(self, memory: ShardMemory) -> Pulse:
        now_ms, presence = memory.now_ms(), memory.part(Presence)
        presence.beat(self.run, self.heard_ms, self._name, now_ms)
        mark, older = memory.part(RegionMap).mark, len(presence.older.intersection(presence.beats))
        otherwise = presence.place_by(self.run, self.shard_list)
        live, heard, unlisted = len(presence.beats), len(presence.regions), len(presence.beats) - len(presence.lists)
        kept = memory.part(KeptPlacement)
        kept.hear(self.placement)
        placed = kept.placement, 0 < kept.walked == kept.placement.number
        return Pulse(now_ms, memory.epoch, live, presence.name, heard, mark, older, otherwise, unlisted, *placed)

    def pack(self, space: KeySpace) -> Packed:
        names = LIVE, HEARD, ABOUT, NEWER, MEMORY, LISTED, LIST + self.shard_list, SHARDS
        times_ms = (NODE_GONE_MS, REGION_GONE_MS, NAME_KEPT_MS, self.heard_ms)
        return Packed(space.named(*names), (self.run, *times_ms, self._name, *self.placement.told()))

    def unpack(self, reply: Any, epoch: bytes) -> Pulse:
        time_ms, live_nodes, memory, heard, generation, version, older, otherwise, unlisted, *placed, moved = reply
        mark, placement = MapMark(generation, version), placement_of(*placed)
        return Pulse(
            time_ms, epoch, live_nodes, memory, heard, mark, older, otherwise, unlisted, placement, moved == 1
        )  # fmt: skip

    @property
    def _name(self) -> bytes:
        return b"%s.%d" % (self.run, self.number)
