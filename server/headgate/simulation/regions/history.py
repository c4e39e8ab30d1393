"""A history of several regions as a plain value: who asks what where, and what breaks, when."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from headgate.simulation.history import Key, kept_faults


class RegionFaultKind(StrEnum):
    """Faults between regions, and in one. Those with a duration end by themselves."""

    LOST_BATCHES = "lost_batches"
    LOST_ACKS = "lost_acks"
    REPEATED = "repeated"
    """Batches come a second time, up to some seconds later: those after them are overtaken."""
    SLOW_LINK = "slow_link"
    ONE_WAY = "one_way"
    """No message goes from one region to another; the other direction is good."""
    PARTITION = "region_cut_off"
    """A region is cut off from all others."""
    LINK_STALL = "link_stall"
    """Messages arrive when it is over."""
    EXCHANGER_CRASH = "exchanger_crash"
    """Killed outright, and replaced a while later."""
    REGION_FLUSH = "region_flush"
    """One shard of a region loses its memory."""
    REGION_RESTART = "region_restart"
    REGION_FAILOVER = "region_failover"
    """A replica takes over that has missed the last writes."""
    REGION_LOST = "region_lost"
    """All shards of a region lose their memory, and all of its nodes die: only its peers remember."""
    REGION_CLOCK = "region_clock"
    """The clock of one of a region's shards is set, by up to a few seconds."""
    ORIGIN_STALL = "origin_stall"
    """A shard of a region does not answer for a while."""
    LOST_IMPORTS = "lost_imports"
    """Calls of a region's exchangers to one of its shards are lost, or the answers to them are."""


class RegionFault(NamedTuple):
    """Something that goes wrong: what, when, for how long, and where."""

    kind: RegionFaultKind
    at_ms: int
    for_ms: int = 0
    region: int = 0
    peer: int = 0
    shard: int = 0
    amount: int = 0

    @property
    def end_ms(self) -> int:
        return self.at_ms + self.for_ms

    def describe(self) -> str:
        """One line of a schedule."""
        lasting = f", for {self.for_ms} ms" if self.for_ms else ""
        where = f"region {self.region}, peer {self.peer}, shard {self.shard}"
        return f"{self.at_ms / 1000:9.3f} s  {self.kind.value}{lasting}, {where}, amount {self.amount}"


class RegionAsk(NamedTuple):
    """A request: at what time, in which region, at which of its nodes, for which key and at what cost."""

    at_us: int
    region: int
    node: int
    key: int
    cost: int


@dataclasses.dataclass(frozen=True)
class RegionsHistory:
    """All that happens in one run of several regions."""

    seed: int
    name: str
    regions: int
    nodes: int
    """Per region."""
    shards: int
    exchangers: int
    deadline_ms: int
    link_ms: tuple[float, float]
    """Shortest and longest time of a message between two regions."""
    unix_ms: int
    offsets_ms: tuple[int, ...]
    """Offset of each region's clocks."""
    keys: tuple[Key, ...]
    asks: tuple[RegionAsk, ...]
    faults: tuple[RegionFault, ...]
    numbers: tuple[int, ...] = ()

    def cut(self, *, faults: Sequence[int] | None = None, requests: int | None = None) -> "RegionsHistory":
        """Copy with some of the faults (by their numbers), and the first requests only."""
        return dataclasses.replace(self, asks=self.asks[:requests], **kept_faults(self.numbers, self.faults, faults))

    @property
    def kinds(self) -> Counter[str]:
        """Number of faults of each kind."""
        return Counter(fault.kind.value for fault in self.faults)

    def describe(self) -> str:
        """Describe it in a line."""
        return (
            f"seed {self.seed} ({self.name}): {self.regions} regions of {self.nodes} nodes, {self.shards} shards and "
            f"{self.exchangers} exchangers, {len(self.keys)} keys, {len(self.asks)} requests, "
            f"{len(self.faults)} faults"
        )
