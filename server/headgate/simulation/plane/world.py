"""Root, relays and nodes of a plane on virtual time. Logs and both sides of streams are the ones that serve.

Each message is on its way by itself: it may be lost, come twice or late, or be cut short. A process that is killed
forgets all but its disk.
"""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate.errors import BadRequest
from headgate.plane.database import SCHEMA, Rows, SqlConnection
from headgate.plane.entry import (
    Beat,
    FollowerHello,
    FollowerState,
    FromFollower,
    FromPlane,
    LogEntry,
    Position,
    RuleChange,
)
from headgate.plane.following import Following
from headgate.plane.link import SILENCE_S
from headgate.plane.node_copy import NodeCopy
from headgate.plane.rule_log import RuleLog
from headgate.plane.watching import Watching
from headgate.rules.model import Match
from headgate.simulation.network import Way
from headgate.simulation.plane.decisions import NodeRules
from headgate.simulation.plane.history import NODES, RELAYS, PlaneFaultKind

STEP_S: Final = 0.05
"""Seconds after which a stream is looked after, on either side."""
LATE_S: Final = 3.0
MOST_BEHIND: Final = 1
"""Entries that a follower may miss: few, so that many days have snapshots in them."""


class MemoryDatabase:
    """A disk: one sqlite in memory, which outlives its process. Implements `Database` for one caller at a time."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for statement in SCHEMA:
            self._connection.execute(statement)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement."""
        return self._connection.execute(statement, values)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        self._connection.executemany(statement, rows)

    @contextmanager
    def writing(self) -> Iterator[SqlConnection]:
        self._connection.execute("BEGIN")
        try:
            yield self
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[SqlConnection]:
        yield self

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class PlanePath(Way):
    """The way between a follower and its plane, both directions, and how it is doing."""

    chance: random.Random
    faults: set[PlaneFaultKind] = field(default_factory=set)

    def send(self, said: Any, deliver: Callable[[Any], None]) -> None:
        """Send a message on its way."""
        loop, chance = asyncio.get_running_loop(), self.chance
        if PlaneFaultKind.PARTITION in self.faults:
            return
        if PlaneFaultKind.LOST in self.faults and chance.random() < 0.3:
            return
        if PlaneFaultKind.CUT_SHORT in self.faults and chance.random() < 0.3:
            said = cut_short(said)
        delay_s = round(chance.uniform(0.001, 0.02), 6)
        if PlaneFaultKind.LATE in self.faults and chance.random() < 0.3:
            delay_s += round(chance.uniform(0, LATE_S), 6)
        loop.call_later(delay_s, deliver, said)
        if PlaneFaultKind.REPEATED in self.faults and chance.random() < 0.3:
            loop.call_later(delay_s + round(chance.uniform(0, LATE_S), 6), deliver, said)


def cut_short(said: Any) -> Any:
    """Take the last change out of a message, if it has one."""
    if getattr(said, "changes", ()):
        return replace(said, changes=said.changes[:-1])
    return replace(said, rules=said.rules[:-1]) if getattr(said, "rules", ()) else said


class SimulatedPlane:
    """A process that serves followers: the root, or a relay."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = MemoryDatabase()
        self.alive = True
        self.log = RuleLog(self.disk, MOST_BEHIND)
        self.age_ms: Callable[[], int] = lambda: 0
        self._streams: dict[str, tuple[int, Watching]] = {}

    def heard(self, follower: "SimulatedFollower", stream: int, said: FromFollower) -> None:
        """Take in a message of a follower's stream."""
        if not self.alive or not isinstance(said, FollowerHello):
            return
        known = self._streams.get(follower.name)
        if known is None or known[0] != stream:
            known = self._streams[follower.name] = (stream, Watching(self.log, self._age_now))
        known[1].hello(said.follower.has)

    def _age_now(self) -> int:
        # What a relay is asked changes when it is made the root.
        return self.age_ms()

    def tell(self, follower: "SimulatedFollower", stream: int, now_s: float) -> list[FromPlane]:
        """Return what is to be sent on a follower's stream."""
        known = self._streams.get(follower.name)
        if not self.alive or known is None or known[0] != stream:
            return []
        return list(known[1].outgoing(now_s))

    def kill(self) -> None:
        """Forget all but the disk."""
        self.alive = False
        self._streams = {}

    def restart(self, *, wiped: bool) -> None:
        """Come back."""
        if wiped:
            self.disk = MemoryDatabase()
        self.log = RuleLog(self.disk, MOST_BEHIND)
        self._streams = {}
        self.alive = True


