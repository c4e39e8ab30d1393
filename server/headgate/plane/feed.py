"""The feed of a plane: a node's copy of the log, and the rules that the store takes from it.

The copy is the log in a database of the node's own. It is always at some published version; what of it is in force is
the store's matter. Entries are taken as they come, and the store is handed the latest state whenever it is free:
however many come at once, it is never behind by more than one hand-over.
"""

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate import __version__
from headgate.clock import Clock
from headgate.plane.database import Sqlite
from headgate.plane.entry import NOWHERE, FollowerRefusal, FollowerState, FromPlane
from headgate.plane.files import DomainFiles
from headgate.plane.following import Following
from headgate.plane.link import PlaneAddress, PlaneLink
from headgate.plane.rule_log import RuleLog
from headgate.rules.feed import Feed, FeedKind, Outcome, Taker
from headgate.rules.problems import Problem, RulesError
from headgate.rules.source import RulesSource, source_of


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
        merge_domains: bool = False,
    ) -> None:
        super().__init__(clock.now_ms() / 1000)
        self._clock = clock
        self._me = me
        self._merge_domains = merge_domains
        # Without a data directory the copy is gone with the process, as all that it keeps.
        self._scratch = None if data_dir is not None else tempfile.TemporaryDirectory(prefix="headgate-plane-")
        self._log = RuleLog(Sqlite(data_dir or Path(self._scratch.name if self._scratch else "")))
        self._files = DomainFiles(self._log)
        self._following = Following(me, self._log)
        self._taken = NOWHERE
        """Position of the rules that the store was handed last."""
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
        return self._source() if self._log.position.index else None

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
        return await asyncio.to_thread(self._following.received, said, self._clock.monotonic())

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
        return [replace(self._me, has=self._taken, since_ms=self._since_ms, refused=self._refused)]

    # The store

    async def _hand_over(self, taker: Taker) -> None:
        """Hand the latest state over whenever there is another, and say when the plane can't be heard."""
        if not self._log.position.index:
            self._following.in_force = False
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if self._lost and not self.link.state.connected:
                taker.cannot_read(RulesError([Problem(f"plane://{self.link.plane}", 1, self._lost)], transient=True))
                continue
            self._lost = ""
            if self._log.position.index:
                await self._hand_over_now(taker)

    async def _hand_over_now(self, taker: Taker) -> None:
        position = self._log.position
        outcome = await taker.take(await asyncio.to_thread(self._source))
        self._taken = position
        self._judged(outcome)
        if position == self._log.position:
            self._following.in_force = not outcome.refused

    def _judged(self, outcome: Outcome) -> None:
        self._since_ms = self._clock.now_ms()
        self._refused = tuple(
            FollowerRefusal(item.domain, "; ".join(problem.reason for problem in item.problems[:3]))
            for item in outcome.refused
        )

    def _source(self) -> RulesSource:
        return source_of(self._files.current(), merge_domains=self._merge_domains)


def myself(name: str, region: str, *, relay: bool) -> FollowerState:
    """Name this process, as the plane will know it."""
    return FollowerState(name, region, __version__, relay)
