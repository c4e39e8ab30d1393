"""State of each peer, as far as this process knows: for people, metrics and alerts."""

from dataclasses import dataclass, field
from typing import Final

CONNECTED_MS: Final = 20_000
"""A peer is connected while it has acknowledged something that was sent in the last 20 s."""
SKEWED_MS: Final = 5_000
"""Difference of clocks in ms that is logged for every window length; for short windows a smaller one is."""
LEAST_SKEW_MS: Final = 1_000
"""Smallest difference that counts, in ms: a smaller one is as likely a batch's travel time as a clock."""


@dataclass(slots=True)
class PeerStatus:
    """One peer, from this process's side. Times are of the own clock, unix ms; 0 is never."""

    region: str
    address: str
    serving: bool = False
    """True if this process has the lease on sending, on at least one shard."""
    error: str = ""
    """Reason why the last batch was not acknowledged; empty when it was."""
    acknowledged_ms: int = 0
    published_ms: int = 0
    """Time when the last batch with entries was acknowledged."""
    imported_ms: int = 0
    """Time when the peer's last batch of counts was taken in."""
    lag_ms: int | None = None
    """Age in ms of the peer's knowledge of this region, end to end: through its origin and back."""
    skew_ms: int = 0
    """Difference between the peer's time and ours in its last batch, in ms; the batch's travel time is part of it."""
    skewed: bool = False
    filling: bool = False
    """True while this region has lost something and the peer has not sent everything again."""
    sent_batches: int = 0
    """Acknowledged, those about quotas included."""
    sent_entries: int = 0
    received_batches: int = 0
    received_entries: int = 0
    refused_entries: int = 0
    """Components that made no sense."""
    unshared_entries: int = 0
    """Components of keys that regions don't count together, by the rules here."""
    unasked_entries: int = 0
    """This region's own components that the peer brought back, and was not asked for."""
    over_budget: int = 0
    """Batches that were not acknowledged, because the peer had no room left for what was new in them."""
    cut_off: bool = False
    """True while an operator has cut the region off."""
    failures: int = 0
    shards_behind: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def backlog(self) -> int:
        """Changes that the peer has not acknowledged, on the shards that this process serves it from."""
        return sum(self.shards_behind.values())

    def is_connected(self, now_ms: int) -> bool:
        """Return true if it has acknowledged something lately."""
        return 0 <= now_ms - self.acknowledged_ms < CONNECTED_MS

    def note_skew(self, skew_ms: int, shortest_window_ms: int) -> bool:
        """Note the difference of the peer's clock in a batch; true when it has just become worth a log line."""
        self.skew_ms = skew_ms
        bound_ms = max(LEAST_SKEW_MS, min(SKEWED_MS, shortest_window_ms // 2))
        was, self.skewed = self.skewed, abs(skew_ms) > bound_ms
        return self.skewed and not was
