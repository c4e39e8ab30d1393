"""What a plane takes from a call that changes rules to the last node that has them in force: real processes.

    .venv/bin/python benchmarks/plane.py                    # 20 nodes behind 3 relays, 200 changes: some minutes
    .venv/bin/python benchmarks/plane.py often              # 1,000 changes a minute among a million rules, 10 minutes
    .venv/bin/python benchmarks/plane.py warm               # CPU of a warm decision beside such changes, on one node
    .venv/bin/python benchmarks/plane.py batches            # 100,000 changes in a minute, in batches
    .venv/bin/python benchmarks/plane.py large              # 5,000,000 rules on one node: memory, start, one change
    .venv/bin/python benchmarks/plane.py restarts           # root, a relay, all nodes at once, beside traffic
    .venv/bin/python benchmarks/plane.py often --rules 20000 --minutes 1 --nodes 2
    .venv/bin/python benchmarks/plane.py --roots 2          # on PostgreSQL; one is sent changes, another is followed

With `PYTHONPATH=.`. The time is from the call to the root to the node's log line of the version in force, on one clock.
Where the time is measured, nodes log at debug level, at which each version has a line; where their CPU is, they don't.
"""

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from headgate_client.values import Descriptor, encode_request
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

from benchmarks.load import run
from benchmarks.plane_site import Site, in_force, resident_bytes
from benchmarks.processes import METHOD, cpu_ns
from tests.support.headgate import Headgate
from tests.support.plane import PlaneSite

PER_MINUTE = 1_000
SLICE_CALLS = 40_000
"""Calls with changes and without, by turns."""
WARM_USERS = 1_000
LARGE_RULES = 5_000_000
LARGE_CHANGES = 200
QUIET_CORES = 0.02
"""Part of a core below which a node does nothing but wait."""


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
        site = Site(args, PlaneSite(Path(scratch)), stack, () if args.part in OF_CPU else EACH_VERSION)
        PARTS[args.part](site)
    return 0


