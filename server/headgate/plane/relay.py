"""The relay of a plane: it follows another one into its own log, and reports those who follow it."""

import random
from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from headgate.plane.codec import MOST_FOLLOWERS
from headgate.plane.entry import FollowerState, FromPlane
from headgate.plane.following import Following
from headgate.plane.link import PlaneAddress, PlaneLink
from headgate.plane.plane import Plane


class RuleRelay:
    """Keeps a plane's log like that of the plane above it."""

    def __init__(
        self, plane: Plane, upstream: PlaneAddress, me: FollowerState, rng: random.Random, logger: FilteringBoundLogger
    ) -> None:
        self._plane = plane
        self._me = me
        self._logger = logger
        self._following = Following(me, plane.log)
        plane.upstream = str(upstream)
        plane.fresh_s = lambda: self._following.fresh_s
        self.link = PlaneLink(
            upstream,
            self._following,
            plane.clock,
            rng,
            receive=self._receive,
            moved=self._moved,
            heard=self._heard,
            lost=self._lost,
            states=self._states,
        )
        self._since_ms = 0
        self._said = ""

    async def follow(self) -> None:
        """Follow until cancelled."""
        await self.link.follow()

    async def _receive(self, said: FromPlane) -> bool:
        return await self._plane.write(lambda: self._following.received(said, self._plane.clock.monotonic()))

    def _moved(self) -> None:
        self._since_ms = self._plane.clock.now_ms()
        self._plane.stats.entries += 1
        self._plane.head_moved()

    def _heard(self) -> None:
        if self._said and self._following.is_at_head:
            self._said = ""
            self._logger.info("upstream_followed", upstream=self._plane.upstream, index=self._plane.log.position.index)

    def _lost(self, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self._logger.warning(
                "upstream_lost", upstream=self._plane.upstream, address=self.link.state.address, reason=reason
            )

    def _states(self) -> list[FollowerState]:
        mine = replace(self._me, has=self._plane.log.position, since_ms=self._since_ms)
        return [mine, *self._plane.followers()][:MOST_FOLLOWERS]
