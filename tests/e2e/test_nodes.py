"""The nodes of a region, asked of any one of them: real processes over one Redis."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headgate_client import Headgate as Client

from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

NAMES = ("one", "two", "three")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """`user`: 5 a year; `bulk`: a million a year."""
    return write_rules(tmp_path / "rules")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@contextlib.contextmanager
def region(rules: Path, redis: RedisServer) -> Iterator[dict[str, Headgate]]:
    with contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, "--origin-deadline-ms", "1000")
        yield {name: stack.enter_context(serve(rules, *flags, "--node-id", name)) for name in NAMES}


def told(node: Headgate) -> dict[str, Any]:
    answer: dict[str, Any] = node.get("/nodes").json()
    return answer


def wait_for_all(node: Headgate) -> dict[str, Any]:
    wait_until(lambda: told(node)["summed"] == sorted(NAMES), "every node to have heard that somebody looks")
    return told(node)


def decided(answer: dict[str, Any]) -> int:
    return sum(sum(bucket["decisions"].values()) for bucket in answer["trend"]["buckets"])


def ask(node: Headgate, times: int, **entries: str) -> None:
    with Client(node.grpc, "edge", timeout=5, keep_denials=0, on_error="raise") as client:
        for _ in range(times):
            client.check([entries])


def test_any_node_tells_of_all_and_adds_up_what_they_decided(rules: Path, redis: RedisServer) -> None:
    with region(rules, redis) as nodes:
        for number, node in enumerate(nodes.values()):
            ask(node, 10 * (number + 1), bulk="b")
            ask(node, 6, user=f"caller {number}")
        wait_until(lambda: decided(wait_for_all(nodes["two"])) == 60 + 18, "all decisions to be told")
        answer = told(nodes["two"])
        assert (answer["node"], answer["live_nodes"], answer["error"]) == ("two", 3, "")
        assert [node["node"] for node in answer["nodes"]] == sorted(NAMES)
        for node in answer["nodes"]:
            assert (node["answers"], node["state"], node["rules"]["differ"]) == (True, "serving", False)
            assert [shard["breaker"] for shard in node["shards"]] == ["closed"]
        by_rule = {rule["rule"]: rule for rule in answer["top"]["rules"]}
        denied = {key["values"]["user"]: key["denied"] for key in by_rule["user"]["denied"]}
        assert denied == {f"caller {number}": 1 for number in range(3)}
        (shard,) = answer["shards"]
        assert (shard["breaker"], shard["not_closed_on"]) == ("closed", [])


@pytest.mark.long
def test_a_node_that_hangs_is_told_by_name_and_left_out_of_the_sums(rules: Path, redis: RedisServer) -> None:
    with region(rules, redis) as nodes:
        ask(nodes["one"], 10, bulk="b")
        ask(nodes["three"], 7, bulk="b")
        wait_until(lambda: decided(wait_for_all(nodes["one"])) == 17, "all decisions to be told")
        nodes["three"].send(signal.SIGSTOP)
        try:
            wait_until(lambda: told(nodes["one"])["summed"] == ["one", "two"], "the silent node to be missed")
            answer = told(nodes["one"])
            assert {node["node"]: node["answers"] for node in answer["nodes"]} == {
                "one": True,
                "two": True,
                "three": False,
            }
            assert decided(answer) == 10
        finally:
            nodes["three"].send(signal.SIGCONT)
        assert decided(wait_for_all(nodes["one"])) == 17


def test_a_node_that_ends_is_not_missed(rules: Path, redis: RedisServer) -> None:
    with region(rules, redis) as nodes:
        wait_for_all(nodes["one"])
        assert nodes["two"].stop() == 0
        names = ["one", "three"]
        wait_until(lambda: [node["node"] for node in told(nodes["one"])["nodes"]] == names, "the node to be gone")


@pytest.mark.long
def test_rules_that_differ_are_told(rules: Path, redis: RedisServer, tmp_path: Path) -> None:
    other = write_rules(tmp_path / "other", "domain: edge\ndescriptors: []\n")
    with region(rules, redis) as nodes, serve(other, "--origin", redis.url, "--node-id", "other"):
        wait_until(lambda: len(told(nodes["one"])["nodes"]) == 4, "the fourth node")
        differ = {node["node"]: node["rules"]["differ"] for node in told(nodes["one"])["nodes"]}
        assert differ == {"one": False, "two": False, "three": False, "other": True}


def test_without_the_origin_the_others_are_told_as_they_were(rules: Path, redis: RedisServer) -> None:
    with region(rules, redis) as nodes:
        wait_for_all(nodes["one"])
        redis.stop()
        wait_until(lambda: told(nodes["one"])["error"], "the origin to be missed")
        wait_until(lambda: told(nodes["one"])["summed"] == ["one"], "the others' bulletins to be old")
        answer = told(nodes["one"])
        assert [node["node"] for node in answer["nodes"]] == sorted(NAMES)
        assert all(node["age_ms"] >= 6_000 for node in answer["nodes"] if node["node"] != "one")


def test_workers_are_nodes_too_and_told_even_without_the_origin(rules: Path, redis: RedisServer) -> None:
    flags = ("--origin", redis.url, "--workers", "2", "--node-id", "here")
    with serve(rules, *flags) as served, serve(rules, "--origin", redis.url, "--node-id", "there"):
        wait_until(lambda: len(told(served)["summed"]) == 3, "both workers and the other node")
        names = [node["node"] for node in told(served)["nodes"]]
        assert [name.partition("-w")[0] for name in names] == ["here", "here", "there"]
        redis.stop()
        wait_until(lambda: told(served)["error"], "the origin to be missed")
        wait_until(lambda: told(served)["summed"] == names[:2], "the workers alone to be heard")
        assert served.stop() == 0


def test_a_node_on_its_own_tells_of_itself(rules: Path) -> None:
    with serve(rules, "--node-id", "alone") as served:
        ask(served, 6, user="a")
        wait_until(lambda: decided(told(served)) == 6, "all decisions to be told")
        answer = told(served)
        assert ([node["node"] for node in answer["nodes"]], answer["shards"]) == (["alone"], [])
        assert served.get("/nodes?grain_s=3").status == 400
