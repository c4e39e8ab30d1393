"""Each region keeps its counts in another way, and exchanges in another way: they share limits and quotas all the same.

`eu` has a Redis Cluster and an exchanger beside its node, `us` two Redis shards and two nodes that exchange from
inside, `ap` one node with all of it in memory.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate_client import Client
from headgate_client.values import DescriptorStatus

from tests.e2e.regions.demand import WHOLE, Demand, by_slices, enforced
from tests.e2e.regions.exchangers import OUTSIDE
from tests.e2e.regions.world import DOMAIN, EXACT_LIMIT, NAMES, PATIENT, RULES
from tests.support.headgate import FREE_PORTS, Headgate, start, write_rules
from tests.support.redis_servers import cluster_url, free_port, redis_cluster, redis_shards, shards_url
from tests.support.waiting import PATIENCE_S, wait_until


class Regions:
    """Three of them, each as it likes."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._rules = write_rules(folder / "rules", RULES)
        self._ports = {region: free_port() for region in NAMES}
        self._clients: dict[Headgate, Client] = {}
        cluster = cluster_url(stack.enter_context(redis_cluster()))
        shards = shards_url(stack.enter_context(redis_shards(2)))
        beside = self._begin("exchange", "eu", cluster, "--rules", str(self._rules), "--http", "127.0.0.1:0")
        self.nodes = {
            "eu": [self._node("eu", cluster, *OUTSIDE)],
            "us": [self._node("us", shards), self._node("us", shards, "--exchange", f"unix:{folder}/us.sock")],
            "ap": [self._node("ap", "memory://")],
        }
        self.keepers = {**self.nodes, "eu": [beside]}
        for node in (node for nodes in self.nodes.values() for node in nodes):
            node.wait_ready()
        beside.wait_exchanging()

    def _node(self, region: str, origin: str, *flags: str) -> Headgate:
        serving = ("--rules", str(self._rules), *FREE_PORTS, *PATIENT, "--drain-s", "0")
        return self._begin("serve", region, origin, *serving, *flags)

    def _begin(self, command: str, region: str, origin: str, *flags: str) -> Headgate:
        addresses = {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}
        peers = [word for name in NAMES if name != region for word in ("--peer", f"{name}={addresses[name]}")]
        options = ["--region", region, "--origin", origin, "--exchange", addresses[region], *peers]
        return self._stack.enter_context(start(command, *options, "--exchange-interval-s", "0.2", *flags))

    def ask(self, node: Headgate, key: str, value: str, hits: int = 1) -> DescriptorStatus:
        client = self._clients.get(node)
        if client is None:
            client = self._clients[node] = self._stack.enter_context(Client(node.grpc, timeout_s=PATIENCE_S))
        (status,) = client.should_rate_limit(DOMAIN, [{key: value}], hits).statuses
        return status


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Regions]:
    with ExitStack() as stack:
        yield Regions(stack, tmp_path_factory.mktemp("regions"))


def test_a_limit_is_one_for_all_of_them(regions: Regions) -> None:
    (eu,), (us, other), (ap,) = (regions.nodes[region] for region in NAMES)
    for node, hits in ((eu, 50), (us, 30), (ap, EXACT_LIMIT - 80)):
        assert regions.ask(node, "exact", "mixed", hits).code == "OK"

    def all_deny() -> bool:
        return {regions.ask(node, "exact", "mixed").code for node in (eu, us, other, ap)} == {"OVER_LIMIT"}

    wait_until(all_deny, "what all have used to be missing everywhere", every_s=0.5)


@pytest.mark.long  # test_quota.py does it in one of them
def test_slices_follow_the_traffic_whatever_they_are_kept_in(regions: Regions) -> None:
    wait_until(lambda: by_slices(regions.keepers), "each region to go by its slices")
    for busy in ("eu", "ap"):
        quiet = dict.fromkeys(NAMES, 5)
        with Demand(regions, busy, {**quiet, busy: 90}):
            wait_until(lambda: _has_grown(regions, busy), f"{busy} to have more than its even part", every_s=0.25)  # noqa: B023 - waited for here


def _has_grown(regions: Regions, busy: str) -> bool:
    shares = enforced(regions.keepers, busy)
    assert sum(shares.values()) <= WHOLE, shares
    return shares.get(busy, 0) > WHOLE // 2
