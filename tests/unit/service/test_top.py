"""`GET /top`: the heaviest keys of each rule, from a handler's denials and an engine's counters."""

import random
from pathlib import Path
from typing import Any

import pytest
from headgate.cli.top import lines_of
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.counters import WindowCounter
from headgate.limiter.engine import Engine
from headgate.rules.directory import load_directory
from headgate.runtime import top as top_module
from headgate.runtime.top import Top, merge_tops
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

from tests.support.clock import ManualClock

HOUR_MS = 3_600_000
RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 10}
    descriptors:
      - key: path
        value: /api/*
        rate_limit: {name: apis, unit: hour, requests_per_unit: 100}
"""


class World:
    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "edge.yaml").write_text(RULES)
        rules = load_directory(directory)
        self.clock = ManualClock(1_700_000_040_000)
        engine = Engine(self.clock, max_cells=100_000)
        self.counters = engine.counters
        self.handler = RateLimitHandler(
            rules=lambda: rules, engine=engine, random=random.Random(4), settings=AnswerSettings()
        )
        self.top = Top(self.handler.take_over_limit, engine.counters, self.clock, lambda _: self.clock.now_ms())

    def ask(self, times: int, *entries: tuple[str, str], limit: int | None = None) -> None:
        made = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value=value) for key, value in entries])
        if limit is not None:
            made.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=limit, unit="HOUR"))
        payload = RateLimitRequest(domain="edge", descriptors=[made]).SerializeToString()
        for _ in range(times):
            self.handler.answer(payload)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "rules")


def test_each_rules_heaviest_keys_with_what_is_left_to_them(world: World) -> None:
    world.ask(4, ("user", "bob"))
    world.ask(25, ("user", "alice"))
    world.ask(70, ("user", "bob"), ("path", "/api/x"))
    users, apis = world.top.describe({})["rules"]
    assert (users["domain"], users["rule"]) == ("edge", "user")
    assert users["denied"] == [{"values": {"user": "alice"}, "denied": 15}]
    assert users["admitted"] == [
        {"values": {"user": "alice"}, "admitted": 10, "limit": 10, "remaining": 0},
        {"values": {"user": "bob"}, "admitted": 4, "limit": 10, "remaining": 6},
    ]
    assert (apis["rule"], apis["text"], apis["denied"]) == ("apis", "user > path=/api/*", [])
    assert apis["admitted"][0]["values"] == {"user": "bob", "path": "/api/x"}


def test_what_is_left_is_reckoned_when_it_is_shown(world: World) -> None:
    world.ask(25, ("user", "alice"))
    shown = []
    for _ in range(4):
        (rule,) = world.top.describe({})["rules"] or [{"admitted": []}]
        shown += [(entry["admitted"], entry["remaining"]) for entry in rule["admitted"]]
        world.clock.advance(HOUR_MS // 2)
    # From 14 minutes into an hour, in steps of half an hour.
    assert shown == [(10, 0), (10, 0), (7, 3), (2, 8)]


def test_who_was_let_in_beyond_the_limit_is_shown_with_by_how_much(world: World) -> None:
    world.ask(25, ("user", "alice"))
    (counter,) = world.counters.recent(10)
    assert isinstance(counter, WindowCounter)
    counter.current += 3
    (rule,) = world.top.describe({})["rules"]
    assert rule["admitted"] == [
        {"values": {"user": "alice"}, "admitted": 13, "limit": 10, "remaining": 0, "over_by": 3}
    ]
    assert any("(0 of 10 left, 3 over the limit)" in line for line in lines_of(dict(world.top.describe({})), "here"))


def test_who_was_only_ever_denied_uses_nothing(world: World) -> None:
    world.ask(3, ("any", "x"), limit=0)
    (rule,) = world.top.describe({})["rules"]
    assert (len(rule["denied"]), rule["admitted"]) == (1, [])


def test_limits_of_requests_are_there_by_their_own_name(world: World) -> None:
    world.ask(3, ("any", "x"), limit=2)
    (rule,) = world.top.describe({})["rules"]
    assert (rule["rule"], rule["denied"]) == ("(request)", [{"values": {"any": "x"}, "denied": 1}])


def test_denials_of_more_keys_than_are_followed_stay_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_module, "MOST_LIMITS", 100)
    world.ask(500, ("user", "heavy"))
    for number in range(1500):
        world.ask(12, ("user", f"u{number}"))
        world.top.take_denied()
    told = world.top.describe({"limit": "1"})
    heavy = told["rules"][0]["denied"][0]
    assert heavy["values"] == {"user": "heavy"}
    assert heavy["denied"] <= 490 <= heavy["denied"] + told["denied_may_be_low_by"]
    assert told["denied_may_be_low_by"] <= (490 + 2 * 1500) / 1001


def test_what_was_denied_long_ago_is_forgotten(world: World) -> None:
    world.ask(12, ("user", "alice"))
    world.top.take_denied()
    world.clock.advance(121_000)
    assert world.top.describe({})["rules"][0]["denied"] == []


def test_several_workers_add_up_denials_and_agree_on_usage(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    for each, times in ((world, 13), (other, 11)):
        each.ask(times, ("user", "alice"))
    world.ask(2, ("user", "bob"))
    other.ask(3, ("user", "bob"))
    merged = merge_tops([world.top.describe({}), other.top.describe({})], 10)
    (rule,) = merged["rules"]
    assert rule["denied"] == [{"values": {"user": "alice"}, "denied": 4}]
    assert rule["admitted"] == [
        {"values": {"user": "alice"}, "admitted": 10, "limit": 10, "remaining": 0},
        {"values": {"user": "bob"}, "admitted": 3, "limit": 10, "remaining": 7},
    ]


def test_values_do_not_steer_a_terminal(world: World) -> None:
    world.ask(11, ("user", "\x1b[2Jevil"))
    lines = lines_of(dict(world.top.describe({})), "here")
    assert any("denied" in line and r"'\x1b[2Jevil'" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_who_is_denied_everywhere_a_little_is_before_who_is_denied_on_one_node_alone() -> None:
    def report(**denied: int) -> dict[str, Any]:
        keys = [{"values": {"user": user}, "denied": count} for user, count in denied.items()]
        rule = {"domain": "edge", "rule": "user", "text": "user", "denied": keys, "admitted": []}
        return {"denied_may_be_low_by": 1, "rules": [rule]}

    merged = merge_tops([report(here=3, everywhere=2), report(there=3, everywhere=2), report(everywhere=2)], 1)
    assert [rule["denied"] for rule in merged["rules"]] == [[{"values": {"user": "everywhere"}, "denied": 6}]]
    assert merged["denied_may_be_low_by"] == 3
