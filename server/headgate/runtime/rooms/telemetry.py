"""Traces and metrics that are sent to a collector."""

from collections.abc import Mapping

from headgate.runtime.room import Room, Task
from headgate.runtime.tracing import open_tracing
from headgate.telemetry.otlp import MetricsPush, open_push
from headgate.telemetry.traces import Tracing


class TelemetryRoom(Room):
    """Opens what speaks to a collector before anything is decided, and sends the last of it at the end."""

    tracing: Tracing | None = None
    """None where traces are off."""
    _push: MetricsPush | None = None
    """None where there is no collector."""

    async def start(self) -> None:
        context = self.context
        settings = context.settings
        self.tracing = open_tracing(settings, context.metrics, context.random)
        self._push = open_push(settings.otlp_endpoint, settings.otlp_interval_s, context.metrics)

    def tasks(self) -> Mapping[str, Task]:
        return {} if self._push is None else {"otlp": self._push.run}

    def close(self, patience_s: float) -> None:
        if not patience_s:
            return
        if self._push is not None:
            self._push.close()
        if self.tracing is not None:
            self.tracing.close()