def _load() -> str:
    """Others' work on this machine, for people."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


# Until it is in force


def _spread(site: Site) -> None:
    site.begin()
    site.start_nodes()
    site.change.made.clear()
    for number in range(1, site.args.changes + 1):
        site.change.put([("acme", number + 1)])
        time.sleep(site.args.pause_s)
    print(f"{site.sizes}, {site.args.changes} changes, {site.args.pause_s:g} s between: {site.took()}; {_load()}")


def _often(site: Site) -> None:
    """Change rules at a pace, with nothing else going on."""
    _filled(site)
    site.start_nodes()
    print(f"{site.sizes} have all of them; {_load()}", flush=True)
    site.change.made.clear()
    before = site.cpu_s()
    site.change.pace(PER_MINUTE, site.args.minutes)
    changes = len(site.change.made)
    spent_ms = sorted(1e3 * (after - before[name]) / changes for name, after in site.cpu_s().items() if name[0] == "n")
    print(
        f"{site.sizes}, {site.args.rules:,} rules, {changes} changes in {site.args.minutes:g} minutes: {site.took()};"
        f" a node's CPU {statistics.median(spent_ms):.1f} ms for each; {_load()}"
    )


def _filled(site: Site) -> None:
    site.begin()
    began = time.monotonic()
    site.change.fill(site.args.rules)
    print(f"{site.args.rules:,} rules put in {time.monotonic() - began:.0f} s", flush=True)


def _batches(site: Site) -> None:
    """Put 100,000 rules within a minute, a thousand at a time, beside those that there are."""
    site.begin()
    site.start_nodes()
    site.change.made.clear()
    began, before = time.monotonic(), site.cpu_s()
    for number in range(100):
        site.change.put([(f"tenant-{number}-{one}", number + 1) for one in range(1_000)])
        time.sleep(max(0.0, began + 0.6 * (number + 1) - time.monotonic()))
    seconds = time.monotonic() - began
    took = site.took()
    after_ms = max(_came(node, site.change.last) for node in site.nodes) - site.change.made[site.change.last]
    spent = {name: after - before[name] for name, after in site.cpu_s().items()}
    nodes = [seconds for name, seconds in spent.items() if name[0] == "n"]
    print(
        f"{site.sizes}: 100,000 changes in {seconds:.0f} s, a thousand in a call; all in force {after_ms:.0f} ms"
        f" after the last call; {took}; CPU of them all {sum(spent.values()):.0f} s, of a node"
        f" {statistics.median(nodes):.1f} s, of the root {spent['root0']:.1f} s; {_load()}"
    )


def _came(node: Headgate, version: str) -> float:
    return in_force(node)[version]


# A warm decision


def _warm(site: Site) -> None:
    """Have one node answer as fast as it can, by turns beside changes and beside none."""
    site.args.nodes, site.args.relays = 1, 0
    _filled(site)
    site.start_nodes()
    (node,), payloads = site.nodes, _warm_payloads()

    def slice_us() -> float:
        return _decision_us(node, itertools.islice(itertools.cycle(payloads), SLICE_CALLS))

    slice_us()
    ratios: list[float] = []
    quiet: list[float] = []
    change_ms: list[float] = []
    ended = time.monotonic() + 60 * site.args.minutes
    while time.monotonic() < ended:
        # Before and after: what others do on the machine meanwhile concerns both.
        before, changes = slice_us(), len(site.change.made)
        with site.change.pacing(PER_MINUTE):
            beside = slice_us()
        quiet += [before, slice_us()]
        ratios.append(2 * beside / sum(quiet[-2:]))
        more_us = SLICE_CALLS * (beside - sum(quiet[-2:]) / 2)
        change_ms.append(more_us / 1000 / max(1, len(site.change.made) - changes))
    ratios.sort()
    each_ms = statistics.median(change_ms)
    share = each_ms * PER_MINUTE / 60_000
    print(
        f"{site.args.rules:,} rules, {PER_MINUTE} changes a minute: a warm decision {statistics.median(quiet):.1f} µs"
        f" of the node's CPU beside none, {statistics.median(ratios):.3f} × beside changes (quartiles"
        f" {ratios[len(ratios) // 4]:.3f} and {ratios[len(ratios) * 3 // 4]:.3f}; {len(ratios)} rounds of slices of"
        f" {SLICE_CALLS} calls); a change costs {each_ms:.2f} ms beside decisions, which is {share:.1%} of a core: of a"
        f" node that has one to itself {1 / (1 - share):.3f} ×; {_load()}"
    )


def _warm_payloads() -> list[bytes]:
    return [
        encode_request("edge", [Descriptor([("user", f"user-{number}")])], 0).SerializeToString()
        for number in range(WARM_USERS)
    ]


def _decision_us(node: Headgate, payloads: Iterator[bytes]) -> float:
    """µs of the node's CPU per call."""
    before = cpu_ns(node.process.pid)
    outcome = run(node.grpc, METHOD, payloads)
    assert outcome.failures == 0
    return (cpu_ns(node.process.pid) - before) / outcome.answers / 1_000


# Very many rules


def _large(site: Site) -> None:
    """Fill a node while it follows, start it from its disk, and change one rule after the other."""
    site.args.nodes, site.args.relays = 1, 0
    rules = LARGE_RULES if site.args.rules == 1_000_000 else site.args.rules
    site.begin()
    site.nodes = [site.start_node(0)]
    site.wait_for_last()
    (node,) = site.nodes
    empty = resident_bytes(node)
    began = time.monotonic()
    site.change.fill(rules)
    site.wait_for_last()
    print(f"{rules:,} rules put, and in force on a node that follows, in {time.monotonic() - began:.0f} s", flush=True)
    grown = (resident_bytes(node) - empty) / rules
    node.stop()
    began = time.monotonic()
    site.nodes = [node] = [site.start_node(0).wait_ready()]
    site.wait_for_last()
    start_s = time.monotonic() - began
    held = (resident_bytes(node) - empty) / rules
    site.change.made.clear()
    idle_s = _idle_cpu_s(node)
    before = cpu_ns(node.process.pid)
    began = time.monotonic()
    for number in range(LARGE_CHANGES):
        site.change.put([(f"user-{number * 7919}", number + 1)])
        time.sleep(0.05)
    site.wait_for_last()
    spent_s = (cpu_ns(node.process.pid) - before) / 1e9 - idle_s * (time.monotonic() - began)
    print(
        f"{rules:,} rules: ready after {start_s:.1f} s from disk, {held:.0f} bytes of memory per rule (after growing to"
        f" them {grown:.0f}); one changed: {1e3 * spent_s / LARGE_CHANGES:.2f} ms of the node's CPU, all that a change"
        f" needs of it; {_load()}"
    )