class SimulatedFollower:
    """A process that follows: a relay, or a node."""

    def __init__(
        self, plane: SimulatedPlane, sources: list[SimulatedPlane], relay: bool, chance: random.Random
    ) -> None:
        self.plane = plane
        """Its own log, which a relay serves to others."""
        self.name = plane.name
        self.sources = sources
        """Planes that it may follow, in order."""
        self.relay = relay
        self.path = PlanePath(chance=chance)
        self.refuses: str | None = None
        self.in_force: dict[str, list[RuleChange]] = {}
        """Records by domain, as they decide requests; a node's alone."""
        self.rules = NodeRules()
        self.asked_at: Position | None = None
        """End of its source's log when it last asked to begin."""
        self.moved: Callable[[], None] = lambda: None
        self.beaten: Callable[[], None] = lambda: None
        self._chance = chance
        self._stream = 0
        self._heard_s = 0.0
        self._loop = asyncio.get_running_loop()
        self.following = self._follow()
        if relay:
            plane.age_ms = self._age_ms

    def _follow(self) -> Following:
        self.copy = NodeCopy(self.plane.log)
        return Following(FollowerState(self.name, "eu", "1", self.relay), self.plane.log if self.relay else self.copy)

    def _age_ms(self) -> int:
        fresh_s = self.following.fresh_s
        return 10**9 if fresh_s is None else int(1000 * (self._loop.time() - fresh_s))

    async def run(self) -> None:
        """Follow, stream after stream."""
        turn = 0
        while True:
            source = self.sources[turn % len(self.sources)]
            self._stream += 1
            self._heard_s = self._loop.time()
            self.following.connected(self._loop.time())
            await self._converse(source, self._stream)
            turn += 1
            await asyncio.sleep(self._chance.uniform(0, 1))

    async def _converse(self, source: SimulatedPlane, stream: int) -> None:
        while self._loop.time() - self._heard_s <= SILENCE_S and stream == self._stream:
            now_s = self._loop.time()
            if self.plane.alive:
                for said in self.following.requests([], now_s):
                    self.asked_at = source.log.position if isinstance(said, FollowerHello) else self.asked_at
                    self.path.send(said, lambda said: source.heard(self, stream, said))
                for answer in source.tell(self, stream, now_s):
                    self.path.send(answer, lambda said: self._receive(stream, said))
            await asyncio.sleep(STEP_S)

    def _receive(self, stream: int, said: FromPlane) -> None:
        if not self.plane.alive or stream != self._stream:
            return
        self._heard_s = self._loop.time()
        if self.following.received(said, self._loop.time()) and self._written():
            self.take(said if isinstance(said, LogEntry) else None)
            self.moved()
        if isinstance(said, Beat):
            self.beaten()

    def _written(self) -> bool:
        """Write what a node has noted; false where it led elsewhere than it said."""
        try:
            self.copy.write()
        except BadRequest as error:
            self.following.refused(error, self._loop.time())
            return False
        return True

    def match(self, domain: str, user: str) -> Match | None:
        """Return the limit that a request meets on a node."""
        return self.rules.current.match(domain, [("user", user)])

    def take(self, entry: LogEntry | None = None) -> None:
        """Bring into force what the copy has, but for a domain that can't be taken; `entry` is what it took last."""
        rules: dict[str, list[RuleChange]] = {}
        for part in self.plane.log.parts():
            for rule in part.rules:
                rules.setdefault(rule.domain, []).append(rule)
        refused = self.refuses
        if refused is not None and self.in_force.get(refused) != rules.get(refused):
            rules.pop(refused, None)
            rules |= {refused: self.in_force[refused]} if refused in self.in_force else {}
            self.following.in_force = False
        else:
            self.following.in_force = True
        self.in_force = rules
        if not self.relay:
            self.rules.take(self.plane.log, entry, None if self.following.in_force else refused)

    def kill(self) -> None:
        """Forget all but the disk."""
        self.plane.kill()
        self._stream += 1

    def restart(self, *, wiped: bool) -> None:
        """Come back."""
        self.plane.restart(wiped=wiped)
        self.following = self._follow()
        if wiped:
            self.in_force, self.rules = {}, NodeRules()
        if self.plane.log.position.index:
            self.take()


class PlaneWorld:
    """One root, relays below it, nodes below those."""

    def __init__(self, seed: int) -> None:
        def chance(name: str) -> random.Random:
            return random.Random(f"{seed} {name}")  # noqa: S311 - to be repeated, not guessed at

        self.chance = chance("operators")
        self.root = SimulatedPlane("root")
        self.root.log.name("0-first")
        relays = [SimulatedPlane(f"relay{number}") for number in range(RELAYS)]
        self.relays = [SimulatedFollower(relay, [self.root], True, chance(relay.name)) for relay in relays]
        self.nodes: list[SimulatedFollower] = []
        for number in range(NODES):
            name = f"node{number}"
            sources = [relays[number % RELAYS], relays[(number + 1) % RELAYS]]
            self.nodes.append(SimulatedFollower(SimulatedPlane(name), sources, False, chance(name)))

    @property
    def followers(self) -> list[SimulatedFollower]:
        """Relays and nodes, in the order of their indexes in a history."""
        return [*self.relays, *self.nodes]

    def promote(self) -> None:
        """Lose the root for good, and make the first relay the root of the others."""
        self.root.kill()
        first, *others = self.relays
        self.relays = others
        self.root = first.plane
        if not self.root.alive:
            first.restart(wiped=False)
        self.root.age_ms = lambda: 0
        self.root.log.name("1-second")
        for relay in others:
            relay.sources = [self.root]
