"""Regions of real processes: each with a Redis of its own and two places for nodes, and a link from each to each.

A link is a proxy that can stall, lose and reset what it carries, and that balances: a region's exchangers listen on
Unix sockets, so that no port is anybody else's, and the next connection goes to the next one that accepts it.
"""

import itertools
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from headgate_client import Client
from headgate_client.values import DescriptorStatus

from tests.e2e.regions.counts import Counts
from tests.support.fault_proxy import Fault, FaultProxies
from tests.support.headgate import FREE_PORTS, Headgate, start, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.workers import decided_by_policy, scrape

NAMES: Final = ("eu", "us", "ap")
SLOTS: Final = 2
"""Nodes of a region, or exchangers: as many sockets stand behind each link."""
DOMAIN: Final = "edge"
EXACT_LIMIT: Final = 100
SHARED_LIMIT: Final = 300
CELL_LIMIT: Final = 90
MINUTE_LIMIT: Final = 600
QUOTA_LIMIT: Final = 100_000
QUOTA_WINDOW_S: Final = 10
LATE_LIMIT: Final = 1_000
BACK_LIMIT: Final = 5_000
RULES: Final = f"""
domain: {DOMAIN}
descriptors:
- key: exact
  rate_limit: {{unit: year, requests_per_unit: {EXACT_LIMIT}, precision: 0}}
- key: shared
  rate_limit: {{unit: year, requests_per_unit: {SHARED_LIMIT}}}
- key: wide
  rate_limit: {{unit: year, requests_per_unit: 3000000}}
- key: minute
  rate_limit: {{unit: minute, requests_per_unit: {MINUTE_LIMIT}, algorithm: fixed_window}}
- key: quota
  rate_limit: {{unit: second, unit_multiplier: {QUOTA_WINDOW_S}, requests_per_unit: {QUOTA_LIMIT}, scope: quota}}
- key: cell
  rate_limit: {{unit: year, requests_per_unit: {CELL_LIMIT}, precision: 0, scope: cell}}
- key: small
  rate_limit: {{unit: year, requests_per_unit: 1, precision: 0, scope: cell}}
- key: tokens
  rate_limit: {{unit: year, requests_per_unit: {LATE_LIMIT}, overdraft: true}}
- key: back
  rate_limit: {{unit: year, requests_per_unit: {BACK_LIMIT}, overdraft: true, refund: true}}
"""
"""Of a year, so that no window ends during a test; but for those whose windows are what is looked at."""
WIDE_HITS: Final = 50_000
"""What a request on `wide` costs."""
WIDE_REQUESTS: Final = 8
"""So many of them are enough to be published, with two regions as with three."""
LOOK_S: Final = 0.05
"""How often processes and servers are asked what they know."""
PATIENT: Final = ("--origin-deadline-ms", "1000")
"""Requests wait long for the origin, so that a slow machine does not turn this into a fault test."""


