"""Metrics pushed to an OpenTelemetry collector, which may be slow, dead or gone.

The loop takes a snapshot, a thread of its own sends it. Only one is ever under way: while
the collector keeps the thread busy further snapshots are skipped and counted. So what a
collector does or leaves undone costs a decision nothing, and the process no more memory
than one snapshot.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headgate.telemetry.bounded_sender import BoundedSender
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.otel_data import messages
from headgate.telemetry.sending import SEND_TIMEOUT_S, end_sending, export, signal_url

RESULTS: Final = ("sent", "failed", "skipped")


class MetricsPush:
    """Sends a snapshot of all metrics every `interval_s` seconds; `results` counts what became of each."""

    def __init__(self, endpoint: str, interval_s: float, snapshots: Callable[[], Iterable[Any]]) -> None:
        # Here, because it is needed only where there is a collector.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

        self._exporter = OTLPMetricExporter(signal_url(endpoint, "metrics"), timeout=SEND_TIMEOUT_S)
        self._interval_s = interval_s
        self._snapshots = snapshots
        self._skipped = 0
        self._sender: BoundedSender[list[Any]] = BoundedSender("headgate-otlp", self._send, max_items=1)
        self._sender.start()

    @property
    def results(self) -> Mapping[str, int]:
        """Snapshots by what became of them."""
        sender = self._sender
        return dict(zip(RESULTS, (sender.sent, sender.failed, self._skipped), strict=True))

    async def run(self) -> None:
        """Push every `interval_s` seconds until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.push()

    async def push(self) -> None:
        """Take a snapshot, with the loop's turns in between, and hand it on; skipped while the thread is busy."""
        if not self._sender.has_room():
            self._skipped += 1
            return
        parts = []
        for part in self._snapshots():
            parts.append(part)
            await asyncio.sleep(0)
        self._sender.offer(parts)

    def close(self) -> None:
        """Push once more, wait for a moment until that is taken, and end."""
        if self._sender.has_room():
            self._sender.offer(list(self._snapshots()))
        end_sending(self._sender, self._exporter)

    def _send(self, snapshots: list[list[Any]]) -> None:
        """All messages, or as far as they are taken: figures are totals, so the next snapshot makes up for it."""
        for parts in snapshots:
            for message in messages(parts):
                export(self._exporter, message)


def open_push(endpoint: str | None, interval_s: float, metrics: Metrics) -> MetricsPush | None:
    """Push `metrics` to the collector, and count among them what became of it; None where there is no collector."""
    if endpoint is None:
        return None
    push = MetricsPush(endpoint, interval_s, metrics.snapshots)
    register(metrics, push)
    return push


def register(metrics: Metrics, push: MetricsPush) -> None:
    """Count what became of pushes."""

    def results() -> list[tuple[int, dict[str, str]]]:
        return [(push.results[result], {"result": result}) for result in RESULTS]

    metrics.labelled_counter(
        "headgate_otlp_pushes",
        "Snapshots for the collector; skipped: it still kept the one before.",
        ("result",),
        results,
    )
