"""A region of real processes over real shards: nothing lost, nothing doubled, nothing waited for."""

import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate.region.stats import WAIT_BOUNDS_S
from headgate_client import Client
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import load
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.observer import total_in_current_window
from tests.support.redis_servers import RedisServer, cluster_url, redis_cluster, redis_shards, shards_url
from tests.support.waiting import undisturbed, wait_until

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
LIMIT = 1_000_000
RULES = f"""
domain: region
descriptors:
- key: wide
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}}}
- key: ten
  rate_limit: {{unit: year, requests_per_unit: 10}}
- key: exact
  rate_limit: {{unit: year, requests_per_unit: 50, precision: 0}}
"""


class Region:
    def __init__(self, rules: Path, shards: list[RedisServer], stack: ExitStack) -> None:
        self.rules = rules
        self.shards = shards
        self.url = shards_url(shards)
        self.admitted = 0
        self._stack = stack

    def start_node(self) -> Headgate:
        return self._stack.enter_context(serve(self.rules, "--origin", self.url, "--origin-deadline-ms", "1000"))

    def load(self, nodes: list[Headgate], key: str, *, per_s: float, seconds: float, value: str = "x") -> load.Outcome:
        payload = request(key, value)

        def count(number: int, message: bytes | None) -> None:
            if message is not None and RateLimitResponse.FromString(message).overall_code == RateLimitResponse.OK:
                self.admitted += 1

        addresses = [node.grpc for node in nodes]
        chooser = random.Random(3)
        return load.run_paced(
            addresses, METHOD, lambda number: payload, per_s=per_s, seconds=seconds, chooser=chooser, on_answer=count
        )

    def counted(self, key: str, value: str = "x") -> int:
        return total_in_current_window(self.url, self.rules, "region", (key, value))


def request(key: str, value: str) -> bytes:
    entry = RateLimitDescriptor.Entry(key=key, value=value)
    return RateLimitRequest(domain="region", descriptors=[RateLimitDescriptor(entries=[entry])]).SerializeToString()


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    rules = write_rules(tmp_path / "rules", RULES)
    with ExitStack() as stack:
        shards = stack.enter_context(redis_shards(3))
        yield Region(rules, shards, stack)


def metric(node: Headgate, name: str) -> float:
    """A counter's value, summed over its labels."""
    text = node.get("/metrics").body.decode()
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    assert values, f"no {name} in /metrics"
    return sum(map(float, values))


def test_every_admitted_hit_is_counted_once(region: Region) -> None:
    nodes = [region.start_node() for _ in range(3)]
    outcome = region.load(nodes, "wide", per_s=600, seconds=2)
    assert (outcome.failures, outcome.unanswered) == (0, 0)
    assert region.admitted == outcome.answers == 1200
    wait_until(lambda: region.counted("wide") == region.admitted, "all totals to arrive")


def test_a_drained_node_leaves_nothing_unreported(region: Region) -> None:
    node = region.start_node()
    region.load([node], "wide", per_s=300, seconds=0.5)
    wait_until(lambda: asked_again([node]), "a shard that can be told")
    assert node.stop() == 0
    assert region.counted("wide") == region.admitted == 150


def asked_again(nodes: list[Headgate]) -> bool:
    """No breaker is open: every shard is asked."""
    shards = [shard for node in nodes for shard in node.get("/readyz").json()["origin"]["shards"]]
    return {shard["breaker"] for shard in shards} == {"closed"}


def test_a_killed_node_takes_at_most_one_flush_with_it(region: Region) -> None:
    victim, survivor = region.start_node(), region.start_node()
    region.load([victim, survivor], "wide", per_s=500, seconds=1)
    wait_until(lambda: region.counted("wide") == region.admitted, "all totals to arrive")
    before = region.admitted
    outcome = region.load([victim], "wide", per_s=400, seconds=0.2)
    victim.send(signal.SIGKILL)
    victim.wait_exit()
    at_risk = outcome.answers
    region.load([survivor], "wide", per_s=400, seconds=0.3)
    safe = region.admitted - at_risk
    wait_until(lambda: region.counted("wide") >= safe, "the survivor's totals")
    assert before < safe <= region.counted("wide") <= region.admitted


def test_warm_requests_far_from_the_limit_wait_for_nobody(region: Region) -> None:
    node = region.start_node()
    region.load([node], "wide", per_s=100, seconds=0.3)
    assert metric(node, "headgate_origin_waits_total") >= 1, "the cold one"

    def attempt(_: int) -> float:
        """Where the machine takes seconds between two of them, what is known is no longer fresh."""
        waits = metric(node, "headgate_origin_waits_total")
        assert region.load([node], "wide", per_s=500, seconds=2).answers == 1000
        return metric(node, "headgate_origin_waits_total") - waits

    undisturbed(attempt)


def test_a_wait_is_in_its_bucket_of_the_histogram(region: Region) -> None:
    """One cold request waits once; the sum of all waits is then its own, and says which bucket it belongs to."""
    node = region.start_node()
    assert waits(node).samples[-1].value == 0
    with Client(node.grpc, timeout_s=10) as client:
        assert client.should_rate_limit("region", [{"wide": "x"}]).admitted
    *buckets, count, total = waits(node).samples
    bounds_s = [float(bucket.labels["le"]) for bucket in buckets]
    assert bounds_s == [*WAIT_BOUNDS_S, float("inf")]
    assert (count.value, buckets[-1].value) == (1, 1)
    assert total.value > 0
    assert [bucket.value for bucket in buckets] == [int(total.value <= bound_s) for bound_s in bounds_s]


def waits(node: Headgate) -> Metric:
    families = text_string_to_metric_families(node.get("/metrics").body.decode())
    (family,) = [family for family in families if family.name == "headgate_origin_wait_seconds"]
    assert family.type == "histogram"
    return family


