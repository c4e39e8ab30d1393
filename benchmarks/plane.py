"""What a plane takes from a call that changes rules to the last node that has them in force: real processes.

    .venv/bin/python benchmarks/plane.py                    # 20 nodes behind 3 relays, 200 changes: some minutes
    .venv/bin/python benchmarks/plane.py often              # 1,000 changes a minute among a million rules, 10 minutes
    .venv/bin/python benchmarks/plane.py batches            # 100,000 changes in a minute, in batches
    .venv/bin/python benchmarks/plane.py often --rules 20000 --minutes 1 --nodes 2
    .venv/bin/python benchmarks/plane.py --roots 2          # on PostgreSQL; one is sent changes, another is followed

The time is from the root's taking the call in to the node's log line of the version in force, on one clock.
"""

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import grpc
from headgate.plane.codec import SERVICE
from headgate.v1 import rules_pb2 as pb
from headgate_client.values import Descriptor, encode_request

from benchmarks.load import run
from benchmarks.processes import METHOD, cpu_ns
from tests.support.headgate import Headgate
from tests.support.plane import PlaneSite, free_address
from tests.support.postgresql import PostgresqlServer
from tests.support.waiting import wait_until

SHOWN = 12
"""Digits of a version in a log line."""
BATCH = 10_000
"""Changes in one call, at most."""
PER_MINUTE = 1_000
SLICE_CALLS = 40_000
"""Calls with changes and without, by turns."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=PARTS, default="spread")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--relays", type=int, default=3)
    parser.add_argument("--roots", type=int, default=1, help="more than one share a real PostgreSQL")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--pause-s", type=float, default=0.25, help="between changes")
    parser.add_argument("--rules", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        PARTS[args.part](args, _site(args, Path(scratch), stack))
    return 0


@dataclass
class _Site:
    """A root, relays and nodes that follow."""

    change: "_Changer"
    nodes: list[Headgate] = field(default_factory=list)
    start: Callable[[], None] = lambda: None


def _site(args: argparse.Namespace, scratch: Path, stack: contextlib.ExitStack) -> _Site:
    """Start planes; `start` starts the nodes, which a part may want later than its rules."""
    files, roots = PlaneSite(scratch), [free_address() for _ in range(args.roots)]
    store = ("--plane-store", _store(stack)) if args.roots > 1 else ()
    for number, address in enumerate(roots):
        stack.enter_context(files.plane(f"root{number}", address, *store))
    above = itertools.cycle(roots[1:] or roots)
    relays = [free_address() for _ in range(args.relays)]
    for number, address in enumerate(relays):
        stack.enter_context(files.plane(f"relay{number}", address, "--upstream", next(above)))
    site = _Site(_Changer(roots[0]))
    site.change.one(0)

    def start() -> None:
        followed = itertools.cycle(relays) if relays else above
        site.nodes += [
            stack.enter_context(files.node(f"n{number}", next(followed), ready=False)) for number in range(args.nodes)
        ]
        for node in site.nodes:
            node.wait_ready()

    site.start = start
    return site


def _store(stack: contextlib.ExitStack) -> str:
    server = stack.enter_context(PostgresqlServer())
    return server.url(server.database())


class _Changer:
    """Puts rules, over one connection."""

    def __init__(self, address: str) -> None:
        channel = grpc.insecure_channel(address)
        self._change = channel.unary_unary(
            f"/{SERVICE}/Change", pb.ChangeRequest.SerializeToString, pb.ChangeResponse.FromString
        )
        self.made: dict[str, float] = {}
        """Time in ms at which each change was asked for, by its version."""

    def one(self, number: int) -> None:
        """Change the limit of one user."""
        self.put([("acme", number + 1)])

    def put(self, limits: list[tuple[str, int]]) -> None:
        """Put users' limits, in one call, for everybody at once."""
        changes = [
            pb.RuleChange(
                domain="edge",
                path=[pb.Step(key="user", value=user)],
                rule=b'{"rate_limit":{"unit":"minute","requests_per_unit":%d}}' % limit,
            )
            for user, limit in limits
        ]
        now_ms = time.time() * 1000
        request = pb.ChangeRequest(changes=changes, now=True)
        answer = self._change(request, timeout=120, metadata=(("authorization", "Bearer ops-token"),))
        assert not answer.problems, answer.problems[:3]
        self.made[answer.position.version[:SHOWN]] = now_ms

    def fill(self, rules: int) -> None:
        """Put so many rules."""
        for first in range(0, rules, BATCH):
            self.put([(f"user-{number}", 1_000_000) for number in range(first, min(rules, first + BATCH))])


# Parts


