"""QuotaCall: a node's call in which some keys have a quota. Each is cut to its slice before anything is charged."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from headgate.origin.call_codec import unpack_numbers
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, Packed, packed
from headgate.origin.operations.call import BEFORE_CALL, Call, Reply
from headgate.origin.protocol import BucketReport, Report
from headgate.origin.shard_memory import ShardMemory
from headgate.quota.protocol import QuotaReport, QuotaShare
from headgate.quota.store import WHOLE, QuotaStore, quota_keys


class QuotaReply(NamedTuple):
    """Result of a call with quotas."""

    reply: Reply
    shares: tuple[QuotaShare, ...]
    """Share that is in force, by quota of the call."""


@dataclass(frozen=True, slots=True)
class QuotaCall(Operation[QuotaReply]):
    """Count what was offered of each quota, cut it to its slice, and carry the call out."""

    call: Call
    quotas: tuple[QuotaReport, ...]
    """Keys of the call whose limit is a quota."""

    lua: ClassVar[tuple[str, ...]] = (*BEFORE_CALL, "quota/quota", "quota/quota_call", "origin/call")

    def apply(self, memory: ShardMemory) -> QuotaReply:
        now_ms, store = memory.sweep(), memory.part(QuotaStore)
        reports = list(self.call.reports)
        shares: list[QuotaShare] = []
        for quota in self.quotas:
            share, expired = store.in_force(quota, now_ms)
            reports[quota.report] = _cut(reports[quota.report], quota, share.share)
            store.offer(reports[quota.report].key, quota, expired, now_ms)
            shares.append(share)
        return QuotaReply(replace(self.call, reports=tuple(reports)).apply(memory), tuple(shares))

    def pack(self, space: KeySpace) -> Packed:
        keys, arguments = self.call.pack(space)
        flat: list[Any] = [len(keys) + 1]
        for report, name, kind, *numbers in self.quotas:
            flat += (report + 1, name, int(kind), *numbers)
        return Packed([*keys, *quota_keys(space)], (*arguments, packed(flat)))

    def unpack(self, reply: Any, epoch: bytes) -> QuotaReply:
        numbers = unpack_numbers(reply)
        first = len(numbers) - 2 * len(self.quotas)
        shares = tuple(map(QuotaShare, numbers[first::2], numbers[first + 1 :: 2]))
        return QuotaReply(self.call.reply_of(numbers[:first], epoch), shares)


def _cut(report: Report, quota: QuotaReport, share: int) -> Report:
    """Cut the report's limit to the share: never to more than the node itself makes of it."""
    if isinstance(report, BucketReport):
        rate, burst = min(report.rate, quota.limit * share // WHOLE), min(report.burst, quota.burst * share // WHOLE)
        return report._replace(rate=rate, burst=burst)
    return report._replace(limit=min(report.limit, quota.limit * share // WHOLE))
