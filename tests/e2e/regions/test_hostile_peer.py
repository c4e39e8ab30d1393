"""A region whose token got out, against two whole ones: what it can do to them, and how an operator ends it."""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from headgate.clock import SystemClock
from headgate.exchange.messages import LinkError, Refused
from headgate_client import Client

from tests.e2e.regions.hostile import DOMAIN, LIMIT, RULES, SCOPES, TOKENS, HostileRegion, entry, hostile_region
from tests.e2e.regions.world import NAMES, World, open_world, peer_of, wait_for_peer
from tests.support.headgate import Headgate, run, write_rules
from tests.support.waiting import PATIENCE_S, wait_until

OTHERS = ("region", "cell", "short", "bucket")
"""Scopes that other regions have no say in."""


@dataclass
class Attacked:
    """`eu` and `ap` as they are, and somebody who has the token of `us`."""

    world: World
    hostile: HostileRegion
    admin: str
    tokens: Path

    def admitted(self, node: Headgate, scope: str, value: str, requests: int = 2 * LIMIT) -> int:
        with Client(node.grpc, timeout_s=PATIENCE_S) as client:
            answers = [client.should_rate_limit(DOMAIN, [{scope: value}], 1) for _ in range(requests)]
        return sum(answer.admitted for answer in answers)

    def operate(self, *words: str) -> Any:
        """`headgate …` at a node of `eu`."""
        command, action, *rest = words
        done = run(command, action, "--addr", self.admin, "--token-file", str(self.tokens), "--timeout", "30", *rest)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    with open_world() as world:
        write_rules(world.rules, RULES, "guarded.yaml")
        tokens, admins = world.directory / "tokens", world.directory / "admins"
        tokens.write_text(TOKENS)
        admins.write_text("alice=token-of-alice\n")
        admin = ("--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(admins))
        world.start_nodes(*NAMES, flags=("--exchange-token-file", str(tokens), *admin))
        for region, peer in (("eu", "us"), ("ap", "us"), ("eu", "ap"), ("ap", "eu")):
            wait_for_peer(world.nodes[region], peer, lambda said: said["connected"] and not said["filling"])
        for node in world.nodes["us"]:
            node.send(signal.SIGKILL)
        address = world.nodes["eu"][0].wait_for_event("serving")["admin_grpc"]
        with hostile_region("eu", f"unix:{world.socket('eu', 0)}", tokens) as hostile:
            yield Attacked(world, hostile, address, admins)


def test_it_denies_its_own_count_on_global_keys_and_nothing_else(attacked: Attacked) -> None:
    eu, ap = attacked.world.nodes["eu"][0], attacked.world.nodes["ap"][0]
    attacked.hostile.say(*(entry(scope, "victim") for scope in SCOPES))
    wait_until(lambda: attacked.admitted(eu, "global", "victim", 1) == 0, "what it may say to count")
    for scope in OTHERS:
        assert attacked.admitted(eu, scope, "victim") == LIMIT
        assert attacked.admitted(ap, scope, "victim") == LIMIT


def test_it_can_not_state_what_others_have_counted(attacked: Attacked) -> None:
    """Else it would be told on, as theirs, to regions that it never spoke to, and stay when it is gone."""
    eu, ap = attacked.world.nodes["eu"][0], attacked.world.nodes["ap"][0]
    attacked.hostile.say(returned=tuple(entry(scope, "framed") for scope in SCOPES))
    for scope in OTHERS:
        assert attacked.admitted(eu, scope, "framed") == LIMIT
    assert attacked.admitted(eu, "global", "framed", LIMIT) == LIMIT
    attacked.hostile.say(returned=(entry("global", "framed too"),))
    assert attacked.admitted(ap, "global", "framed too", LIMIT) == LIMIT


def test_it_can_not_reset_keys_of_other_scopes_or_keep_operators_from_it(attacked: Attacked) -> None:
    eu, now_ms = attacked.world.nodes["eu"][0], SystemClock().now_ms()
    for scope in OTHERS:
        assert attacked.admitted(eu, scope, "full") == LIMIT
    attacked.hostile.say(*(entry(scope, "full", 0, reset=now_ms) for scope in OTHERS))
    for scope in OTHERS:
        assert attacked.admitted(eu, scope, "full") == 0
    assert attacked.admitted(eu, "global", "used up") == LIMIT
    assert attacked.hostile.say(entry("global", "used up", 0, reset=2**53)).refused == 1
    reset = attacked.operate("key", "reset", "--domain", DOMAIN, "global=used up", "--why", "a test")
    assert reset["number"] > now_ms
    assert attacked.admitted(eu, "global", "used up") == LIMIT


def test_it_fills_neither_the_memory_nor_the_places_of_operators(attacked: Attacked) -> None:
    redis = attacked.world.redis["eu"]
    before = redis.command("DBSIZE")
    ten_years_ms = 10 * 365 * 86_400_000
    for number in range(5):
        nobodys = [entry("region", f"{number}-{index}", 1, window_ms=ten_years_ms) for index in range(4_000)]
        attacked.hostile.say(*(item._replace(sequence=0) for item in nobodys))
    assert redis.command("DBSIZE") == before
    now_ms = SystemClock().now_ms()
    resets = [entry("global", f"reset-{index}", 0, reset=now_ms) for index in range(4_000)]
    attacked.hostile.say(*resets)
    with pytest.raises(LinkError, match="send them again later"):
        attacked.hostile.say(*(item._replace(key=item.key.replace(b"reset-", b"again-")) for item in resets))
    override = ("--limit", "7", "--until", "1h", "--why", "a test")
    made = attacked.operate("key", "override", "--domain", DOMAIN, "global=honest", *override)
    assert made["limit"] == 7


def test_an_operator_cuts_it_off_with_all_that_it_stated_and_takes_it_back(attacked: Attacked) -> None:
    nodes = attacked.world.nodes["eu"]
    said = [entry("global", f"denied-{number}") for number in range(50)]
    attacked.hostile.say(*said)
    wait_until(lambda: {attacked.admitted(node, "global", "denied-0", 1) for node in nodes} == {0}, "it to be denied")
    cut = attacked.operate("region", "cut", "us", "--why", "its token got out")
    assert (cut["cut"]["region"], cut["cut"]["who"], cut["keys"] >= len(said)) == ("us", "alice", True)
    wait_until(lambda: {attacked.admitted(node, "global", "denied-0", 1) for node in nodes} == {1}, "it to be admitted")
    wait_until(lambda: all(peer_of(node, "us")["cut_off"] for node in nodes), "its nodes to say so")
    with pytest.raises(Refused, match="PERMISSION_DENIED"):
        attacked.hostile.say(*said)
    assert [item["region"] for item in attacked.operate("region", "list")["cuts"]] == ["us"]
    assert attacked.admitted(attacked.world.nodes["ap"][0], "global", "denied-1", 1) == 1, "the others go on"
    assert attacked.operate("region", "restore", "us", "--why", "has another one") == {"restored": True}
    wait_until(lambda: not peer_of(nodes[0], "us")["cut_off"], "it to be heard again")
    assert attacked.hostile.say(*said).refused == 0