class World:
    """All regions. What is started here ends with the stack."""

    def __init__(self, stack: ExitStack, names: Sequence[str] = NAMES, *, interval_s: float = 0.2) -> None:
        self.names = names
        self.directory = Path(stack.enter_context(TemporaryDirectory(prefix="hg-")))
        self.rules = write_rules(self.directory / "rules", RULES)
        self.redis = {name: stack.enter_context(RedisServer()) for name in names}
        pairs = list(itertools.permutations(names, 2))
        self._links = {pair: index for index, pair in enumerate(pairs)}
        sockets = [[str(self.socket(to, slot)) for slot in range(SLOTS)] for _, to in pairs]
        self.proxies = stack.enter_context(FaultProxies(sockets))
        self.counts = stack.enter_context(
            Counts(self.rules, DOMAIN, {name: server.url for name, server in self.redis.items()})
        )
        self.nodes: dict[str, list[Headgate]] = {name: [] for name in names}
        self._clients: dict[Headgate, Client] = {}
        self._interval_s = interval_s
        self._stack = stack

    # Processes

    def socket(self, region: str, slot: int) -> Path:
        return self.directory / f"{region}-{slot}.sock"

    def peer(self, region: str, to: str) -> str:
        """Where a region reaches another one, as the value of --peer."""
        return f"{to}=127.0.0.1:{self.proxies.ports[self._links[region, to]]}"

    def peer_file(self, region: str) -> Path:
        """File of a region's peers: where it exists, processes of the region follow it."""
        return self.directory / f"{region}.peers"

    def write_peers(self, region: str, peers: Sequence[str], more: str = "") -> None:
        """Replace the file as programs do that care: by another one."""
        lines = [f"{self.peer(region, peer)}\n" for peer in peers if peer != region]
        following = self.directory / "next.peers"
        following.write_text("# the other regions\n" + "".join(lines) + more)
        following.replace(self.peer_file(region))

    def flags(self, region: str, slot: int, peers: Sequence[str]) -> list[str]:
        """What a node and an exchanger of a region are both told."""
        if self.peer_file(region).exists():
            reached = ["--peer-file", str(self.peer_file(region))]
        else:
            reached = [word for peer in peers if peer != region for word in ("--peer", self.peer(region, peer))]
        exchange = ("--exchange", f"unix:{self.socket(region, slot)}", "--exchange-interval-s", str(self._interval_s))
        return ["--region", region, "--origin", self.redis[region].url, *exchange, *reached]

    def begin_node(self, region: str, slot: int, *flags: str, peers: Sequence[str] | None = None) -> Headgate:
        """A node in its place, not awaited. The later ones of equal flags are in force."""
        options = [*FREE_PORTS, "--drain-s", "0", *PATIENT, *self.flags(region, slot, peers or self.names), *flags]
        node = self._stack.enter_context(start("serve", "--rules", str(self.rules), *options))
        self.nodes[region][slot : slot + 1] = [node]
        return node

    def begin_exchanger(self, region: str, slot: int, *flags: str) -> Headgate:
        """`headgate exchange`, not awaited."""
        options = ["--http", "127.0.0.1:0", *self.flags(region, slot, self.names), *flags]
        return self._stack.enter_context(start("exchange", "--rules", str(self.rules), *options))

    def start_nodes(self, *regions: str, flags: Sequence[str] = (), peers: Sequence[str] | None = None) -> None:
        """Every node of these regions, all at once."""
        begun = [self.begin_node(region, slot, *flags, peers=peers) for region in regions for slot in range(SLOTS)]
        for node in begun:
            node.wait_ready()

    def everyone(self) -> list[Headgate]:
        """Every node."""
        return [node for nodes in self.nodes.values() for node in nodes]

    def stop_nodes(self) -> None:
        """All of them in good order."""
        for node in self.everyone():
            node.send(signal.SIGTERM)
        assert {node.wait_exit() for node in self.everyone()} == {0}

    # The network

    def link(self, region: str, to: str) -> int:
        """Its number among the proxies."""
        return self._links[region, to]

    def set_links(self, region: str, fault: Fault) -> None:
        """All links from and to a region."""
        for pair, index in self._links.items():
            if region in pair:
                self.proxies.set(index, fault)

    def heal(self, region: str) -> None:
        self.set_links(region, Fault())

    # Requests

    def ask(self, node: Headgate, key: str, value: str, hits: int = 1) -> DescriptorStatus:
        decision = self._client(node).should_rate_limit(DOMAIN, [{key: value}], hits)
        (status,) = decision.statuses
        return status

    def admit(self, region: str, key: str, value: str, requests: int, hits: int = 1) -> int:
        """What of so many requests is admitted, in hits; evenly over the region's nodes, all of them at once."""
        nodes = self.nodes[region]
        each = [requests // len(nodes) + (slot < requests % len(nodes)) for slot in range(len(nodes))]

        def ask(node: Headgate, number: int) -> int:
            return sum(hits for _ in range(number) if self.ask(node, key, value, hits).code == "OK")

        with ThreadPoolExecutor(len(nodes)) as pool:
            return sum(pool.map(ask, nodes, each))

    def cells_used(self) -> float:
        """How many times a limit of scope `cell` all regions admitted together, at most: as the alert adds it up."""
        most: dict[tuple[str, str], float] = {}
        for node in self.everyone():
            for (name, labels), share in scrape(node).items():
                if name == "headgate_cell_scope_used_ratio":
                    where = dict(labels)
                    of = where["slot"], where["cell"]
                    most[of] = max(most.get(of, 0.0), share)
        slots = {slot for slot, _ in most}
        return max((sum(share for of, share in most.items() if of[0] == slot) for slot in slots), default=0.0)

    def _client(self, node: Headgate) -> Client:
        client = self._clients.get(node)
        if client is None:
            client = self._clients[node] = self._stack.enter_context(Client(node.grpc, timeout_s=PATIENCE_S))
        return client

    # What processes say

    def degraded(self) -> float:
        """Decisions that were not made by counts: the origin took too long for them."""
        return sum(decided_by_policy(scrape(node)) for node in self.everyone())

    def wait_agreed(self, key: str, admitted: Mapping[str, Mapping[str, int]], among: Sequence[str] = ()) -> None:
        """Until each region has counted exactly what it admitted, by value, and the others know exactly that."""
        for value, by_region in admitted.items():
            self._wait_counted(key, value, {where: dict(by_region) for where in among or by_region})

    def _wait_counted(self, key: str, value: str, expected: Mapping[str, Mapping[str, int]]) -> None:
        seen: list[Any] = []

        def agreed() -> bool:
            seen[:] = [self.counts.read(key, value, list(expected))]
            return bool(seen[0] == expected)

        try:
            wait_until(agreed, f"{key} {value} to be {expected}", every_s=LOOK_S)
        except AssertionError as error:
            raise AssertionError(f"{error}, and it is {seen}") from None


def regions_of(process: Headgate) -> dict[str, Any]:
    """GET /regions."""
    answer = process.get("/regions")
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


def peer_of(process: Headgate, region: str) -> dict[str, Any]:
    """What a process says of one peer."""
    (found,) = [peer for peer in regions_of(process)["peers"] if peer["region"] == region]
    return dict(found)


def wait_for_peer(processes: Sequence[Headgate], region: str, holds: Callable[[dict[str, Any]], object]) -> None:
    """Until one of them says so of a peer: the one that serves it."""
    seen: list[dict[str, Any]] = []

    def there() -> bool:
        seen[:] = [peer_of(process, region) for process in processes]
        return any(map(holds, seen))

    try:
        wait_until(there, f"peer {region}", every_s=LOOK_S)
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from None


@contextmanager
def open_world(names: Sequence[str] = NAMES, *, interval_s: float = 0.2) -> Iterator[World]:
    """Redis servers and links; nodes are started by whoever needs them."""
    with ExitStack() as stack:
        yield World(stack, names, interval_s=interval_s)
