"""A node's part in its region's list of shards: it learns of it, proposes the next, and moves keys when it changes.

Which list is in force when is decided in shard_lists.py; records are moved by mover.py. Here the two meet the node: its
links, its counters, its tasks. (docs/convergence.md, section 12.)
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.errors import ConfigError
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.change_list import ChangeList
from headgate.origin.operations.heartbeat import Pulse
from headgate.origin.placement import NO_PLACEMENT, Placement
from headgate.origin.region_map import MAP_KEY
from headgate.region.counters import SharedCounter
from headgate.region.extension import CallExtension
from headgate.region.mover import Mover, PlaceOf
from headgate.region.region_map import RegionMapReplica
from headgate.region.shard_link import CALL_TIMEOUT_S, ShardLink
from headgate.region.shard_lists import ShardLists

PROPOSE_TIMEOUT_S: Final = 1.0
"""For a proposal: the next heartbeat makes it again."""
STEPS: Final = 1_000
"""Counters looked at before the loop gets its turn again: well under a millisecond."""
FIRST_CHANGED: Final = 2
"""Number of the first list that came after another one."""
PINNED_S: Final = 0.1
"""Pause before counters are looked at again that calls or requests held on to."""


class ListedNode(Protocol):
    """The node, as the keeper of its list needs it."""

    extension: CallExtension
    links: list[ShardLink]
    region_map: RegionMapReplica

    def live_counters(self) -> Iterable[SharedCounter]:
        """Return all counters of the node."""

    def do(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Have something done beside the requests."""

    async def beat(self, link: ShardLink) -> None:
        """Tell a shard that this node lives, and take in what it says."""

    def meet(self, index: int) -> None:
        """Get in touch with a shard that was named."""

    async def part(self, index: int) -> None:
        """Lose touch with a shard that no list names any more."""


