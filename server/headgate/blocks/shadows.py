"""The red button at a region's own admin side: `Shadow` of `headgate.v1.Rules`, for when the plane is gone, or is none.

A shadow stands in the region's map, as blocks do, and like them it holds on the node that is asked while the region's
origin is away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.blocks.region_writer import RegionWriter
from headgate.blocks.shadows_in_map import entry_of, removal_of
from headgate.endpoint.admins import AdminMethod, Operator, admin_method
from headgate.errors import BadRequest
from headgate.keys.overriding import LONGEST_MS, MAX_WHY_CHARS
from headgate.limiter.rule_name import steps_text
from headgate.limiter.shadows import Shadow
from headgate.region.region_map import RegionMapReplica
from headgate.v1 import rules_pb2 as pb

METHOD: Final = "/headgate.v1.Rules/Shadow"


@dataclass(frozen=True, slots=True)
class ShadowsService:
    """Lays shadows over rules of this region, and takes them away."""

    region_map: RegionMapReplica
    writer: RegionWriter
    logger: FilteringBoundLogger

    def methods(self) -> Mapping[str, AdminMethod]:
        """Return the methods by path."""
        return {METHOD: admin_method(pb.ShadowRequest, self.shadow)}

    async def shadow(self, request: pb.ShadowRequest, operator: Operator) -> pb.ChangeResponse:
        """Lay a shadow over a rule, or a domain, for a time; for no time, take it away."""
        _check(request)
        path = tuple((step.key, step.value) for step in request.path)
        until_ms = self.region_map.now_ms() + request.for_ms
        if request.for_ms:
            entry = entry_of(request.domain, Shadow(path, until_ms), operator.who, request.why)
        else:
            entry = removal_of(request.domain, path)
        reach = await self.writer.write(entry)
        # A warning, as every change by hand: it is not to be missed.
        self.logger.warning(
            "rules_in_shadow" if request.for_ms else "rules_out_of_shadow",
            who=operator.who,
            peer=operator.peer,
            why=request.why,
            domain=request.domain,
            rule=steps_text(path),
            until_ms=until_ms,
            stored=reach.stored,
        )
        return pb.ChangeResponse(changed=1, reach=reach)


def _check(request: pb.ShadowRequest) -> None:
    if not request.domain:
        raise BadRequest("domain: must not be empty")
    if not 0 <= request.for_ms <= LONGEST_MS:
        raise BadRequest(f"for_ms: 0 to {LONGEST_MS}, found {request.for_ms}")
    if len(request.why) > MAX_WHY_CHARS:
        raise BadRequest(f"why: at most {MAX_WHY_CHARS} characters are accepted, found {len(request.why)}")
    if not all(step.key for step in request.path):
        raise BadRequest("path: a step has no key")
