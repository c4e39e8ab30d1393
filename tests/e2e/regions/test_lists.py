"""The list of shards of one region changes under load, with another region at the other end: nobody is restarted, what
each has admitted is counted in both, and a limit that both count together is not exceeded.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate_client import Client

from tests.e2e.regions.counts import Counts
from tests.support.headgate import FREE_PORTS, Headgate, start, write_rules
from tests.support.redis_servers import RedisServer, redis_shards, shards_url
from tests.support.waiting import wait_until
from tests.support.workers import decided_by_policy, scrape

DOMAIN = "edge"
LIMIT = 100_000
FULL = 40
VALUES = [f"user-{number}" for number in range(16)]
QUIET = [f"quiet-{number}" for number in range(8)]
QUOTA = 1_000
RULES = f"""
domain: {DOMAIN}
descriptors:
- key: user
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}}}
- key: full
  rate_limit: {{unit: year, requests_per_unit: {FULL}, precision: 0}}
- key: quota
  rate_limit: {{unit: year, requests_per_unit: {QUOTA}, precision: 0, scope: quota}}
"""
HITS = LIMIT // 100
"""What a request of the load costs: soon above what is told."""
EU, US = "eu", "us"


class Regions:
    """Two regions: in one the exchange runs in the nodes, in the other beside them. The first has three servers."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.shards = stack.enter_context(redis_shards(3))
        self.other = stack.enter_context(RedisServer())
        self.file = directory / "origin"
        self._directory = directory
        self._rules = write_rules(directory / "rules", RULES)
        self._stack = stack
        self.list(2)

    def list(self, shards: int) -> None:
        """Have the first region's file name the first so many servers."""
        self.file.write_text(shards_url(self.shards[:shards]))

    def start(self) -> None:
        sockets = {EU: self._directory / "eu.sock", US: self._directory / "us.sock"}
        origins = {EU: f"file:{self.file}", US: self.other.url}
        flags = {
            region: [
                *("--rules", str(self._rules), "--region", region, "--origin", origins[region]),
                *("--peer", f"{peer}=unix:{sockets[peer]}", "--exchange", f"unix:{sockets[region]}"),
                *("--exchange-interval-s", "0.2"),
            ]
            for region, peer in ((EU, US), (US, EU))
        }
        node = ["serve", *FREE_PORTS, "--drain-s", "0", "--origin-deadline-ms", "1000"]
        alone = ["--exchange-inside", "false"]
        self.nodes = [self._begin(*node, *flags[EU], *alone) for _ in range(2)]
        # Started with the same servers in another order: it goes by the region's list.
        told = [shards_url(self.shards[1::-1]) if flag == origins[EU] else flag for flag in flags[EU]]
        self.exchanger = self._begin("exchange", "--http", "127.0.0.1:0", *told)
        self.abroad = self._begin(*node, *flags[US])
        for process in (*self.nodes, self.abroad):
            process.wait_ready()
        self.exchanger.wait_exchanging()

    def _begin(self, *words: str) -> Headgate:
        return self._stack.enter_context(start(*words))

    def counts(self, shards: int) -> Counts:
        """What both origins count, while the first has so many servers and no key moves."""
        urls = {EU: shards_url(self.shards[:shards]), US: self.other.url}
        return Counts(self._rules, DOMAIN, urls)

    def in_force(self, shards: int) -> bool:
        said = [node.get("/readyz").json()["origin"] for node in self.nodes]
        return all(
            len(one["list"]["shards"]) == shards == len(one["shards"]) and "wanted" not in one["list"] for one in said
        )


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[Regions]:
    with ExitStack() as stack:
        yield Regions(tmp_path, stack)


class Load:
    """Asks for every user in turn, at one node, until it is stopped; counts what was admitted."""

    def __init__(self, node: Headgate, hits: int) -> None:
        self.admitted: Counter[str] = Counter()
        self._node, self._hits = node, hits
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with Client(self._node.grpc, timeout_s=10) as client:
            while not self._stopping.is_set():
                for value in VALUES:
                    admitted = client.should_rate_limit(DOMAIN, [{"user": value}], hits=self._hits).admitted
                    self.admitted[value] += self._hits * admitted
                self._stopping.wait(0.05)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def use_up(key: str, limit: int, *nodes: Headgate) -> int:
    """Ask every node in turn for one value until all deny; what was admitted."""
    admitted = 0
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(node.grpc, timeout_s=10)) for node in nodes]
        for turn in range(2 * limit * len(nodes)):
            client = clients[turn % len(clients)]
            admitted += client.should_rate_limit(DOMAIN, [{key: "same"}]).admitted
    return admitted


def ask_once(node: Headgate) -> int:
    """Have a tenth of some limits used; what was admitted of each."""
    with Client(node.grpc, timeout_s=10) as client:
        admitted = {client.should_rate_limit(DOMAIN, [{"user": value}], hits=10 * HITS).admitted for value in QUIET}
    return 10 * HITS * min(admitted)


def known(counts: Counts, value: str) -> dict[str, dict[str, int]]:
    return counts.read("user", value)


def test_two_three_two_servers_under_load_with_exact_counts_in_both_regions(regions: Regions) -> None:
    regions.start()
    quota = use_up("quota", QUOTA // 4, *regions.nodes)
    quiet = {EU: ask_once(regions.nodes[0]), US: ask_once(regions.abroad)}
    with ExitStack() as loading:
        nodes = (*regions.nodes, regions.abroad)
        first, second, third = (loading.enter_context(Load(node, HITS // 10)) for node in nodes)
        wait_until(lambda: min(load.admitted[VALUES[0]] for load in (first, second, third)) > HITS, "some load")
        regions.list(3)
        wait_until(lambda: regions.in_force(3), "three to be in force")
        assert len(regions.shards[2].client.keys("headgate:*k:*")) > 0
        with regions.counts(3) as counts:
            wait_until(lambda: known(counts, VALUES[0])[EU].get(US, 0) > HITS, "the other's counts there")
        regions.list(2)
        # A limit that is used up while keys move.
        full = use_up("full", FULL, *regions.nodes)
        wait_until(lambda: regions.in_force(2), "two to be in force again")
        assert not regions.shards[2].client.keys("headgate:*k:*"), "nothing is left behind"
    assert full == FULL
    admitted = {value: {EU: (first.admitted + second.admitted)[value], US: third.admitted[value]} for value in VALUES}
    with regions.counts(2) as counts:
        for value in QUIET:
            wait_until(same(counts, value, quiet), "both to have what nobody has asked for since")
        for value in VALUES:
            wait_until(same(counts, value, admitted[value]), f"both to have {value} exactly")
    assert sum(node_moved(node) for node in regions.nodes) > 0
    assert quota + use_up("quota", QUOTA, *regions.nodes, regions.abroad) <= QUOTA
    assert sum(decided_by_policy(scrape(node)) for node in nodes) == 0
    assert regions.exchanger.get("/regions").json()["peers"][0]["error"] is None


def same(counts: Counts, value: str, expected: dict[str, int]) -> Callable[[], bool]:
    return lambda: known(counts, value) == {EU: expected, US: expected}


def node_moved(node: Headgate) -> float:
    lines = node.get("/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("headgate_origin_keys_moved_total"))
