"""Metrics of the quota keeper. No series per key: GET /regions names those that move."""

from collections.abc import Callable
from functools import partial

from headgate.quota.keeper import QuotaKeeper
from headgate.telemetry.metrics import Metrics


def register(metrics: Metrics, quotas: QuotaKeeper) -> None:
    """Export what this process has done for its region's slices."""
    for name, text, gauge in (
        ("keeper", "1 while this process keeps the region's quota slices; another one may.", lambda: quotas.is_keeper),
        ("by_slice", "1 while the region goes by its slices, 0 while by its floors.", lambda: quotas.goes_by_slice),
        ("keys", "Quota keys of which gifts or needs are known.", lambda: quotas.keys),
    ):
        metrics.gauge(f"headgate_quota_{name}", text, partial(_as_number, gauge))
    for name, text, counter in (
        ("turns", "Rounds of the keeper.", lambda: quotas.counts.ticks),
        ("failures", "Rounds that failed, and shards that could not be asked in one.", lambda: quotas.counts.failures),
        ("gifts", "Parts of slices given to other regions.", lambda: quotas.ledger_counts.gifts),
        ("posted", "Messages of peers that were left for another process.", lambda: quotas.counts.posted),
        (
            "refused",
            "Entries of peers that made no sense.",
            lambda: quotas.counts.refused + quotas.ledger_counts.entries_refused,
        ),
        ("other_set", "Messages of peers that know other regions.", lambda: quotas.ledger_counts.other_set),
        ("keys_waiting", "Busy keys that had to wait for a later round.", lambda: quotas.counts.waiting),
        (
            "keys_refused",
            "Keys that stay at their floor: too many are known.",
            lambda: quotas.ledger_counts.keys_refused,
        ),
        ("keys_unreadable", "Keys whose gifts could not be read.", lambda: quotas.ledger_counts.keys_unreadable),
        ("overtaken", "Keys that another keeper had written meanwhile.", lambda: quotas.ledger_counts.overtaken),
    ):
        metrics.counter(f"headgate_quota_{name}", text, counter)
    metrics.gauge(
        "headgate_quota_busy_dropped",
        "How often shards did not note a busy key: there were too many. As the shards count it.",
        lambda: quotas.dropped,
    )


def _as_number(value: Callable[[], int | bool]) -> int:
    return int(value())
