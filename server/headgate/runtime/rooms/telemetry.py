"""Traces and metrics that are sent to a collector, and the level of the logs."""

from collections.abc import Mapping

from headgate.runtime.context import ProcessContext
from headgate.runtime.log_level import LogLevelService
from headgate.runtime.room import Room, Rooms, Task
from headgate.runtime.tracing import open_tracing
from headgate.telemetry.otlp import MetricsPush, open_push
from headgate.telemetry.traces import Tracing
from headgate.transport.admin import Method


class TelemetryRoom(Room):
    """Opens what speaks to a collector before anything is decided, and sends the last of it at the end."""

    tracing: Tracing | None = None
    """None where traces are off."""
    _push: MetricsPush | None = None
    """None where there is no collector."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._log_level = LogLevelService(context.logs, context.identity.node, context.logger)

    async def start(self) -> None:
        context = self.context
        settings = context.settings
        self.tracing = open_tracing(settings, context.metrics, context.random)
        self._push = open_push(settings.otlp_endpoint, settings.otlp_interval_s, context.metrics)

    def admin_methods(self) -> Mapping[str, Method]:
        return self._log_level.methods()

    def tasks(self) -> Mapping[str, Task]:
        return {} if self._push is None else {"otlp": self._push.run}

    def close(self, patience_s: float) -> None:
        self._log_level.close()
        if not patience_s:
            return
        if self._push is not None:
            self._push.close()
        if self.tracing is not None:
            self.tracing.close()
