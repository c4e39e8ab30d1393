"""Reservations: costs that are known later, `headgate.v1.Limits`."""

import asyncio
from collections.abc import Mapping

from headgate.pending import CallerMethod
from headgate.reservations import instruments
from headgate.reservations.service import ReservationService
from headgate.reservations.signing import SigningKey
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.handler import HandlerRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.telemetry.metrics import Metrics


class ReservationsRoom(Room):
    """Reserves and settles with the handler, for the same callers."""

    _service: ReservationService | None = None
    """None until there is a handler to reserve with."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._region = rooms.get(RegionRoom)
        self._handler = rooms.get(HandlerRoom)

    async def start(self) -> None:
        context, region = self.context, self._region
        self._service = ReservationService(
            self._handler.handler,
            region.origin,
            key=SigningKey(region.region_map, context.random, context.clock.monotonic),
            run=context.run,
            now_ms=region.shard_now_ms,
            random_bytes=context.random.randbytes,
            longest_ttl_ms=round(context.settings.reservation_max_ttl_s * 1000),
            loop=asyncio.get_running_loop(),
        )

    def methods(self) -> Mapping[str, CallerMethod]:
        return {} if self._service is None else self._service.methods()

    def register(self, metrics: Metrics) -> None:
        if self._service is not None:
            instruments.register(metrics, self._service)

    async def stop(self, patience_s: float) -> None:
        if self._service is not None:
            await self._service.stop()
