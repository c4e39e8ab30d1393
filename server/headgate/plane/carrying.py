"""Carries rollouts on at the root, and ends shadows whose time is over: one look a second, each step an entry."""

import asyncio
import contextlib
from collections import Counter
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.errors import NotReady
from headgate.plane.entry import LogEntry, RuleChange
from headgate.plane.marks import RolloutRecord, ShadowRecord, without
from headgate.plane.plane import Plane
from headgate.plane.records import Records
from headgate.plane.rollouts import Move, RolloutEnd, next_move, standing
from headgate.plane.rule_log import Author
from headgate.plane.staging import at_share, put_into_force, taken_back

LOOK_S: Final = 1.0
"""Seconds between looks."""
MYSELF: Final = "plane"
"""Author of the entries that nobody asked for."""


class Carrying:
    """Takes the steps that are due."""

    def __init__(self, plane: Plane, logger: FilteringBoundLogger) -> None:
        self._plane = plane
        self._logger = logger

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            # What can't be written now is due at the next look too.
            with contextlib.suppress(NotReady):
                await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Take every step that is due now."""
        plane = self._plane
        rollouts, shadows = await plane.read(self._under_way)
        plane.tallies.keep(rollouts)
        now_ms, followers = plane.clock.now_ms(), plane.everybody()
        plane.stats.under_way = Counter(standing(rollout, followers, now_ms) for rollout in rollouts)
        plane.stats.shadows = len(shadows)
        for rollout in rollouts:
            move = next_move(rollout, plane.tallies.of(rollout.domain, rollout.rollout), followers, now_ms)
            if move is not None:
                await self._make(move)
        for shadow in shadows:
            if now_ms >= shadow.until_ms:
                await self._end(shadow)

    def _under_way(self) -> tuple[list[RolloutRecord], list[ShadowRecord]]:
        with self._plane.log.looking() as records:
            return records.rollouts(), records.shadows()

    async def _make(self, move: Move) -> None:
        rollout, plane = move.rollout, self._plane
        author = Author(MYSELF, move.why, plane.clock.now_ms(), rollout.began_index)

        def changes(records: Records) -> list[RuleChange]:
            if records.rollout(rollout.domain) != rollout:
                # Somebody was faster: it is looked at again.
                return []
            if move.outcome is RolloutEnd.DONE:
                return put_into_force(records, rollout)
            if move.outcome is RolloutEnd.ROLLED_BACK:
                return taken_back(records, rollout)
            return at_share(rollout, move.share, author.now_ms, plane.log.position)

        for entry in (await plane.append(changes, author, move.outcome or RolloutEnd.CANCELLED)).entries:
            self._log(move, entry)

    async def _end(self, shadow: ShadowRecord) -> None:
        author = Author(MYSELF, "the shadow's time is over", self._plane.clock.now_ms(), shadow.began_index)

        def changes(records: Records) -> list[RuleChange]:
            return [without(shadow.record())] if shadow in records.shadows() else []

        for entry in (await self._plane.append(changes, author)).entries:
            self._logger.info("shadow_ended", domain=shadow.domain, index=entry.position.index)

    def _log(self, move: Move, entry: LogEntry) -> None:
        rollout = move.rollout
        is_rolled_back = move.outcome is RolloutEnd.ROLLED_BACK
        # Callers were denied whom nobody meant to deny: somebody has to look.
        emit = self._logger.error if is_rolled_back else self._logger.info
        emit(
            "rollout_rolled_back" if is_rolled_back else "rollout_moved" if move.outcome is None else "rollout_done",
            domain=rollout.domain,
            rollout=rollout.rollout,
            who=rollout.who,
            reason=move.why,
            share=move.share,
            index=entry.position.index,
        )