def _spread(args: argparse.Namespace, site: _Site) -> None:
    site.start()
    site.change.made.clear()
    for number in range(1, args.changes + 1):
        site.change.one(number)
        time.sleep(args.pause_s)
    print(f"{_sizes(args)}, {args.changes} changes, {args.pause_s:g} s between: {_took(site)}")


def _often(args: argparse.Namespace, site: _Site) -> None:
    """Change rules at a pace, by turns with leaving them, while one node answers as fast as it can."""
    began = time.monotonic()
    site.change.fill(args.rules)
    print(f"{args.rules} rules put in {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    site.start()
    print(f"{args.nodes} nodes ready, with all of them, after {time.monotonic() - began:.0f} s", flush=True)
    site.change.made.clear()
    busy, ended = site.nodes[0], time.monotonic() + 60 * args.minutes
    payloads = [
        encode_request("edge", [Descriptor([("user", f"user-{number}")])], 0).SerializeToString()
        for number in range(1_000)
    ]
    _load(busy, itertools.islice(itertools.cycle(payloads), SLICE_CALLS))
    beside: dict[bool, list[float]] = {True: [], False: []}
    for changing in itertools.cycle((False, True)):
        with _changing(site.change) if changing else contextlib.nullcontext():
            beside[changing].append(_load(busy, itertools.islice(itertools.cycle(payloads), SLICE_CALLS)))
        if time.monotonic() > ended and changing:
            break
    ratio = statistics.median(beside[True]) / statistics.median(beside[False])
    print(
        f"{_sizes(args)}, {args.rules} rules, {PER_MINUTE} changes a minute in every second slice: {_took(site)};"
        f" a warm decision {statistics.median(beside[False]):.1f} µs of the node's CPU without, {ratio:.3f} × with"
        f" ({len(beside[True])} slices of {SLICE_CALLS} calls each)"
    )


@contextlib.contextmanager
def _changing(change: _Changer) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        for number in itertools.count(len(change.made) + 1):
            if stop.wait(60 / PER_MINUTE):
                return
            change.one(number % 1_000_000)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _load(node: Headgate, payloads: Iterator[bytes]) -> float:
    """µs of the node's CPU per call."""
    before = cpu_ns(node.process.pid)
    outcome = run(node.grpc, METHOD, payloads)
    assert outcome.failures == 0
    return (cpu_ns(node.process.pid) - before) / outcome.answers / 1_000


def _batches(args: argparse.Namespace, site: _Site) -> None:
    """Put 100,000 rules within a minute, a thousand at a time, beside those that there are."""
    site.start()
    site.change.made.clear()
    began = time.monotonic()
    for number in range(100):
        site.change.put([(f"tenant-{number}-{one}", number + 1) for one in range(1_000)])
        time.sleep(max(0.0, began + 0.6 * (number + 1) - time.monotonic()))
    seconds = time.monotonic() - began
    last = list(site.change.made)[-1]
    wait_until(lambda: all(last in _in_force(node) for node in site.nodes), "the last change to be in force")
    after_ms = max(_in_force(node)[last] for node in site.nodes) - site.change.made[last]
    print(
        f"{_sizes(args)}: 100,000 changes in {seconds:.0f} s, a thousand in a call; all in force {after_ms:.0f} ms"
        f" after the last call; {_took(site)}"
    )


PARTS = {"spread": _spread, "often": _often, "batches": _batches}


# Times


def _sizes(args: argparse.Namespace) -> str:
    return f"{args.nodes} nodes, {args.relays} relays"


def _took(site: _Site) -> str:
    """Time from each change to the last node that has it in force."""
    made = site.change.made
    last = list(made)[-1]
    wait_until(lambda: all(last in _in_force(node) for node in site.nodes), "the last change to be in force")
    seen = [_waits(_in_force(node), made) for node in site.nodes]
    took = sorted(max(times) for times in zip(*seen, strict=True))
    return (
        f"in force on the last node after p50 {took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f} ms, "
        f"max {took[-1]:.0f} ms"
    )


def _in_force(node: Headgate) -> dict[str, float]:
    """Time in ms at which each version came into force on a node."""
    return {
        event["version"].partition("-")[2]: 1000 * datetime.fromisoformat(event["time"]).timestamp()
        for event in node.events
        if event["event"] == "rules_in_force"
    }


def _waits(seen: dict[str, float], made: dict[str, float]) -> list[float]:
    """Milliseconds that each change took to a node. Of changes that came while it was busy it has the latest: then
    that one counts for those before it."""
    waits: list[float] = []
    at_ms = 0.0
    for version, made_ms in reversed(made.items()):
        at_ms = seen.get(version, at_ms)
        waits.append(at_ms - made_ms)
    return waits[::-1]


if __name__ == "__main__":
    sys.exit(main())
