"""From a call that changes a rule to the last node that has it in force: real processes on this machine.

    .venv/bin/python benchmarks/plane.py                          # 20 nodes behind 3 relays, 200 changes: some minutes
    .venv/bin/python benchmarks/plane.py --nodes 4 --relays 2 --changes 50

The time is from the root's taking the call in to the node's log line of the version in force, on one clock.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import grpc
from headgate.plane.codec import SERVICE
from headgate.v1 import rules_pb2 as pb

from tests.support.headgate import Headgate
from tests.support.plane import PlaneSite, free_address
from tests.support.waiting import wait_until

SHOWN = 12
"""Digits of a version in a log line."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--relays", type=int, default=3)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--pause-s", type=float, default=0.25, help="between changes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        site = PlaneSite(Path(scratch))
        root = free_address()
        stack.enter_context(site.plane("root", root))
        relays = [free_address() for _ in range(args.relays)]
        for number, address in enumerate(relays):
            stack.enter_context(site.plane(f"relay{number}", address, "--upstream", root))
        change = _Changer(root)
        change(0)
        nodes = [
            stack.enter_context(site.node(f"n{number}", relays[number % len(relays)] if relays else root, ready=False))
            for number in range(args.nodes)
        ]
        for node in nodes:
            node.wait_ready()
        made: dict[str, int] = {}
        for number in range(1, args.changes + 1):
            version, made_ms = change(number)
            made[version[:SHOWN]] = made_ms
            time.sleep(args.pause_s)
        _report(args, nodes, made)
    return 0


class _Changer:
    """Puts one rule after the other, over one connection."""

    def __init__(self, address: str) -> None:
        channel = grpc.insecure_channel(address)
        self._change = channel.unary_unary(
            f"/{SERVICE}/Change", pb.ChangeRequest.SerializeToString, pb.ChangeResponse.FromString
        )

    def __call__(self, number: int) -> tuple[str, int]:
        rule = b'{"rate_limit":{"unit":"minute","requests_per_unit":%d}}' % (number + 1)
        path = [pb.Step(key="user", value="acme")]
        request = pb.ChangeRequest(changes=[pb.RuleChange(domain="edge", path=path, rule=rule)], now=True)
        now_ms = int(time.time() * 1000)
        answer = self._change(request, timeout=30, metadata=(("authorization", "Bearer ops-token"),))
        return answer.position.version, now_ms


def _report(args: argparse.Namespace, nodes: list[Headgate], made: dict[str, int]) -> None:
    last = list(made)[-1]
    wait_until(lambda: all(last in _in_force(node) for node in nodes), "the last change to be in force")
    seen = [_in_force(node) for node in nodes]
    # Of changes that came while a node was busy it has the latest: then that one counts for those before it.
    order = list(made)
    took = sorted(max(_at_or_after(times, order, version) for times in seen) - made[version] for version in made)
    print(
        f"{args.nodes} nodes, {args.relays} relays, {len(made)} changes, {args.pause_s:g} s between: in force on the "
        f"last node after p50 {took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f} ms, "
        f"max {took[-1]:.0f} ms"
    )


def _in_force(node: Headgate) -> dict[str, float]:
    """Time in ms at which each version came into force on a node."""
    return {
        event["version"].partition("-")[2]: 1000 * datetime.fromisoformat(event["time"]).timestamp()
        for event in node.events
        if event["event"] == "rules_in_force"
    }


def _at_or_after(times: dict[str, float], order: list[str], version: str) -> float:
    return min(times[later] for later in order[order.index(version) :] if later in times)


if __name__ == "__main__":
    sys.exit(main())
