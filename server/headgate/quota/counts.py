"""Counts of a quota ledger, for metrics: gifts, and every time that it refused something or hit a bound."""

from dataclasses import dataclass


@dataclass(slots=True)
class LedgerCounts:
    """Numbers that only grow, over all ledgers that a process has had."""

    gifts: int = 0
    given: int = 0
    """Millionths of limits, over all keys."""
    entries_refused: int = 0
    """Entries of peers that made no sense."""
    keys_refused: int = 0
    """Because the ledger was full."""
    keys_unreadable: int = 0
    other_set: int = 0
    """Messages of peers that are configured with another set of regions."""
    overtaken: int = 0
    """Keys that another ledger of this region had written meanwhile."""
    from_lost_store: int = 0
    """Messages that a peer had sent before it lost its store."""
