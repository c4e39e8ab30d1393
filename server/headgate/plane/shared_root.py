"""A root among several that write one log: it follows what others write, and tells them who follows it.

An entry that another root wrote is heard of at once, and looked for each second besides. Followers are told through the
store, so that any root can say whether a change is in force everywhere.
"""

import asyncio
import random
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.errors import RequestError
from headgate.plane.mirrored import Mirrored
from headgate.plane.plane import Plane
from headgate.plane.root_reports import RootReports

LOOK_S: Final = 1.0
"""Most seconds between two looks at the store; also between two that fail, with jitter."""


class SharedRoot:
    """Keeps a plane at the end of the log that it shares."""

    def __init__(
        self, plane: Plane, mirrored: Mirrored, me: str, rng: random.Random, logger: FilteringBoundLogger
    ) -> None:
        self._plane, self._mirrored = plane, mirrored
        self._reports = RootReports(mirrored.store, me)
        self._rng = rng
        self._logger = logger
        self._told_s = float("-inf")
        self._seen = plane.log.position
        self._first = self._seen.index
        self._said = ""
        plane.fresh_s = lambda: mirrored.fresh_s

    @property
    def reason(self) -> str:
        """Reason why the store can't be used; empty while it can."""
        return self._mirrored.reason

    async def follow(self) -> None:
        """Follow until cancelled."""
        while True:
            await self._look()
            await self._listen()

    async def _look(self) -> None:
        try:
            if await self._plane.write(self._catch_up):
                self._plane.head_moved()
            await self._tell()
        except RequestError:
            # Said below, where it is the store's fault.
            pass
        self._say()

    def _catch_up(self) -> bool:
        """Bring the log to its end, in the thread that writes; true if that is another than at the last look."""
        self._mirrored.catch_up()
        before, self._seen = self._seen, self._plane.log.refresh()
        # Whoever wrote them, each is here once.
        stats = self._plane.stats
        stats.entries = max(stats.entries, self._seen.index - self._first)
        return self._seen != before

    async def _tell(self) -> None:
        """Exchange reports with the other roots, at most once in `LOOK_S`."""
        plane, now_s = self._plane, self._plane.clock.monotonic()
        if now_s - self._told_s >= LOOK_S:
            self._told_s = now_s
            mine = plane.followers()
            plane.told(await plane.write(lambda: self._reports.exchange(mine)))

    def _say(self) -> None:
        reason = self._mirrored.reason
        if reason == self._said:
            return
        self._said = reason
        if reason:
            self._logger.warning("store_lost", reason=reason)
        else:
            self._logger.info("store_reached", index=self._plane.log.position.index)

    async def _listen(self) -> None:
        """Wait until another root has written, or for a while."""
        if not self._mirrored.reason and await self._heard():
            return
        await asyncio.sleep(self._rng.uniform(LOOK_S / 2, LOOK_S))

    async def _heard(self) -> bool:
        listening = asyncio.ensure_future(asyncio.to_thread(self._mirrored.store.listen, LOOK_S))
        try:
            # To its end, also when this is cancelled: a connection is not closed under a thread that waits on it.
            await asyncio.shield(asyncio.wait([listening]))
        except asyncio.CancelledError:
            await asyncio.wait([listening])
            raise
        error = listening.exception()
        if error is not None and not isinstance(error, RequestError):
            raise error
        return error is None
