"""Metrics of the decision log."""

from headgate.decision_log.assembly import DecisionLogging
from headgate.telemetry.metrics import Metrics


def register(metrics: Metrics, decisions: DecisionLogging) -> None:
    """Count records that were written, dropped and refused; nothing where there is no log."""
    if decisions.log is None:
        return
    stats = decisions.stats
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
        lambda: decisions.failed,
    )
