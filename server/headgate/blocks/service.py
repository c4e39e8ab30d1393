"""`headgate.v1.Blocks`: shut a caller out of a domain, for a time, and let it in again.

A block stands in the region's map, which every node follows. It is for the worst hour, so it does not need the region's
origin: a node that can't write it there has it in force by itself, says so, and tells the origin as soon as that
answers. Whoever asks has been identified; every change is written to the log with who, what and why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.blocks.in_map import entry_of, removal_of
from headgate.blocks.region_writer import RegionWriter
from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import BadRequest
from headgate.keys.naming import describe
from headgate.keys.overriding import ends_ms, reason
from headgate.limiter.blocks import Block, BlockedEntry, Blocks
from headgate.region.region_map import RegionMapReplica
from headgate.v1 import blocks_pb2 as pb
from headgate.v1 import keys_pb2

SERVICE: Final = "headgate.v1.Blocks"


@dataclass(slots=True)
class BlocksStats:
    """Plain counters, read by whoever exports them."""

    made: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class BlocksService:
    """The methods of the service, each from a message to a message. See the module."""

    blocks: Blocks
    region_map: RegionMapReplica
    writer: RegionWriter
    logger: FilteringBoundLogger
    stats: BlocksStats = field(default_factory=BlocksStats)

    def methods(self) -> Mapping[str, AdminMethod]:
        """Return the methods by path."""
        return {
            f"/{SERVICE}/Set": admin_method(pb.SetBlockRequest, self.set_block),
            f"/{SERVICE}/Remove": admin_method(pb.RemoveBlockRequest, self.remove_block),
            f"/{SERVICE}/List": admin_method(pb.ListBlocksRequest, self.list_blocks),
        }

    async def set_block(self, request: pb.SetBlockRequest, operator: Operator) -> pb.SetBlockResponse:
        """Shut out whoever has an entry, until a time."""
        entry, why = _entry(request.domain, request.entry), reason(request.why)
        now_ms = self.region_map.now_ms()
        block = Block(entry, ends_ms(request, now_ms), operator.who, why, now_ms)
        reach = await self.writer.write(entry_of(block))
        self.stats.made += 1
        self._audit(operator, why, entry, reach).warning("caller_blocked", until_ms=block.expires_ms)
        return pb.SetBlockResponse(block=_message(block), reach=reach)

    async def remove_block(self, request: pb.RemoveBlockRequest, operator: Operator) -> pb.RemoveBlockResponse:
        """Let the rules decide again."""
        entry, why = _entry(request.domain, request.entry), reason(request.why)
        await self.region_map.refresh()
        if self.blocks.get(entry) is None:
            return pb.RemoveBlockResponse(removed=False)
        reach = await self.writer.write(removal_of(entry))
        self.stats.removed += 1
        self._audit(operator, why, entry, reach).warning("caller_unblocked")
        return pb.RemoveBlockResponse(removed=True, reach=reach)

    async def list_blocks(self, request: pb.ListBlocksRequest, _: Operator) -> pb.ListBlocksResponse:
        """All that are in force here, by domain and entry."""
        await self.region_map.refresh()
        found = [block for block in self.blocks.all() if request.domain in ("", block.entry.domain)]
        return pb.ListBlocksResponse(blocks=[_message(block) for block in sorted(found, key=lambda one: one.entry)])

    def _audit(self, operator: Operator, why: str, entry: BlockedEntry, reach: pb.Reach) -> FilteringBoundLogger:
        """Return a logger with caller, entry and reason. Changes are warnings: made by hand, and not to be missed."""
        key = describe(entry.domain, ((entry.key, entry.value),))
        bound: FilteringBoundLogger = self.logger.bind(
            who=operator.who, peer=operator.peer, why=why, key=key, stored=reach.stored
        )
        return bound


def _entry(domain: str, entry: keys_pb2.Entry) -> BlockedEntry:
    """Checked. Raises BadRequest."""
    if not domain:
        raise BadRequest("domain: must not be empty")
    if not entry.key:
        raise BadRequest("entry.key: must not be empty: a caller is named by one entry, such as user=eve")
    return BlockedEntry(domain, entry.key, entry.value)


def _message(block: Block) -> pb.Block:
    return pb.Block(
        domain=block.entry.domain,
        entry=keys_pb2.Entry(key=block.entry.key, value=block.entry.value),
        until_ms=block.expires_ms,
        who=block.who,
        why=block.why,
        made_ms=block.made_ms,
    )
