"""A history of several regions as a plain value: who asks what where, and what breaks, when."""

import dataclasses
from enum import StrEnum
from typing import Final, NamedTuple

from headgate.simulation.history import AnyFault, History


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
    REGION_REMOVED = "region_removed"
    """The others have a region no more as a peer, each exchanger a while after the other; then they have it again. With
    an even amount the region has no peers meanwhile, with an odd one it goes on trying."""
    REGION_LISTED = "region_listed"
    """A region's nodes come to want another list of shards, one after the other, and then the former one again, unless
    the amount is 2 or more: with an even amount one with a shard more, with an odd one one with another first shard."""
    LOST_IMPORTS = "lost_imports"
    """Calls of a region's exchangers to one of its shards are lost, or the answers to them are."""


LINK_FAULTS: Final = (
    RegionFaultKind.LOST_BATCHES,
    RegionFaultKind.LOST_ACKS,
    RegionFaultKind.REPEATED,
    RegionFaultKind.SLOW_LINK,
    RegionFaultKind.ONE_WAY,
    RegionFaultKind.PARTITION,
    RegionFaultKind.LINK_STALL,
)
"""Faults between regions."""


@dataclasses.dataclass(frozen=True)
class RegionFault(AnyFault):
    """Something that goes wrong between regions or in one, and where."""

    kind: RegionFaultKind
    region: int = 0
    peer: int = 0
    shard: int = 0
    amount: int = 0

    def describe(self) -> str:
        where = f"region {self.region}, peer {self.peer}, shard {self.shard}"
        return f"{super().describe()}, {where}, amount {self.amount}"


class RegionAsk(NamedTuple):
    """A request: at what time, in which region, at which of its nodes, for which key and at what cost."""

    at_us: int
    region: int
    node: int
    key: int
    cost: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegionsHistory(History[RegionAsk, RegionFault]):
    """The history of several regions: also how their clocks are, and the links between them."""

    regions: int
    exchangers: int
    link_ms: tuple[float, float]
    """Shortest and longest time of a message between two regions."""
    offsets_ms: tuple[int, ...]
    """Offset of each region's clocks."""

    def describe(self) -> str:
        """Describe it in a line."""
        return (
            f"seed {self.seed} ({self.name}): {self.regions} regions of {self.nodes} nodes, {self.shards} shards and "
            f"{self.exchangers} exchangers, {len(self.keys)} keys, {len(self.asks)} requests, "
            f"{len(self.faults)} faults"
        )
