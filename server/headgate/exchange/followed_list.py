"""The region's list of shards, as its exchangers follow it: nodes agree on it, and exchangers go by it.

An exchanger has no say in which list comes next. It asks the shards again and again; until it has heard of a list, what
it does by the one before is refused where that would matter (docs/convergence.md, section 12).
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.errors import ConfigError
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.read_list import ReadList
from headgate.origin.placement import Placement

READ_TIMEOUT_S: Final = 0.9
UNKNOWN: Final = 3
"""Looks in a row after which a list that no shard knows of is over: the region has lost everything, and began anew. A
shard that has lost its memory is told the list again by the next heartbeat, within a second."""


class FollowedList:
    """Keeps one process's origin placed by the list that its region goes by."""

    def __init__(self, origin: Origin, logger: FilteringBoundLogger) -> None:
        self._origin = origin
        self._logger = logger
        self._refused = ""
        """Reason why the region's list is not usable here, as last logged."""
        self._unknown = 0
        """Looks in a row at which no shard knew of the list that this goes by."""

    @property
    def placement(self) -> Placement:
        """The list of shards in force, as far as is known here."""
        return self._origin.placement

    async def look(self) -> None:
        """Go by the latest list that any shard has heard of, as far as they answer."""
        if not self._origin.listed:
            return  # there is nothing to agree on
        now = self._origin.placement
        names = dict.fromkeys((*now.shards, *now.before))
        found = await self._ask(names)
        all_answered = len(found) == len(names)
        if not found:
            # None of the list is there any more: those of the settings may know what became of it.
            found = await self._ask(self._origin.listed)
        latest = Placement(0, self._origin.listed)
        for placement in found:
            latest = placement if placement.overrules(latest) else latest
        self._unknown = self._unknown + 1 if all_answered and latest.number < now.number else 0
        if latest.overrules(now) or self._unknown >= UNKNOWN:
            self._unknown = 0
            await self._go_by(latest)

    async def _ask(self, names: Iterable[str]) -> list[Placement]:
        shards = [self._origin.shard_named(name) for name in dict.fromkeys(names)]
        asking = [self._origin.run(shard, ReadList(), READ_TIMEOUT_S) for shard in shards]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, OriginError):
                raise answer
        return [answer for answer in answers if isinstance(answer, Placement)]

    async def _go_by(self, placement: Placement) -> None:
        former = set(self._origin.placed_on)
        try:
            for name in (*placement.shards, *placement.before):
                self._origin.shard_named(name)
        except ConfigError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                self._logger.error("shard_list_refused", number=placement.number, reason=self._refused)
            return
        self._origin.place_by(placement)
        self._logger.info("exchange_list", number=placement.number, shards=list(placement.shards))
        for shard in former.difference(self._origin.placed_on):
            await self._origin.leave(shard)
