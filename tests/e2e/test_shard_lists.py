"""Real processes whose lists of shards differ: each says so, and only keys that lie elsewhere are counted apart."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate_client import Client

from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import RedisServer, redis_shards, shards_url
from tests.support.waiting import wait_until

LIMIT = 5
VALUES = [f"user-{number}" for number in range(24)]
RULES = f"""
domain: region
descriptors:
- key: user
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}, precision: 0}}
"""


class Region:
    def __init__(self, rules: Path, shards: list[RedisServer], stack: ExitStack) -> None:
        self._rules = rules
        self._shards = shards
        self._stack = stack

    def start_node(self, shards: int) -> Headgate:
        """Start a node whose list has the first so many shards."""
        url = shards_url(self._shards[:shards])
        return self._stack.enter_context(serve(self._rules, "--origin", url, "--origin-deadline-ms", "1000"))


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    with ExitStack() as stack:
        shards = stack.enter_context(redis_shards(3))
        yield Region(write_rules(tmp_path / "rules", RULES), shards, stack)


def listed_otherwise(*nodes: Headgate) -> list[int]:
    return [node.get("/readyz").json()["origin"]["listed_otherwise"] for node in nodes]


def admitted(node: Headgate) -> list[int]:
    """Ask for one more than the limit of every user; return how many were admitted of each."""
    with Client(node.grpc, timeout_s=10) as client:
        answers = [
            [client.should_rate_limit("region", [{"user": value}]) for _ in range(LIMIT + 1)] for value in VALUES
        ]
    return [sum(answer.admitted for answer in of_user) for of_user in answers]


def test_nodes_with_different_lists_say_so_until_the_last_one_has_the_new_list(region: Region) -> None:
    first, second = region.start_node(2), region.start_node(2)
    added = region.start_node(3)
    wait_until(lambda: listed_otherwise(first, second, added) == [1, 1, 2], "each to hear of the others")
    assert b"headgate_origin_nodes_listed_otherwise" in added.get("/metrics").body
    assert first.get("/readyz").status == 200, "they go on serving"
    first.stop()
    again = region.start_node(3)
    wait_until(lambda: listed_otherwise(second, added, again) == [2, 1, 1], "the one that is left to be known")
    second.stop()
    wait_until(lambda: listed_otherwise(added, again) == [0, 0], "all to agree")


def test_only_keys_that_lie_elsewhere_are_counted_apart(region: Region) -> None:
    """One limit more for each of them is what a roll to another list costs; all others are counted together."""
    old, new = region.start_node(2), region.start_node(3)
    assert admitted(old) == [LIMIT] * len(VALUES)
    assert set(admitted(new)) == {0, LIMIT}
    old.stop()
    another = region.start_node(3)
    assert admitted(another) == [0] * len(VALUES), "whoever has the new list counts on"
