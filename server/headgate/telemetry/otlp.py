"""Metrics pushed to an OpenTelemetry collector, which may be slow, dead or gone.

The loop takes a snapshot, a thread of its own sends it. Only one is ever under way: while
the collector keeps the thread busy further snapshots are skipped and counted. So what a
collector does or leaves undone costs a decision nothing, and the process no more memory
than one snapshot.
"""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from headgate.telemetry.metrics import Metrics
from headgate.telemetry.otel_data import messages
from headgate.telemetry.sending import SEND_TIMEOUT_S, end_sending, signal_url

RESULTS: Final = ("sent", "failed", "skipped")


class MetricsPush:
    """Sends a snapshot of all metrics every `interval_s` seconds; `results` counts what became of each."""

    def __init__(self, endpoint: str, interval_s: float, snapshots: Callable[[], Iterable[Any]]) -> None:
        # Here, because it is needed only where there is a collector.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

        self.results: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self._exporter = OTLPMetricExporter(signal_url(endpoint, "metrics"), timeout=SEND_TIMEOUT_S)
        self._interval_s = interval_s
        self._snapshots = snapshots
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sending = False
        # A daemon: a collector that never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._send_all, name="headgate-otlp", daemon=True)
        self._thread.start()

    async def run(self) -> None:
        """Push every `interval_s` seconds until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.push()

    async def push(self) -> None:
        """Take a snapshot, with the loop's turns in between, and hand it on; skipped while the thread is busy."""
        if self._sending:
            self.results["skipped"] += 1
            return
        parts = []
        for part in self._snapshots():
            parts.append(part)
            await asyncio.sleep(0)
        self._hand_on(parts)

    def close(self) -> None:
        """Push once more, wait for a moment until that is taken, and end."""
        if not self._sending:
            self._hand_on(list(self._snapshots()))
        self._work.put(None)
        end_sending(self._thread, self._exporter)

    def _hand_on(self, parts: list[Any]) -> None:
        self._sending = True
        self._work.put(parts)

    def _send_all(self) -> None:
        while (parts := self._work.get()) is not None:
            # All messages, or as far as they are taken: figures are totals, so the next snapshot makes up for it.
            self.results["sent" if all(map(self._send, messages(parts))) else "failed"] += 1
            self._sending = False

    def _send(self, data: Any) -> bool:
        try:
            # It logs why, if it fails.
            return self._exporter.export(data).name == "SUCCESS"
        except Exception:
            return False


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
