"""Metrics of the counters in a node's memory."""

from typing import Any

from headgate.limiter.cell_scope import CellUse
from headgate.limiter.counter_table import CounterTable
from headgate.telemetry.metrics import Metrics


def register(metrics: Metrics, cells: CounterTable[Any]) -> None:
    """Export how many counters there are, and why counters came and went."""
    stats = cells.stats
    metrics.gauge("headgate_cells_live", "Counters in memory.", lambda: len(cells))
    metrics.gauge("headgate_cells_max", "The most counters that may be in memory.", lambda: cells.max_cells)
    metrics.counter(
        "headgate_cells_restarted",
        "Counters started from zero because their shard's clock was set back.",
        lambda: stats.restarted,
    )
    metrics.counter("headgate_cells_created", "Counters begun.", lambda: stats.created)
    metrics.counter("headgate_cells_expired", "Counters dropped because their time was over.", lambda: stats.expired)
    metrics.counter(
        "headgate_cells_evicted",
        "Live counters dropped, least recently used first, to make room.",
        lambda: stats.evicted,
    )
    metrics.counter(
        "headgate_cells_evicted_denying",
        "Of these, counters that were denying: nothing lighter was there to let go.",
        lambda: stats.evicted_denying,
    )


def register_cell_scope(metrics: Metrics, use: CellUse, region: str) -> None:
    """Export how much of limits of scope `cell` this region admitted, for whoever adds it up over all regions."""
    metrics.labelled_gauge(
        "headgate_cell_scope_used_ratio",
        "Largest share of a whole limit of scope cell that this region, the cell, admitted on one key of a slot "
        "in a window of the last minute or two; keys have the same slot in all regions.",
        ("cell", "slot"),
        lambda: [(share, {"cell": region, "slot": str(slot)}) for slot, share in sorted(use.by_slot().items())],
    )
