"""Metrics of callers that operators have shut out."""

from headgate.blocks.service import BlocksService
from headgate.telemetry.metrics import Metrics


def register(metrics: Metrics, service: BlocksService) -> None:
    """Export blocks in force, what operators did here, and what the region does not know yet."""
    stats = service.stats
    metrics.gauge("headgate_blocks", "Blocked entries in force on this node.", lambda: len(service.blocks))
    metrics.labelled_counter(
        "headgate_block_actions",
        "Blocks that operators set and removed through this node, by action.",
        ("action",),
        lambda: ((stats.made, {"action": "set"}), (stats.removed, {"action": "remove"})),
    )
    metrics.counter(
        "headgate_blocks_not_stored",
        "Blocks and shadows set or removed on this node alone, because the region's origin did not answer.",
        lambda: service.writer.not_stored,
    )
