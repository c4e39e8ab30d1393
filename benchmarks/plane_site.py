"""A plane of real processes under measurement: a root, relays, nodes, changes, and when each came into force.

The time of a change is from the call that makes it to the node's log line of the version in force, on one clock.
"""

import contextlib
import itertools
import shutil
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import grpc
from headgate.plane.codec import SERVICE
from headgate.v1 import rules_pb2 as pb

from benchmarks.processes import cpu_ns
from tests.support.headgate import Headgate
from tests.support.plane import PlaneSite, free_address
from tests.support.postgresql import PostgresqlServer
from tests.support.waiting import wait_until

SHOWN = 12
"""Digits of a version in a log line."""
BATCH = 10_000
"""Changes in one call, at most."""
LOAD_S = 1_800
"""Seconds for a million rules to get to a node."""


class Changer:
    """Puts rules, over one connection."""

    def __init__(self, address: str) -> None:
        channel = grpc.insecure_channel(address)
        self._change = channel.unary_unary(
            f"/{SERVICE}/Change", pb.ChangeRequest.SerializeToString, pb.ChangeResponse.FromString
        )
        self.made: dict[str, float] = {}
        """Time in ms at which each change was asked for, by its version."""

    @property
    def last(self) -> str:
        """Version of the last change."""
        return list(self.made)[-1]

    def put(self, limits: list[tuple[str, int]], key: str = "user") -> None:
        """Put values' limits, in one call, for everybody at once."""
        changes = [
            pb.RuleChange(
                domain="edge",
                path=[pb.Step(key=key, value=value)],
                rule=b'{"rate_limit":{"unit":"minute","requests_per_unit":%d}}' % limit,
            )
            for value, limit in limits
        ]
        now_ms = time.time() * 1000
        request = pb.ChangeRequest(changes=changes, now=True)
        # A root that restarts is waited for, and asked again.
        answer = self._change(
            request, timeout=120, metadata=(("authorization", "Bearer ops-token"),), wait_for_ready=True
        )
        assert not answer.problems, answer.problems[:3]
        self.made[answer.position.version[:SHOWN]] = now_ms

    def fill(self, rules: int) -> None:
        """Put so many rules."""
        for first in range(0, rules, BATCH):
            self.put([(f"user-{number}", 1_000_000) for number in range(first, min(rules, first + BATCH))])

    def pace(self, per_minute: int, minutes: float) -> None:
        """Change one rule after the other, so many a minute."""
        began = time.monotonic()
        for number in range(int(per_minute * minutes)):
            self.put([("acme", number % 1_000_000 + 1)])
            time.sleep(max(0.0, began + 60 / per_minute * (number + 1) - time.monotonic()))

    @contextlib.contextmanager
    def pacing(self, per_minute: int) -> Iterator[None]:
        """Change rules all the while, so many a minute."""
        stop = threading.Event()

        def work() -> None:
            for number in itertools.count(len(self.made) + 1):
                if stop.wait(60 / per_minute):
                    return
                self.put([("acme", number % 1_000_000 + 1)])

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@dataclass
class Site:
    """A root, relays and nodes that follow."""

    args: Namespace
    files: PlaneSite
    stack: contextlib.ExitStack
    node_flags: tuple[str, ...] = ()
    """Flags of all nodes."""
    change: Changer = field(init=False)
    planes: dict[str, Headgate] = field(default_factory=dict)
    nodes: list[Headgate] = field(default_factory=list)
    _places: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    _followed: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Start planes, and put a first rule."""
        roots = [free_address() for _ in range(self.args.roots)]
        store = ("--plane-store", self._store()) if self.args.roots > 1 else ()
        for number, address in enumerate(roots):
            self._places[f"root{number}"] = address, store
        above = itertools.cycle(roots[1:] or roots)
        relays = [free_address() for _ in range(self.args.relays)]
        for number, address in enumerate(relays):
            self._places[f"relay{number}"] = address, ("--upstream", next(above))
        for name in self._places:
            self.start_plane(name)
        self._followed = relays or roots[1:] or roots
        self.change = Changer(roots[0])
        self.change.put([("acme", 1)])

    def _store(self) -> str:
        server = self.stack.enter_context(PostgresqlServer())
        return server.url(server.database())

    def start_plane(self, name: str) -> None:
        """Start a root or a relay, for the first time or again."""
        address, flags = self._places[name]
        self.planes[name] = self.stack.enter_context(self.files.plane(name, address, *flags))

    def start_node(self, number: int) -> Headgate:
        """Start a node, for the first time or again."""
        first = number % len(self._followed)
        addresses = ",".join(self._followed[first:] + self._followed[:first])
        return self.stack.enter_context(self.files.node(f"n{number}", addresses, *self.node_flags, ready=False))

    def start_nodes(self) -> None:
        """Start nodes, and wait until all have the last change. The first one loads; the others have its disk."""
        self.nodes = [self.start_node(0)]
        self.wait_for_last()
        self.nodes[0].stop()
        for number in range(1, self.args.nodes):
            shutil.copytree(self.files.directory / "n0", self.files.directory / f"n{number}")
        self.restart_nodes()
        self.wait_for_last()

    def restart_nodes(self) -> None:
        """Start all nodes at once."""
        self.nodes = [self.start_node(number) for number in range(self.args.nodes)]
        for node in self.nodes:
            node.wait_ready()

    def wait_for_last(self) -> None:
        """Wait until the last change is in force on all nodes."""
        last = self.change.last
        wait_until(lambda: all(last in in_force(node) for node in self.nodes), f"{last} in force", timeout_s=LOAD_S)

    @property
    def sizes(self) -> str:
        """The number of processes, for people."""
        return f"{self.args.nodes} nodes, {self.args.relays} relays"

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each process."""
        processes = {**self.planes, **{f"n{number}": node for number, node in enumerate(self.nodes)}}
        return {name: cpu_ns(one.process.pid) / 1e9 for name, one in processes.items()}

    def took(self) -> str:
        """Time from each change to the last node that has it in force."""
        self.wait_for_last()
        seen = [_waits(in_force(node), self.change.made) for node in self.nodes]
        took = sorted(max(times) for times in zip(*seen, strict=True))
        return (
            f"in force on the last node after p50 {took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f}"
            f" ms, max {took[-1]:.0f} ms"
        )


def in_force(node: Headgate) -> dict[str, float]:
    """Time in ms at which each version came into force on a node."""
    seen: dict[str, float] = {}
    for event in node.events:
        if event["event"] == "rules_in_force":
            # The line at debug level is the first about a version; another may follow.
            at_ms = 1000 * datetime.fromisoformat(event["time"]).timestamp()
            seen.setdefault(event["version"].partition("-")[2], at_ms)
    return seen


def _waits(seen: dict[str, float], made: dict[str, float]) -> list[float]:
    """Milliseconds that each change took to a node. Of changes that came while it was busy it has the latest: then
    that one counts for those before it."""
    waits: list[float] = []
    at_ms = 0.0
    for version, made_ms in reversed(made.items()):
        at_ms = seen.get(version, at_ms)
        waits.append(at_ms - made_ms)
    return waits[::-1]


def resident_bytes(process: Headgate) -> int:
    """Memory of a process."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
