"""A plane that runs: its log, those who wait for the head to move, and those who follow it.

The log's calls block, so a thread makes them: writing in one, one call after the other; reading in a few.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headgate.clock import Clock
from headgate.errors import NotReady
from headgate.plane.checking import check_changes
from headgate.plane.codec import MOST_FOLLOWERS
from headgate.plane.entry import FollowerState, LogEntry, Position, RecordKind, RuleChange
from headgate.plane.records import Records
from headgate.plane.rollouts import RolloutEnd, RolloutTallies, Standing
from headgate.plane.rule_log import Author, RuleLog
from headgate.plane.rule_text import RuleProblem
from headgate.plane.staging import ChangeCall, records_of

READERS: Final = 4
"""Threads that read the log for followers and for operators."""
MOST_WAITING: Final = 64
"""Calls that wait for the one that writes; more are told to come back."""
FORGOTTEN_S: Final = 30.0
"""Seconds after which a follower that reports nothing is no longer one: three reports."""

T = TypeVar("T")


@dataclass(slots=True)
class PlaneStats:
    """Plain counters, read by whoever exports them."""

    entries: int = 0
    """Entries that were appended here: written, or followed."""
    changes: int = 0
    """Changes in these."""
    refused: int = 0
    """Calls whose changes had problems."""
    snapshots: int = 0
    """Times that a follower was sent all rules."""
    streams: int = 0
    """Streams that are open."""
    rollouts: Counter[RolloutEnd] = field(default_factory=Counter)
    """Rollouts that ended here, by how they did."""
    under_way: Counter[Standing] = field(default_factory=Counter)
    """Rollouts that are under way, by how they stand."""
    shadows: int = 0
    """Shadows that have not ended."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The outcome of a call that changes rules: entries, or problems; neither where all is so already."""

    position: Position
    entries: Sequence[LogEntry] = ()
    problems: Sequence[RuleProblem] = ()


@dataclass(slots=True)
class _Seen:
    state: FollowerState
    at_s: float


@dataclass(slots=True, eq=False)
class Plane:
    """The log of one process, and everybody around it."""

    log: RuleLog
    clock: Clock
    upstream: str = ""
    """Address of the plane that this one is a relay of; empty for the root."""
    fresh_s: Callable[[], float | None] | None = None
    """Time at which a relay last knew that it has the root's head, or a root among several the last one's entry; None:
    never. A root that is alone always does."""
    stats: PlaneStats = field(default_factory=PlaneStats)
    tallies: RolloutTallies = field(default_factory=RolloutTallies)
    """Decisions that followers counted of rollouts."""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _followers: dict[str, _Seen] = field(default_factory=dict)
    _elsewhere: dict[str, _Seen] = field(default_factory=dict)
    """Followers of the other roots, where several write one log."""
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "headgate-plane-writer"))
    _readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(READERS, "headgate-plane-reader"))
    _waiting: int = 0

    def close(self) -> None:
        """End the threads and close the log; nothing is asked of it any more."""
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True, cancel_futures=True)
        self.log.close()

    # The log

    async def change(self, changes: Sequence[RuleChange], call: ChangeCall, expect: str) -> Changed:
        """Check and append, at once or in stages. Raises what the caller is to be told."""

        def write() -> Changed:
            with self.log.alone():
                accepted, problems = check_changes(self.log, changes)
                if problems:
                    return Changed(self.log.position, problems=problems)
                with self.log.looking() as records:
                    made = records_of(records, accepted, call, self.log.position)
                entry = self.log.change(made, call.author, expect)
            return Changed(self.log.position, () if entry is None else (entry,))

        return self._note(await self.write(write))

    async def append(
        self,
        changes: Callable[[Records], Sequence[RuleChange]],
        author: Author,
        outcome: RolloutEnd = RolloutEnd.CANCELLED,
    ) -> Changed:
        """Append what comes of a look at the records; `outcome` is that of the rollouts that it ends."""

        def write() -> Changed:
            with self.log.alone():
                with self.log.looking() as records:
                    made = changes(records)
                entry = self.log.change(made, author)
            return Changed(self.log.position, () if entry is None else (entry,))

        return self._note(await self.write(write), outcome)

    async def rollback(
        self, version: str, author: Author, expect: str, allow: Callable[[Iterable[str]], None]
    ) -> Changed:
        """Append what leads back to a version. Raises what the caller is to be told."""

        def write() -> Changed:
            with self.log.alone():
                entries = self.log.rollback(version, author, expect, allow)
            return Changed(self.log.position, entries)

        return self._note(await self.write(write))

    def _note(self, changed: Changed, outcome: RolloutEnd = RolloutEnd.CANCELLED) -> Changed:
        self.stats.refused += bool(changed.problems)
        for entry in changed.entries:
            self.stats.entries += 1
            self.stats.changes += len(entry.changes)
            self.stats.rollouts[outcome] += sum(map(_ends_rollout, entry.changes))
        if changed.entries:
            self.head_moved()
        return changed

    async def write(self, work: Callable[[], T]) -> T:
        """Do something in the thread that writes. Raises NotReady where too many wait for it."""
        if self._waiting >= MOST_WAITING:
            raise NotReady(f"{MOST_WAITING} changes wait already: try again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, work)
        finally:
            self._waiting -= 1

    async def read(self, work: Callable[[], T]) -> T:
        """Do something in a thread that reads."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    # The head

    def head_moved(self) -> None:
        """Wake everybody who waits for the head to move."""
        self._moved.set()
        self._moved = asyncio.Event()

    @property
    def moved(self) -> asyncio.Event:
        """Event that is set when the head moves next."""
        return self._moved

    def age_ms(self) -> int:
        """Time since the log was known to end where the root's does."""
        if self.fresh_s is None:
            return 0
        fresh_s = self.fresh_s()
        # Never fresh is older than anything that anybody looks at.
        return 10**12 if fresh_s is None else max(0, int(1000 * (self.clock.monotonic() - fresh_s)))

    # Followers

    def reported(self, states: Sequence[FollowerState]) -> None:
        """Note what followers have, as they or their relay say."""
        now_s = self.clock.monotonic()
        self.tallies.report(states)
        for state in states:
            if state.name in self._followers or len(self._followers) < MOST_FOLLOWERS:
                self._followers[state.name] = _Seen(state, now_s)

    def told(self, states: Sequence[FollowerState]) -> None:
        """Note who follows other roots, all of them; one who came here meanwhile is known better here."""
        now_s, elsewhere = self.clock.monotonic(), [state for state in states if state.name not in self._followers]
        self.tallies.report(elsewhere)
        self._elsewhere = {state.name: _Seen(state, now_s) for state in elsewhere}

    def left(self, name: str) -> None:
        """Forget a follower whose stream ended."""
        self._followers.pop(name, None)

    def everybody(self) -> list[FollowerState]:
        """Return everybody who follows this plane or another root of it, by name."""
        states = {state.name: state for state in (*self._present(self._elsewhere), *self.followers())}
        return [states[name] for name in sorted(states)][:MOST_FOLLOWERS]

    def followers(self) -> list[FollowerState]:
        """Return everybody who follows this plane, by name, without those that fell silent."""
        return self._present(self._followers)

    def _present(self, seen: dict[str, _Seen]) -> list[FollowerState]:
        oldest_s = self.clock.monotonic() - FORGOTTEN_S
        for name in [name for name, each in seen.items() if each.at_s < oldest_s]:
            del seen[name]
        return [seen[name].state for name in sorted(seen)]


def _ends_rollout(change: RuleChange) -> bool:
    return change.kind is RecordKind.STAGED and not change.path and change.rule is None
