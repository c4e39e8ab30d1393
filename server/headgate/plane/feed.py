"""The feed of a plane: a node's copy of the log, and the rules that the store takes from it.

The copy is the rules of the log in a database of the node's own. It is always at some published version; what of it
is in force is the store's matter. Entries are noted as they come; whenever the store is free they are written to the
copy and handed to it as changes, the first at once and then all that came in a tenth of a second: however many come, it
is never behind by more than one hand-over, and what they cost beside decisions is bounded. Where it has other rules in
force than the changes are of, it is handed everything, as files.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headgate import __version__
from headgate.clock import Clock
from headgate.errors import BadRequest
from headgate.plane.database import Sqlite
from headgate.plane.entry import (
    NOWHERE,
    FollowerRefusal,
    FollowerState,
    FromPlane,
    LogEntry,
    Position,
    RecordKind,
    RolloutCounts,
    RulesPart,
)
from headgate.plane.files import DomainFiles, rule_changes
from headgate.plane.following import Following
from headgate.plane.link import PlaneAddress, PlaneLink
from headgate.plane.node_copy import NodeCopy
from headgate.plane.rule_log import RuleLog
from headgate.rules.feed import ChangesOf, Feed, FeedKind, Outcome, Taker
from headgate.rules.marks import Marks
from headgate.rules.problems import OtherVersion, Problem, RulesError
from headgate.rules.source import RulesSource

PAUSE_S: Final = 0.1
"""Least seconds between two hand-overs: each new version costs a node a millisecond, and a look at every plan that it
keeps. Longer, and a change is longer on its way than it need be."""

Decided = Callable[[str, str, bool], tuple[int, int]]
"""Decisions on requests that a rollout concerns, and denials among them: by domain, name, and if by staged rules."""


class PlaneFeed(Feed):
    """Rules from a plane, each domain as the file `plane/<domain>`."""

    kind: FeedKind = "plane"

    def __init__(
        self,
        plane: PlaneAddress,
        me: FollowerState,
        data_dir: Path | None,
        *,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        super().__init__(clock.now_ms() / 1000)
        self._clock = clock
        self._me = me
        # Nobody follows a node: of the log it needs the rules, and none of the entries that led to them.
        self._log = RuleLog(Sqlite(data_dir, is_copy=True), keeps_entries=False)
        self._copy = NodeCopy(self._log)
        self._files = DomainFiles(self._log)
        self._following = Following(me, self._copy)
        self._taken = NOWHERE
        """Position of the rules that the store was handed last."""
        self._marks: Mapping[str, Marks] = {}
        """Marks of the domains, as the store was handed them last."""
        self.decided: Decided = lambda domain, rollout, staged: (0, 0)
        """Counts the decisions on requests that a rollout concerns."""
        self._since_ms = 0
        self._refused: tuple[FollowerRefusal, ...] = ()
        self._dirty = asyncio.Event()
        self._lost = ""
        """Reason why the plane is not heard, until the store has heard that it is there again."""
        self.link = PlaneLink(
            plane,
            self._following,
            clock,
            rng,
            receive=self._receive,
            moved=self._moved,
            heard=self._heard,
            lost=self._note_lost,
            states=self._states,
        )

    def first(self) -> RulesSource | None:
        # The store has the last good set compiled; `watch` compares it with the copy.
        return None

    def describe(self) -> Mapping[str, Any]:
        at, head, state = self._log.position, self._following.head, self.link.state
        return {
            "kind": self.kind,
            "from": f"plane://{self.link.plane}",
            "connected": state.connected,
            "address": state.address,
            "streams": state.streams,
            "plane": at.plane,
            "index": at.index,
            "version": at.version,
            "head": head.index,
            "error": self._following.error,
        }

    async def watch(self, taker: Taker) -> None:
        handing = asyncio.ensure_future(self._hand_over(taker))
        following = asyncio.ensure_future(self.link.follow())
        try:
            await asyncio.wait({handing, following}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (handing, following):
                if ended.done():
                    ended.result()
        finally:
            for task in (handing, following):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    # The stream

    async def _receive(self, said: FromPlane) -> bool:
        now_s = self._clock.monotonic()
        if isinstance(said, RulesPart):
            return await asyncio.to_thread(self._following.received, said, now_s)
        if isinstance(said, LogEntry) and self._copy.is_full:
            try:
                await asyncio.to_thread(self._copy.make_room)
            except BadRequest as error:
                self._following.refused(error, now_s)
                return False
        return self._following.received(said, now_s)

    def _moved(self) -> None:
        self._following.in_force = False
        self._dirty.set()

    def _heard(self) -> None:
        fresh_s = self._following.fresh_s
        if fresh_s is not None:
            self.looked_at = self._clock.now_ms() / 1000 - (self._clock.monotonic() - fresh_s)
        if self._lost and self._following.is_at_head:
            self._dirty.set()

    def _note_lost(self, reason: str) -> None:
        self._lost = reason
        self._dirty.set()

    def _states(self) -> list[FollowerState]:
        rollouts = [
            RolloutCounts(
                name, rollout.name, *self.decided(name, rollout.name, True), *self.decided(name, rollout.name, False)
            )
            for name, marks in self._marks.items()
            if (rollout := marks.rollout) is not None
        ]
        state = replace(self._me, has=self._taken, since_ms=self._since_ms, refused=self._refused)
        return [replace(state, rollouts=tuple(rollouts))]

    # The store

    async def _hand_over(self, taker: Taker) -> None:
        """Hand over what is new whenever there is something, and say when the plane can't be heard."""
        # What the copy has may be what the store had saved, and then there is nothing to compile.
        self._following.in_force = False
        self._dirty.set()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            handed_s = self._clock.monotonic()
            if self._copy.position.index and not self._following.in_force:
                await self._hand_over_now(taker)
            if self._lost and not self.link.state.connected:
                taker.cannot_read(RulesError([Problem(f"plane://{self.link.plane}", 1, self._lost)], transient=True))
            elif self._lost and self._following.is_at_head:
                self._lost = ""
                await self._give(taker)
            await asyncio.sleep(max(0.0, handed_s + PAUSE_S - self._clock.monotonic()))

    async def _hand_over_now(self, taker: Taker) -> None:
        try:
            outcome = await self._give(taker)
        except BadRequest as error:
            self._following.refused(error, self._clock.monotonic())
            return
        self._judged(outcome)
        if self._taken == self._copy.position:
            self._following.in_force = not outcome.refused

    async def _give(self, taker: Taker) -> Outcome:
        """Hand over what came as changes; or everything where that can't be, or where there is nothing to go by. Raises
        BadRequest where what came leads elsewhere than it says."""
        outcome = await self._changed(taker)
        if outcome is not None:
            return outcome
        now, source = await asyncio.to_thread(self._files.current)
        self._marks = source.marks
        outcome = await taker.take(source)
        self._taken = now
        return outcome

    async def _changed(self, taker: Taker) -> Outcome | None:
        """Hand over what came as changes; None where the store has to have everything."""
        made: list[tuple[Position, Mapping[str, Marks]]] = []

        def make() -> ChangesOf | None:
            position, entries = self._copy.write()
            marks = None if entries is None else self._marks_at(position, entries)
            if entries is None or marks is None:
                return None
            made.append((position, marks))
            before = entries[0].predecessor if entries else position.version
            return ChangesOf(before, position.version, tuple(rule_changes(entries, self._log, marks)))

        try:
            outcome = await taker.change(make)
        except (OtherVersion, RulesError):
            return None
        if outcome is not None:
            self._taken, self._marks = made[-1]
        return outcome

    def _marks_at(self, position: Position, entries: Sequence[LogEntry]) -> Mapping[str, Marks] | None:
        """Return the marks where entries led; None where this version can't read them, and their domain has to be
        refused, or where all rules came meanwhile."""
        if entries and not self._concern_marks(entries):
            return self._marks
        try:
            now, marks = self._log.read_marks()
        except (RulesError, ValueError, LookupError, TypeError):
            return None
        return marks if now == position else None

    def _concern_marks(self, entries: Sequence[LogEntry]) -> bool:
        """Say if entries change marks, or rules that have some over them."""
        changes = (change for entry in entries for change in entry.changes)
        return any(change.kind is not RecordKind.RULE or change.domain in self._marks for change in changes)

    def _judged(self, outcome: Outcome) -> None:
        self._since_ms = self._clock.now_ms()
        self._refused = tuple(
            FollowerRefusal(item.domain, "; ".join(problem.reason for problem in item.problems[:3]))
            for item in outcome.refused
        )


def myself(name: str, region: str, *, relay: bool) -> FollowerState:
    """Name this process, as the plane will know it."""
    return FollowerState(name, region, __version__, relay)
