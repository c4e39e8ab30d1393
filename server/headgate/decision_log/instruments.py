"""Metrics of the decision log."""

from collections.abc import Callable

from headgate.decision_log.log import LogStats
from headgate.telemetry.metrics import Metrics


def register(metrics: Metrics, stats: LogStats, failed_later: Callable[[], int]) -> None:
    """Count records that were written, dropped and refused; `failed_later` counts those refused later by a sink."""
    metrics.counter(
        "headgate_decision_log_records", "Records of the decision log that were written.", lambda: stats.records
    )
    metrics.counter(
        "headgate_decision_log_dropped",
        "Decisions that are missing in the decision log: it could not be written fast enough.",
        lambda: stats.dropped,
    )
    metrics.counter(
        "headgate_decision_log_failed",
        "Records that the disk, stdout or the collector did not take.",
        lambda: stats.failed + failed_later(),
    )