def _idle_cpu_s(node: Headgate) -> float:
    """CPU seconds that a node takes in a second in which nothing happens, once it has written what it had to."""
    while True:
        before = cpu_ns(node.process.pid)
        time.sleep(5)
        spent_s = (cpu_ns(node.process.pid) - before) / 5e9
        if spent_s < QUIET_CORES:
            return spent_s


# Restarts


@dataclass
class _Callers:
    """Asks nodes, each in turn, about two rules that only ever change together; says what their answers came to."""

    site: Site
    seen: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)
    _addresses: dict[int, str] = field(default_factory=dict)

    def ask(self, number: int) -> None:
        """Ask one node until told to stop."""
        payload = encode_request("edge", [Descriptor([("pair", "a")]), Descriptor([("pair", "b")])], 0)
        while not self.over.is_set():
            node = self.site.nodes[number]
            try:
                with grpc.insecure_channel(node.grpc) as channel:
                    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
                    while not self.over.is_set():
                        self._judge(RateLimitResponse.FromString(call(payload.SerializeToString(), timeout=2)))
                        time.sleep(0.02)
            except (grpc.RpcError, AttributeError):
                # It is away, or has not said its address yet.
                self.seen["not answered"] += 1
                time.sleep(0.05)

    def _judge(self, answer: RateLimitResponse) -> None:
        limits = [status.current_limit.requests_per_unit for status in answer.statuses]
        self.seen["answered"] += 1
        self.seen["unlimited"] += 0 in limits
        self.seen["mixed"] += len(set(limits)) > 1


def _restarts(site: Site) -> None:
    """Restart the root, a relay, and all nodes at once, each killed, beside changes and callers."""
    site.begin()
    site.change.put([("a", 1_000_000), ("b", 1_000_000)], key="pair")
    site.start_nodes()
    callers = _Callers(site)
    threads = [threading.Thread(target=callers.ask, args=(number,)) for number in range(site.args.nodes)]
    threads.append(threading.Thread(target=_keep_changing, args=(site, callers.over)))
    for thread in threads:
        thread.start()
    try:
        for name in ("root0", "relay0"):
            site.planes[name].process.kill()
            site.planes[name].process.wait()
            time.sleep(2)
            site.start_plane(name)
            time.sleep(5)
        for node in site.nodes:
            node.process.kill()
        began = time.monotonic()
        site.restart_nodes()
        ready_s = time.monotonic() - began
        time.sleep(5)
    finally:
        callers.over.set()
        for thread in threads:
            thread.join()
    site.wait_for_last()
    print(
        f"{site.sizes}, root, relay and all nodes killed beside {len(site.change.made)} changes:"
        f" {callers.seen['answered']:,} requests answered, {callers.seen['unlimited']} of them unlimited,"
        f" {callers.seen['mixed']} by rules of two versions, {callers.seen['not answered']} not, while their node was"
        f" away; all nodes ready {ready_s:.1f} s after they were killed, all at the head; {_load()}"
    )


def _keep_changing(site: Site, over: threading.Event) -> None:
    """Change two rules together, again and again; while the root is away it is asked again."""
    for number in itertools.count(1):
        if over.wait(0.1):
            return
        with contextlib.suppress(grpc.RpcError):
            site.change.put([("a", 1_000_000 + number), ("b", 1_000_000 + number)], key="pair")


PARTS = {
    "spread": _spread,
    "often": _often,
    "warm": _warm,
    "batches": _batches,
    "large": _large,
    "restarts": _restarts,
}

OF_CPU = ("warm", "large")
EACH_VERSION = ("--log-level", "debug")


if __name__ == "__main__":
    sys.exit(main())
