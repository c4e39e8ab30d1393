"""A history as a plain value: who asks what, and what breaks, when. Nothing in it runs.

Because it is a value it can be cut: some of its faults, the first of its requests. What
happens between the events (delays, losses, jitter) follows from its seed.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, Self, TypeVar

from headgate.limiter.limit import Limit


class FaultKind(StrEnum):
    """Faults. Those with a duration end by themselves."""

    SLOW = "slow"
    """Messages between a node and a shard take the long way, some much longer."""
    LOST_CALLS = "lost_calls"
    LOST_REPLIES = "lost_replies"
    DUPLICATES = "duplicates"
    LATE = "late"
    """Calls are overtaken by later ones."""
    PATH_STALL = "path_stall"
    PARTITION = "partition"
    REFUSED = "refused"
    BLACKOUT = "blackout"
    """No node reaches any shard."""
    SHARD_STALL = "shard_stall"
    SHARD_DOWN = "shard_down"
    """A shard is away and comes back with its memory: a network fault, a restart with persistence."""
    FLUSH = "flush"
    RESTART = "restart"
    """A shard is down for a while, then back and empty."""
    FAILOVER = "failover"
    """A replica takes over that has missed the last writes."""
    CRASH = "crash"
    """A node is killed outright, and comes back as a new run."""
    DRAIN = "drain"
    """A node leaves in order, and another one comes."""
    RELISTED = "relisted"
    """A node leaves in order, and another one comes that wants another list of shards."""
    LISTED = "listed"
    """A node that runs wants another list of shards from now on: with the spare one, or (amount 0) without it."""
    NODE_CLOCK = "node_clock"
    """A node's wall clock is set."""
    SHARD_CLOCK = "shard_clock"
    """A shard's clock is set, by up to a few seconds."""
    CLOCK_STEP = "clock_step"
    """A shard's clock is set, by up to a year, and perhaps set right again a while later."""
    GARBLED = "garbled"
    """Unreadable bytes stand in the place of a key's record."""
    RULE = "rule"
    """A key's limit changes, on one node after the other."""
    RESET = "reset"
    """A key is reset at one node; the others hear of it a while later, those that live."""
    FOREIGN = "foreign"
    """Another region's counts come in."""
    ECHO = "echo"
    """The region's own counts come back from a peer, a while later."""


@dataclasses.dataclass(frozen=True)
class AnyFault:
    """Something that goes wrong, in one region or between several: what, when, and for how long."""

    kind: StrEnum
    at_ms: int
    for_ms: int = 0

    @property
    def end_ms(self) -> int:
        return self.at_ms + self.for_ms

    def describe(self) -> str:
        """One line of a schedule."""
        lasting = f", for {self.for_ms} ms" if self.for_ms else ""
        return f"{self.at_ms / 1000:9.3f} s  {self.kind.value}{lasting}"


@dataclasses.dataclass(frozen=True)
class Fault(AnyFault):
    """Something that goes wrong in a region, and where."""

    kind: FaultKind
    slot: int = 0
    """Index of a node's place; −1: every one."""
    shard: int = 0
    key: int = 0
    amount: int = 0
    """Milliseconds that a clock is set by, a new limit, or a share in %: by the kind."""

    def describe(self) -> str:
        words = [super().describe()]
        where = _WHERE.get(self.kind, "node and shard")
        if "node" in where:
            words.append("every node" if self.slot < 0 else f"node {self.slot}")
        if "shard" in where:
            words.append(f"shard {self.shard}")
        if "key" in where:
            words.append(f"key {self.key}")
        if self.amount:
            words.append(f"amount {self.amount}")
        return ", ".join(words)


_WHERE = {
    FaultKind.BLACKOUT: "",
    FaultKind.SHARD_STALL: "shard",
    FaultKind.SHARD_DOWN: "shard",
    FaultKind.FLUSH: "shard",
    FaultKind.RESTART: "shard",
    FaultKind.FAILOVER: "shard",
    FaultKind.CRASH: "node",
    FaultKind.DRAIN: "node",
    FaultKind.RELISTED: "node",
    FaultKind.LISTED: "node",
    FaultKind.NODE_CLOCK: "node",
    FaultKind.SHARD_CLOCK: "shard",
    FaultKind.CLOCK_STEP: "shard",
    FaultKind.GARBLED: "key",
    FaultKind.RULE: "key",
    FaultKind.RESET: "node and key",
    FaultKind.FOREIGN: "key",
    FaultKind.ECHO: "shard",
}


class Ask(NamedTuple):
    """A request: at what time, at which node, which keys at what cost; a cost below 0 is given back."""

    at_us: int
    slot: int
    parts: tuple[tuple[int, int], ...]


class Key(NamedTuple):
    """One limit key of a history, with its limit."""

    name: bytes
    limit: Limit


A = TypeVar("A")
F = TypeVar("F", bound=AnyFault)


@dataclasses.dataclass(frozen=True, kw_only=True)
class History(Generic[A, F]):
    """All that happens in one run, of one region or of several: keys, requests and faults."""

    seed: int
    name: str
    nodes: int
    """In each region, as the shards."""
    shards: int
    deadline_ms: int
    unix_ms: int
    keys: tuple[Key, ...]
    asks: tuple[A, ...]
    faults: tuple[F, ...]
    numbers: tuple[int, ...] = ()
    """Numbers of these faults among the seed's: a cut history is named by them."""

    def cut(self, *, faults: Sequence[int] | None = None, requests: int | None = None) -> Self:
        """Copy with some of the faults (by their numbers), and the first requests only."""
        left = [pair for pair in zip(self.numbers, self.faults, strict=True) if faults is None or pair[0] in faults]
        return dataclasses.replace(
            self,
            asks=self.asks[:requests],
            numbers=tuple([number for number, _ in left]),
            faults=tuple([fault for _, fault in left]),
        )

    @property
    def kinds(self) -> Counter[str]:
        """Number of faults of each kind."""
        return Counter(fault.kind.value for fault in self.faults)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulationHistory(History[Ask, Fault]):
    """The history of one region: also how clocks and network are."""

    max_cells: int
    delay_ms: tuple[float, float]
    node_offsets_ms: tuple[int, ...]
    node_drifts_ppm: tuple[int, ...]
    shard_offsets_ms: tuple[int, ...]
    shard_drifts_ppm: tuple[int, ...]

    def describe(self) -> str:
        return (
            f"seed {self.seed} ({self.name}): {self.nodes} nodes, {self.shards} shards, {len(self.keys)} keys, "
            f"{len(self.asks)} requests, {len(self.faults)} faults"
        )
