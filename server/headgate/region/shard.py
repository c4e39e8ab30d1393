"""What a counter and the engine need of a shard. `ShardLink` is the one that serves."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headgate.region.alone import Alone
    from headgate.region.counters import SharedCounter
    from headgate.region.waiting import Question


class ShardTime(Protocol):
    """Whether the time of a shard is known already."""

    known: bool
    """True from the shard's first answer on; until then a node goes by its own clock."""


class ShardBounds(Protocol):
    """The time of a shard, as the free lane reads it."""

    spread_ms: int
    """How far the shard's time may be ahead of `now_ms`."""

    def at_ms(self, now_s: float) -> int:
        """`now_ms` for who has just read the monotonic clock."""
        ...


class Shard(Protocol):
    """One shard of the region's origin, as a node asks it."""

    index: int
    """Its place among the origin's shards; for people and metrics."""

    @property
    def time(self) -> ShardBounds:
        """Its time, as far as it is known."""
        ...

    @property
    def available(self) -> bool:
        """False while asking would only wait for nothing: then the failure policies decide at once."""
        ...

    @property
    def own_time(self) -> ShardTime | None:
        """While the time is this node's own, because there was no answer yet: what will say that there was one."""
        ...

    @property
    def clock_steps(self) -> int:
        """How often its clock was found to have been set. Then time may go back."""
        ...

    def now_ms(self) -> int:
        """The shard's time is at least this."""
        ...

    def new_component(self) -> bytes:
        """The name of a component that this run has never used: for a counter that begins anew."""
        ...

    def certain(self, window_ms: int) -> bool:
        """Whether both bounds of the shard's time lie in one window."""
        ...

    def ask(self, question: "Question | Alone") -> None:
        """Put the question into the next call; it is answered or failed later."""
        ...

    def late(self) -> None:
        """A question was not answered by its request's deadline."""
        ...

    def remembers(self, now_s: float) -> bool:
        """Whether it knows what there is to give back: not while it may have lost its memory, until it is refilled."""
        ...

    def flush(self, counter: "SharedCounter", *, soon: bool, calm: bool = False, back: bool = False) -> None:
        """The counter has something to report: within 25 ms if `soon`, 2 s if `calm`, else 250 ms; in half a second
        what is demanded `back`."""
        ...
