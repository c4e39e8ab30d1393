"""Metrics of what operators do to single keys, and of the region's book."""

from collections.abc import Iterable, Mapping

from headgate.keys.service import KeysService
from headgate.telemetry.metrics import Metrics


def register(metrics: Metrics, keys: KeysService) -> None:
    """Export overrides in force, what operators did here, and how the node keeps up with the region's map."""
    stats, book = keys.stats, keys.region.region_map.stats

    def actions() -> Iterable[tuple[int, Mapping[str, str]]]:
        yield stats.looks, {"action": "get"}
        yield stats.resets, {"action": "reset"}
        yield stats.overrides_set, {"action": "override"}
        yield stats.overrides_removed, {"action": "override_remove"}

    metrics.gauge("headgate_overrides", "Overrides of limits in force on this node.", lambda: len(keys.overrides))
    metrics.labelled_counter(
        "headgate_key_actions", "Actions of operators through this node, by action.", ("action",), actions
    )
    metrics.counter(
        "headgate_overrides_refused",
        "Overrides that were refused, because there are as many as there may be.",
        lambda: stats.overrides_refused,
    )
    metrics.counter(
        "headgate_book_failures",
        "Failed reads of the region map (overrides).",
        lambda: book.failures,
    )
    metrics.counter(
        "headgate_book_taught",
        "Entries of the region map restored to a shard that had lost them.",
        lambda: book.taught,
    )
