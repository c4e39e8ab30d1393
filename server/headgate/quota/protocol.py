"""Values that are said of quotas: by nodes in their calls, and by the exchanger that keeps a region's slices.

A quota's slice is a share of its limit, in millionths. The exchanger writes what each key's share is, and until when
all of it holds if nobody writes again; nodes are told what is in force with the answers to their own calls, and the
shard charges nothing beyond it. What nodes were offered goes the other way. (docs/quota.md.)
"""

from enum import IntEnum
from typing import NamedTuple


class QuotaKind(IntEnum):
    """Measure of what is in use of a quota."""

    SLIDING = 0
    FIXED = 1
    BUCKET = 2


class QuotaReport(NamedTuple):
    """One quota of a call."""

    report: int
    """Index of the key's report in the call."""
    name: bytes
    """Name of the key between regions (exchange_name)."""
    kind: QuotaKind
    limit: int
    burst: int
    """Limit of the whole quota, all regions together; a burst of 0 where there is none."""
    window_ms: int
    offered: int
    """The cost that the node was asked for since its last answered call, admitted or not. A call that was carried out
    and not answered is told again: what is offered may be counted twice, which moves a slice and never adds one."""
    floor: int
    """The share that is in force where nothing else is."""
    busy_at: int
    """Cost offered within a span from which on the exchanger must look at the key."""
    came_by: int = 0
    """Number of the list of shards by which the key came to this one: until the keeper has told the shares by that
    list, its floor is in force. 0: it was here before."""


class QuotaShare(NamedTuple):
    """Share of a quota that is in force, by the shard's time."""

    share: int
    until_ms: int
    """Time from which on the floor holds, unless something else was heard; 0 with a floor."""


class QuotaSeen(NamedTuple):
    """One key, read when its share was in force."""

    kind: QuotaKind
    limit: int
    burst: int
    window_ms: int
    used: int
    """Cost in use by the algorithm's own measure; of a bucket, in ms until it is full again."""
    offered: int
    """Per window."""


NOT_USED = QuotaSeen(QuotaKind.SLIDING, 0, 0, 0, 0, 0)
"""Stands for a key that the shard knows nothing of: it has no traffic here."""


class QuotaLease(NamedTuple):
    """Lease on the region's slices, and what the store has beside the rows."""

    time_ms: int
    epoch: bytes
    leased: bool
    fence: int
    """Higher for every new keeper: what an earlier one writes is refused from then on."""
    generation: bytes
    """Drawn when this store began: another one means that it was lost."""
    mark: bytes
    posted: tuple[tuple[bytes, bytes], ...]
    """(peer, message): what came for the keeper at other processes of the region."""