@pytest.mark.parametrize(("key", "limit"), [("ten", 10), ("exact", 50)])
def test_small_and_exact_limits_are_never_exceeded_by_many_clients(region: Region, key: str, limit: int) -> None:
    nodes = [region.start_node() for _ in range(4)]
    addresses = [node.grpc for node in nodes] * 8

    def attempt(number: int) -> float:
        payload = request(key, f"x{number}")
        before = sum(map(degraded, nodes))
        with ThreadPoolExecutor(len(addresses)) as pool:
            admitted = sum(pool.map(lambda address: count_admitted(address, payload, 12), addresses))
        by_policy = sum(map(degraded, nodes)) - before
        if not by_policy:
            assert admitted == limit
            assert region.counted(key, f"x{number}") == limit
        return by_policy

    undisturbed(attempt)


def degraded(node: Headgate) -> float:
    """Decisions that a failure policy made."""
    text = node.get("/metrics").body.decode()
    return sum(map(float, re.findall(r'^headgate_decisions_total{.*path="degraded_\w+".*} (\S+)$', text, re.MULTILINE)))


def count_admitted(address: str, payload: bytes, calls: int) -> int:
    admitted = 0

    def count(number: int, message: bytes | None) -> None:
        nonlocal admitted
        assert message is not None
        admitted += RateLimitResponse.FromString(message).overall_code == RateLimitResponse.OK

    load.run_paced(
        [address],
        METHOD,
        lambda number: payload,
        per_s=calls * 5,
        seconds=0.2,
        chooser=random.Random(1),
        on_answer=count,
    )
    return admitted


def test_a_flushed_shard_is_refilled_under_load(region: Region) -> None:
    nodes = [region.start_node() for _ in range(2)]
    region.load(nodes, "wide", per_s=400, seconds=1)
    wait_until(lambda: region.counted("wide") == region.admitted, "all totals to arrive")
    loading = threading.Thread(target=region.load, args=(nodes, "wide"), kwargs={"per_s": 200, "seconds": 2})
    loading.start()
    for shard in region.shards:
        shard.command("FLUSHALL")
    before = region.admitted
    wait_until(lambda: region.counted("wide") >= before, "the refill")
    loading.join()
    wait_until(lambda: region.counted("wide") == region.admitted, "exact totals")


def test_a_restarted_shard_is_refilled_without_traffic(region: Region) -> None:
    node = region.start_node()
    region.load([node], "ten", per_s=100, seconds=0.5)
    assert region.admitted == 10
    for shard in region.shards:
        shard.restart()
    wait_until(lambda: region.counted("ten") == 10, "the refill")
    assert metric(node, "headgate_shard_refills_total") >= 1


def test_readiness_names_what_is_wrong_with_a_shard(region: Region) -> None:
    node = region.start_node()
    assert node.get("/readyz").json()["origin"]["live_nodes"] == 1
    region.shards[0].stop()
    region.load([node], "wide", per_s=300, seconds=1, value="y")

    def named() -> bool:
        servers = node.get("/readyz").json()["origin"]["servers"]
        return any(not server["connected"] and "refused" in server["error"] for server in servers)

    wait_until(named, "the dead shard in /readyz")
    assert node.get("/readyz").status == 200, "it serves on by failure policy"


def test_when_a_clusters_master_dies_its_replica_goes_on_and_nothing_is_miscounted(tmp_path: Path) -> None:
    """What the replica had not been sent yet, the nodes tell it."""
    rules = write_rules(tmp_path / "rules", RULES)
    values = [f"user-{number}" for number in range(24)]
    admitted: Counter[str] = Counter()

    def count(number: int, message: bytes | None) -> None:
        assert message is not None
        if RateLimitResponse.FromString(message).overall_code == RateLimitResponse.OK:
            admitted[values[number % len(values)]] += 1

    def load_nodes(nodes: list[Headgate], seconds: float) -> load.Outcome:
        return load.run_paced(
            [node.grpc for node in nodes],
            METHOD,
            lambda number: request("wide", values[number % len(values)]),
            per_s=300,
            seconds=seconds,
            chooser=random.Random(7),
            on_answer=count,
        )

    with ExitStack() as stack:
        servers = stack.enter_context(redis_cluster(replicated=True))
        url = cluster_url(servers[:3])
        nodes = [stack.enter_context(serve(rules, "--origin", url, "--origin-deadline-ms", "1000")) for _ in range(2)]
        load_nodes(nodes, 1)
        heir = servers[3]
        servers[0].stop()
        outcome = load_nodes(nodes, 2)
        assert (outcome.failures, outcome.unanswered) == (0, 0)
        wait_until(lambda: heir.client.info("replication")["role"] == "master", "the replica to be promoted")
        load_nodes(nodes, 1)

        wait_until(lambda: asked_again(nodes), "every group to be asked again")
        assert sum(admitted.values()) == 1200

        def exact() -> bool:
            counted = {value: total_in_current_window(url, rules, "region", ("wide", value)) for value in values}
            # What was charged and not heard of pays for the node's next admission on that key.
            owing = [value for value in values if counted[value] > admitted[value]]
            for value in owing:
                for node in nodes:
                    admitted[value] += count_admitted(node.grpc, request("wide", value), 1)
            return not owing and counted == admitted

        wait_until(exact, "every total to be exact")
        alive = {server.address for server in servers[1:4]}
        wait_until(lambda: addresses_known(nodes[0]) == alive, "the dead master to be forgotten")


def addresses_known(node: Headgate) -> set[str]:
    return {server["address"] for server in node.get("/readyz").json()["origin"]["servers"]}