class ShardListKeeper:
    """Keeps one node to the list of shards that its region has agreed on."""

    def __init__(
        self,
        node: ListedNode,
        origin: Origin,
        place_of: PlaceOf,
        clock: Clock,
        logger: FilteringBoundLogger,
        *,
        run: bytes,
        deadline_s: float,
    ) -> None:
        self.lists = ShardLists(origin.listed)
        self.mover = Mover(origin, run, place_of, node.extension.may_come)
        self._agrees = bool(origin.listed)
        self._node = node
        self._origin = origin
        self._monotonic: Callable[[], float] = clock.monotonic
        self._logger = logger
        self._names = {origin.shard_named(name): name for name in origin.listed}
        self._moving = False
        """True while counters may be on a shard that their keys leave."""
        self._all_came = True
        """True if any key may have come to its shard by the list in force: the node did not know the one before, or a
        shard of that was given up."""
        self._settled_s = deadline_s + CALL_TIMEOUT_S
        """Time after which no request and no call holds on to a counter that the node has let go of."""
        self._walks: list[asyncio.Task[None]] = []
        self._refused = ""
        """Reason why the region's list is not usable here, as last logged."""
        self._busy: set[str] = set()
        """Things that are being done, each once at a time."""

    @property
    def named(self) -> list[int]:
        """Numbers of the shards that a list names; none where keys are placed otherwise."""
        return [self._name(name) for name in self.lists.names]

    # What the node says and hears

    @property
    def number(self) -> int:
        """Number of the list in force; 0: none is agreed."""
        return self.lists.placement.number if self._agrees else 0

    @property
    def told(self) -> Placement:
        """The placement that heartbeats tell."""
        return self.lists.placement if self.number else NO_PLACEMENT

    def said(self) -> bytes:
        """Return the list that heartbeats say the node wants."""
        return self.lists.said(self._monotonic()) if self._agrees else b""

    @property
    def placed_by(self) -> tuple[str, ...]:
        """The list of shards in force."""
        return self.lists.placement.shards

    @property
    def changing(self) -> bool:
        """True while the list that is wanted here is not in force, or keys move to it."""
        return self._agrees and (self.lists.changing or self._moving)

    def want(self, shards: tuple[str, ...]) -> None:
        """Want another list, by the settings. Raises ConfigError for a name that is none."""
        if shards == self.lists.wanted:
            return
        for name in shards:
            self._name(name)
        self.lists.want(shards)
        self._logger.info("shard_list_wanted", shards=list(shards))
        self._keep_in_touch()

    def heard(self, index: int, said: bytes, pulse: Pulse) -> None:
        """Take in what a shard says of lists; go by a new one, and propose the next, if it is time."""
        if not self._agrees:
            return
        now_s = self._monotonic()
        pulse = pulse._replace(placement=self._usable(pulse.placement))
        if self.lists.hear(self._names[index], said, pulse, now_s):
            self._placed()
        if self.lists.next_placement(now_s) is not None:
            self._once("propose", self.agree())

    def missed(self, index: int) -> None:
        """Note that a shard did not answer a heartbeat."""
        if self._agrees:
            self.lists.miss(self._names[index], self._monotonic())

    def describe(self) -> Mapping[str, Any]:
        """Return, for people, the list in force, and what a change of it waits for."""
        if not self._agrees:
            return {}
        number, shards, before = self.lists.placement
        said: dict[str, Any] = {"list": {"number": number, "shards": list(shards)}}
        if self.changing:
            said["list"] |= {
                "moving_from": list(before),
                "wanted": list(self.lists.wanted),
                "waits_for": self.lists.waits_for(self._monotonic()),
            }
        return said

    # Another list

    async def agree(self) -> None:
        """Have the region take the next list, if it is time; go by what it has then."""
        proposal = self.lists.next_placement(self._monotonic()) if self._agrees else None
        if proposal is None:
            return
        try:
            decider = self._origin.shard_named(self.lists.decider)
            decided = await self._origin.run(decider, ChangeList(proposal), PROPOSE_TIMEOUT_S)
        except OriginError:
            return
        if self.lists.learn(self._usable(decided)):
            self._placed()

    def _usable(self, placement: Placement) -> Placement:
        """Return the placement, if its shards can be reached by their names; else none, and say so once."""
        try:
            for name in (*placement.shards, *placement.before):
                self._name(name)
        except ConfigError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                self._logger.error("shard_list_refused", number=placement.number, reason=self._refused)
            return NO_PLACEMENT
        return placement

    def _placed(self) -> None:
        """Go by the placement that is in force now."""
        placement, former = self.lists.placement, self._origin.placement
        if placement.number != former.number:
            follows = former.number == placement.number - 1
            self._all_came = not follows or set(former.shards) != set(placement.before)
        self._origin.place_by(placement)
        self._keep_in_touch()
        map_shard = self._origin.shard_of(MAP_KEY)
        self._node.region_map.keep_at(map_shard, self._node.links[map_shard].session.now_ms)
        for walk in self._walks:
            walk.cancel()
        self._moving = True
        if placement.before:
            self._logger.info("shard_list_changing", shards=list(placement.shards), before=list(placement.before))
            self._walks = [
                self._node.do(self.mover.walk(self._name(name), placement.number), f"move-{name}")
                for name in placement.before
            ]
        else:
            self._once("rehome", self._rehome())

    def _name(self, name: str) -> int:
        index = self._origin.shard_named(name)
        self._names[index] = name
        return index

    def _keep_in_touch(self) -> None:
        for index in self.named:
            self._node.meet(index)

    def _once(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Have something done, unless it is being done."""
        if what in self._busy:
            work.close()
            return
        self._busy.add(what)
        self._node.do(self._alone(what, work), what)

    async def _alone(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._busy.discard(what)

    # Keys that move

    def leaving(self, index: int, counters: Sequence[SharedCounter]) -> tuple[int, ...]:
        """Return the positions of those counters whose keys leave the shard."""
        if not self._moving:
            return ()
        home = self._origin.shard_of
        return tuple([position for position, counter in enumerate(counters) if home(counter.place) != index])

    def came_by(self, counter: SharedCounter) -> int:
        """Return the number of the list by which a counter's key came to its shard; 0 if it was there before."""
        number, index = self.number, counter.shard.index
        if number < FIRST_CHANGED:
            return 0
        if not self._moving:
            return number
        if index != self._origin.shard_of(counter.place):
            return 0
        stayed = not self._all_came and self._origin.shard_before(counter.place) == index
        return 0 if stayed and self.lists.placement.before else number

    def not_here(self, counter: SharedCounter, *, sealed: bool) -> None:
        """Find the shard where a counter's record is, its own having none; `sealed`: it is on its way."""
        index, home = counter.shard.index, self._origin.shard_of(counter.place)
        before = self._origin.shard_before(counter.place)
        if index == home:
            # The region has another list, and this node has not heard of it yet.
            self._once(f"beat-{index}", self._node.beat(self._node.links[index]))
        elif sealed:
            self._node.do(self.mover.bring(index, self.number, counter.key, counter.place), "bring")
        else:
            # From a list before the last one it comes by way of the last one's shard, which may have the record.
            counter.move_to(self._node.links[home if index == before else before].session)

    async def _rehome(self) -> None:
        """Have every counter belong to the shard of its key, unless keys move again; then lose touch with the shards
        that no list names.
        """
        clean_s = 0.0
        while clean_s < self._settled_s and not self.lists.placement.before:
            clean_s = 0.0 if await self._move_counters() else clean_s + PINNED_S
            await asyncio.sleep(PINNED_S)
        if self.lists.placement.before:
            return
        self._moving = False
        self._logger.info("shard_list_in_force", shards=list(self.placed_by))
        in_use = self.named
        for link in self._node.links:
            if link.in_use and link.index not in in_use:
                await self._node.part(link.index)

    async def _move_counters(self) -> bool:
        """Move the counters that nobody holds on to; return whether there were any to be moved."""
        placement, found = self.lists.placement, False
        unfinished = [counter for link in self._node.links if link.in_use for counter in link.session.unfinished()]
        for step, counter in enumerate([*self._node.live_counters(), *unfinished]):
            home = self._node.links[self._origin.shard_of(counter.place)].session
            if counter.shard is not home:
                found = True
                if not counter.pins:
                    counter.move_to(home)
            if step % STEPS == STEPS - 1:
                await asyncio.sleep(0)
                if self.lists.placement is not placement:
                    return True
        return found
