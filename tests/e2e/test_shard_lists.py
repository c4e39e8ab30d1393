"""Real processes and real servers: the list of shards changes under load, nobody restarts, and every count is kept."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from headgate_client import Client

from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import RedisServer, redis_shards, shards_url
from tests.support.waiting import wait_until

LIMIT = 150
VALUES = [f"user-{number}" for number in range(24)]
LEFT = [f"left-{number}" for number in range(12)]
RULES = f"""
domain: region
descriptors:
- key: user
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}, precision: 0}}
"""


class Region:
    def __init__(self, directory: Path, shards: list[RedisServer], stack: ExitStack) -> None:
        self.shards = shards
        self.file = directory / "origin"
        self._rules = write_rules(directory / "rules", RULES)
        self._stack = stack

    def list(self, shards: int) -> None:
        """Have the file name the first so many shards."""
        self.file.write_text(shards_url(self.shards[:shards]))

    def start(self, shards: int | None = None) -> Headgate:
        """Start a node by the file, or with a list of the first so many shards of its own."""
        url = f"file:{self.file}" if shards is None else shards_url(self.shards[:shards])
        return self._stack.enter_context(serve(self._rules, "--origin", url, "--origin-deadline-ms", "1000"))


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    with ExitStack() as stack:
        shards = stack.enter_context(redis_shards(3))
        yield Region(tmp_path, shards, stack)


def origin_of(node: Headgate) -> Any:
    return node.get("/readyz").json()["origin"]


def in_force(shards: int, *nodes: Headgate) -> bool:
    said = [origin_of(node) for node in nodes]
    return all(
        len(one["list"]["shards"]) == shards == len(one["shards"]) and "wanted" not in one["list"] for one in said
    )


class Load:
    """Asks for every user in turn, at one node, until it is stopped; counts what was admitted."""

    def __init__(self, node: Headgate) -> None:
        self.admitted: Counter[str] = Counter()
        self._node = node
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with Client(self._node.grpc, timeout_s=10) as client:
            while not self._stopping.is_set():
                for value in VALUES:
                    self.admitted[value] += client.should_rate_limit("region", [{"user": value}]).admitted
                self._stopping.wait(0.02)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def metric(node: Headgate, name: str) -> float:
    lines = node.get("/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def records(server: RedisServer) -> int:
    return len(server.client.keys("headgate:*k:*"))


def use_up(node: Headgate) -> None:
    """Use up the limits that nobody asks for again before the end: no node but this one knows of them."""
    with Client(node.grpc, timeout_s=10) as client:
        assert all(client.should_rate_limit("region", [{"user": value}], hits=LIMIT).admitted for value in LEFT)


def test_two_three_two_servers_under_load_with_exact_counts(region: Region) -> None:
    region.list(2)
    leaving = region.start()
    use_up(leaving)
    leaving.stop()
    nodes = [region.start(), region.start()]
    with Load(nodes[0]) as first, Load(nodes[1]) as second:
        wait_until(lambda: min(first.admitted[value] for value in VALUES) > 5, "some load")
        region.list(3)
        wait_until(lambda: in_force(3, *nodes), "three to be in force")
        assert records(region.shards[2]) > 0
        region.list(2)
        wait_until(lambda: in_force(2, *nodes), "two to be in force again")
        assert records(region.shards[2]) == 0, "nothing is left behind, so that it may be switched off"
        wait_until(lambda: sum((first.admitted + second.admitted).values()) == LIMIT * len(VALUES), "every limit")
    assert first.admitted + second.admitted == Counter(dict.fromkeys(VALUES, LIMIT))
    with Client(nodes[0].grpc, timeout_s=10) as client:
        assert not any(client.should_rate_limit("region", [{"user": value}]).admitted for value in LEFT)
    assert sum(metric(node, "headgate_origin_keys_moved_total") for node in nodes) > 0
    assert sum(metric(node, "headgate_shard_degraded_total") for node in nodes) == 0, "no policy had to decide"


@pytest.mark.long  # the simulation plays it with every fault
def test_nodes_that_are_started_with_another_list_go_by_the_region_s_until_all_want_it(region: Region) -> None:
    """So a change by restarting one node after the other costs nothing either."""
    old, new = region.start(2), region.start(3)
    wait_until(lambda: origin_of(new)["listed_otherwise"] == origin_of(old)["listed_otherwise"] == 1, "them to hear")
    assert len(origin_of(new)["list"]["shards"]) == 2
    assert "nodes that have another list" in origin_of(new)["list"]["waits_for"]
    with Load(old) as first, Load(new) as second:
        wait_until(lambda: sum((first.admitted + second.admitted).values()) == LIMIT * len(VALUES), "every limit")
    old.stop()
    again = region.start(3)
    wait_until(lambda: in_force(3, new, again), "three to be in force")
    with Client(again.grpc, timeout_s=10) as client:
        assert not any(client.should_rate_limit("region", [{"user": value}]).admitted for value in VALUES)


def test_another_kind_of_origin_is_refused_and_said(region: Region) -> None:
    region.list(2)
    node = region.start()
    region.file.write_text(shards_url(region.shards[:2]).replace("redis://", "redis+cluster://"))
    wait_until(lambda: "file_error" in origin_of(node), "it to be refused")
    assert "only the list of servers may change while a process runs" in origin_of(node)["file_error"]
    assert node.get("/readyz").status == 200
    region.list(3)
    wait_until(lambda: in_force(3, node), "a file that is right again")
