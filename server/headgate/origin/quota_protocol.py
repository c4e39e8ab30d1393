"""What is said of quotas: by nodes in their calls, and by the exchanger that keeps a region's slices.

A quota's slice is a share of its limit, in millionths. The exchanger writes what each key's share is, and until when
all of it holds if nobody writes again; nodes are told what is in force with the answers to their own calls, and the
shard charges nothing beyond it. What nodes were offered goes the other way. (docs/quota.md.)
"""

from enum import IntEnum
from typing import NamedTuple

UNTOUCHED = -1
"""In a step's place for how long shares hold: as it was written before."""


class QuotaKind(IntEnum):
    """How what is in use of a quota is measured."""

    SLIDING = 0
    FIXED = 1
    BUCKET = 2


class QuotaReport(NamedTuple):
    """One quota of a call."""

    report: int
    """On the key of the call's so-manieth report."""
    name: bytes
    """What the key is called between regions (exchange_name)."""
    kind: QuotaKind
    limit: int
    burst: int
    """Of the whole quota, all regions together; a burst of 0 where there is none."""
    window_ms: int
    offered: int
    """The cost that the node was asked for since its last answered call, admitted or not. A call that was carried out
    and not answered is told again: what is offered may be counted twice, which moves a slice and never adds one."""
    floor: int
    """The share that is in force where nothing else is."""
    busy_at: int
    """From so much offered within a span on, the key is one that the exchanger must look at."""


class Share(NamedTuple):
    """What is in force of a quota, by the shard's time."""

    share: int
    until_ms: int
    """From then on the floor, unless something else was heard; 0 with a floor."""


class QuotaLease(NamedTuple):
    """Whether an exchanger keeps the region's slices, and what the store has beside the rows."""

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


class QuotaSave(NamedTuple):
    """What the keeper has the store keep."""

    fence: int
    generation: bytes
    rows: tuple[tuple[bytes, bytes, bytes], ...]
    """(name, what the store has of it, what it is to have); empty: nothing."""
    mark: bytes
    acknowledged: tuple[tuple[bytes, bytes], ...]
    """(peer, which message): taken in, and saved with this."""


class QuotaSaved(NamedTuple):
    """What came of it."""

    kept: bool
    """False: another keeper is there, or the store was lost; nothing was written."""
    refused: tuple[tuple[bytes, bytes], ...]
    """(name, what the store has of it): another one than was expected, so it was left alone."""


class QuotaStep(NamedTuple):
    """One turn of the keeper on one shard: what is in force from now on."""

    fence: int
    generation: bytes
    """Of the shard's quotas, as far as the keeper knows; nothing is written into another one."""
    drawn: bytes
    """The generation of a shard that has none yet."""
    taken_ms: int
    until_ms: int
    """For how long what is written holds, from when the shard gets it: with and without what was taken from lost
    regions. UNTOUCHED: as it was."""
    share: int
    """Of keys that have none of their own."""
    settled_ago_ms: int
    """Two windows of the key after that time it is theirs; until then their floor is. Below 0: it is yet to come."""
    shares: tuple[tuple[bytes, int, int, int], ...]
    """(name, share, lasting, for how many ms): each is read after it was written."""
    forgotten: tuple[bytes, ...]
    """Names that have no share of their own any more."""
    most: int
    """So many busy keys are named at most."""


class QuotaSeen(NamedTuple):
    """One key, read when its share was in force."""

    kind: QuotaKind
    limit: int
    burst: int
    window_ms: int
    used: int
    """By the algorithm's own measure, as a cost; of a bucket, in ms until it is full again."""
    offered: int
    """Per window."""


NOT_USED = QuotaSeen(QuotaKind.SLIDING, 0, 0, 0, 0, 0)
"""Of a key that the shard knows nothing of: it has no traffic here."""


class QuotaStepped(NamedTuple):
    """What a shard answers to a step."""

    time_ms: int
    epoch: bytes
    kept: bool
    """False: a later keeper has been here, or the shard's memory is another one; nothing was written or read."""
    generation: bytes
    seen: tuple[QuotaSeen | None, ...]
    """Per share that was written; None: the key is counted, and how much of what limit that is can't be said."""
    busy: tuple[bytes, ...]
    """Names of keys that were offered much lately, or whose own share has run out, the latest first."""
    dropped: int
    """How often a busy key was not noted, because there were too many."""
