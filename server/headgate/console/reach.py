"""Says how far a change has come that an operator made at the admin side of one or several nodes."""

from collections.abc import Sequence
from typing import Any

from headgate.console.output import EXIT_FAILED, EXIT_OK, warn


def places_of(reaches: Sequence[Any]) -> tuple[str, int]:
    """Name where a change is in force, and the exit status: on all nodes of the regions that stored it, else on those
    that were asked, with a warning."""
    status, places = EXIT_OK, []
    for region in sorted({reach.region for reach in reaches}):
        own = [reach for reach in reaches if reach.region == region]
        if any(reach.stored for reach in own):
            places.append(f"every node of region {region} within a second")
            continue
        nodes = {reach.node: max(1, reach.nodes_here) for reach in own}
        places.append(f"{', '.join(_workers(node, nodes[node]) for node in sorted(nodes))} of region {region}")
        others = max(reach.live_nodes for reach in own) - sum(nodes.values())
        warn(f"the origin of region {region} does not know of it yet ({own[0].reason}): it is told when it answers")
        if others > 0:
            warn(
                f"{others} more {'nodes were' if others > 1 else 'node was'} alive there, and can't know of it before: "
                "name all of them, --addr HOST:PORT,HOST:PORT or --addr dns:///NAME:PORT"
            )
            status = EXIT_FAILED
    return "; ".join(places), status


def _workers(node: str, count: int) -> str:
    return node if count == 1 else f"{node} and the {count - 1} other worker{'s' if count > 2 else ''} of its server"
