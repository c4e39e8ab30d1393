"""The red button at a region's own admin side: nobody is denied on any node, also while Redis is away."""

import contextlib
from pathlib import Path

import pytest

from tests.e2e.test_blocks import admitted, served
from tests.e2e.test_keys import PATIENT, Ended, command
from tests.support.headgate import serve, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 0}
- key: path
  rate_limit: {unit: year, requests_per_unit: 0}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "admins"
    path.write_text("alice=token-of-alice\n")
    return path


def shadow(tokens: Path, address: str, *arguments: str) -> Ended:
    return command("rules", "shadow", f"--addr={address}", "--token-file", str(tokens), "--domain", "edge", *arguments)


def test_nobody_is_denied_on_any_node_until_it_ends(rules: Path, tokens: Path) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, *PATIENT)
        one, address = stack.enter_context(served(rules, tokens, *flags, "--node-id", "one"))
        two = stack.enter_context(serve(rules, *flags, "--node-id", "two"))
        assert not admitted(one, user="ann")
        made = shadow(tokens, address, "user=", "--for", "1h", "--why", "incident 17")
        assert (made.returncode, made.stderr) == (0, "")
        assert made.stdout == "user of edge: in shadow, on every node of region local within a second\n"
        assert admitted(one, user="ann")
        assert not admitted(one, path="/a"), "the other rule denies on"
        wait_until(lambda: admitted(two, user="ann"), "the shadow on the other node")
        audit = one.wait_for_event("rules_in_shadow")
        assert (audit["who"], audit["why"], audit["rule"], audit["stored"]) == ("alice", "incident 17", "user", True)
        assert "\nheadgate_shadowed_domains 1.0\n" in one.get("/metrics").body.decode()
        assert shadow(tokens, address, "user=", "--end", "--why", "over").returncode == 0
        wait_until(lambda: not admitted(two, user="ann"), "the rules to deny again")
        assert shadow(tokens, address, "--for", "2s", "--why", "all of it").returncode == 0
        assert admitted(one, user="ann")
        assert admitted(one, path="/a")
        wait_until(lambda: not admitted(one, path="/a"), "it to end by itself")


def test_while_redis_is_away_the_node_that_is_asked_has_it_and_says_what_it_could_not_reach(
    rules: Path, tokens: Path
) -> None:
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        flags = ("--origin", redis.url, *PATIENT)
        one, address = stack.enter_context(served(rules, tokens, *flags, "--node-id", "one"))
        two = stack.enter_context(serve(rules, *flags, "--node-id", "two"))
        wait_until(
            lambda: all(node.get("/readyz").json()["origin"]["live_nodes"] == 2 for node in (one, two)),
            "the nodes to know each other",
        )
        redis.stop()
        made = shadow(tokens, address, "--for", "1h", "--why", "incident 17")
        assert (made.returncode, "1 more node was alive" in made.stderr) == (1, True), made
        assert "all rules of edge: in shadow, on one of region local" in made.stdout
        assert admitted(one, user="ann")
        redis.start()
        wait_until(lambda: admitted(two, user="ann"), "the other node to hear of it")
