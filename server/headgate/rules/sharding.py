"""`shard_by` and the counters it may move: each counter must be on one shard.

The value of the `shard_by` entry decides the shard. A wildcard that shares one counter
among values would then have one counter per shard, and the limit would hold on each.
"""

from collections.abc import Callable, Iterator

from headgate.rules.tree import Level

SHARED_BUT_SHARDED = (
    "`share_threshold: true` on `{key}={pattern}`, and the domain has `shard_by: {key}`: values that share a counter "
    "would have one on each shard, and the limit as often; shard by another key, or don't share"
)


def split_counters(level: Level, shard_by: str, breathe: Callable[[], None]) -> Iterator[tuple[int, str]]:
    """Place and reason of every wildcard whose one counter `shard_by` would spread over shards."""
    for slot in level.values():
        breathe()
        if slot.key == shard_by:
            # The first such entry decides, and below it that is settled.
            for wildcard in slot.ordered:
                if wildcard.shared:
                    yield wildcard.place, SHARED_BUT_SHARDED.format(key=slot.key, pattern=wildcard.pattern)
            continue
        for node in slot.distinct():
            if node.children is not None:
                yield from split_counters(node.children, shard_by, breathe)
