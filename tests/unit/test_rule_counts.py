"""What is counted per rule is what was decided, exactly; and users are no series."""

import gc
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.decision import Charge
from headgate.limiter.engine import Engine
from headgate.rules.directory import load_directory
from headgate.rules.ruleset import RuleSet
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.rule_instruments import register_ratelimit_names, register_rules
from headgate.telemetry.tallies import Tallies
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clock import ManualClock

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors:
      - key: path
        value: /login
        rate_limit: {unit: minute, requests_per_unit: 3}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 4}
  - key: plan
    value_to_metric: true
    rate_limit: {name: plans, unit: minute, requests_per_unit: 5}
  - key: whole
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: internal
    rate_limit: {unlimited: true}
  - key: upload
    rate_limit: {unit: minute, requests_per_unit: 100, refund: true}
"""

Labels = dict[str, str]
Load = Callable[[str], RuleSet]


class World:
    """A handler with its metrics, over rules that can be swapped."""

    def __init__(self, load: Load, text: str = RULES, **settings: Any) -> None:
        self.rules = load(text)
        self.unknown: list[str] = []
        self.clock = ManualClock(1_700_000_040_000)
        self.handler = RateLimitHandler(
            rules=lambda: self.rules,
            engine=Engine(self.clock, max_cells=200_000),
            random=random.Random(4),
            settings=AnswerSettings(**settings),
            on_unknown_domain=self.unknown.append,
        )
        self.metrics = Metrics(node="n", region="r")
        register_rules(self.metrics, self.handler.tallies)
        register_ratelimit_names(self.metrics, self.handler.tallies)

    def ask(self, *descriptors: str, domain: str = "edge", hits: int = 0, back: bool = False) -> RateLimitResponse:
        made = [
            RateLimitDescriptor(
                is_negative_hits=back,
                entries=[
                    RateLimitDescriptor.Entry(key=key, value=value)
                    for key, value in (entry.split("=") for entry in descriptor.split(","))
                ],
            )
            for descriptor in descriptors
        ]
        request = RateLimitRequest(domain=domain, descriptors=made, hits_addend=hits)
        answer = self.handler.answer(request.SerializeToString())
        assert isinstance(answer, bytes)
        return RateLimitResponse.FromString(answer)

    def series(self, name: str) -> list[tuple[Labels, float]]:
        families = text_string_to_metric_families(self.metrics.render().decode())
        return [(s.labels, s.value) for family in families for s in family.samples if s.name == name]

    def results(self, rule: str, **more: str) -> Counter[tuple[str, str]]:
        """By result and path; of all values together, or of one."""
        found = Counter[tuple[str, str]]()
        for labels, value in self.series("headgate_rule_decisions_total"):
            if labels["rule"] == rule and more.items() <= labels.items():
                found[labels["result"], labels["path"]] += int(value)
        return found


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str) -> RuleSet:
        (tmp_path / "rules.yaml").write_text(text, encoding="utf-8")
        return load_directory(tmp_path)

    return load


@pytest.fixture
def world(load: Load) -> World:
    return World(load)


def test_a_rules_decisions_by_result_and_path(world: World) -> None:
    for _ in range(13):
        world.ask("user=alice")
    assert world.results("user") == {
        ("within_limit", "local"): 10,
        ("over_limit", "local"): 1,
        ("over_limit", "deny_cache"): 2,
    }


def test_of_several_rules_only_those_without_room_are_over(world: World) -> None:
    for _ in range(5):
        world.ask("user=alice", "user=alice,path=/login")
    assert world.results("user>path=/login") == {
        ("within_limit", "local"): 3,
        ("over_limit", "local"): 1,
        ("over_limit", "deny_cache"): 1,
    }
    assert sum(world.results("user").values()) == 5
    assert not any(result == "over_limit" for result, _ in world.results("user"))


def test_a_shadow_rule_counts_what_it_would_have_denied(world: World) -> None:
    answers = [world.ask("watched=x") for _ in range(7)]
    assert all(answer.overall_code == RateLimitResponse.OK for answer in answers)
    assert world.results("watched") == {("within_limit", "local"): 4, ("shadow_over_limit", "shadow"): 3}


def test_global_shadow_mode_counts_with_the_rules_that_it_holds_back(load: Load) -> None:
    world = World(load, shadow_mode=True)
    for _ in range(12):
        world.ask("user=alice")
    assert world.results("user") == {("within_limit", "local"): 10, ("shadow_over_limit", "shadow"): 2}


def test_near_the_limit_is_the_last_fifth_of_it(world: World) -> None:
    for _ in range(12):
        world.ask("user=alice")
    near = {labels["rule"]: value for labels, value in world.series("headgate_rule_near_limit_total")}
    assert near == {"user": 2}, "the ninth and the tenth of ten"


def test_costs_are_counted_beside_requests(world: World) -> None:
    world.ask("user=alice", hits=7)
    world.ask("user=alice", hits=7)
    world.ask("user=alice")
    costs = {labels["result"]: value for labels, value in world.series("headgate_rule_cost_total")}
    assert costs == {"within_limit": 8, "over_limit": 7}


def test_values_are_told_apart_only_where_a_rule_says_so(world: World) -> None:
    for value in ("free", "free", "paid"):
        world.ask(f"plan={value}")
    world.ask("whole=a")
    assert sum(world.results("plans", value="free").values()) == 2
    assert sum(world.results("plans", value="paid").values()) == 1
    assert sum(world.results("whole", value="whole_a").values()) == 1


def test_what_no_rule_limits_is_counted_too(world: World) -> None:
    world.ask("internal=x")
    world.ask("other=x", "user=alice")
    assert world.results("internal") == {("within_limit", "unlimited"): 1}
    assert world.results("(none)") == {("within_limit", "no_rule"): 1}


def test_limits_of_requests_have_a_name_of_their_own(world: World) -> None:
    made = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key="any", value="x")])
    made.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=1, unit="MINUTE"))
    for _ in range(2):
        world.handler.answer(RateLimitRequest(domain="edge", descriptors=[made]).SerializeToString())
    assert world.results("(request)") == {("within_limit", "local"): 1, ("over_limit", "local"): 1}


def test_unknown_domains_are_counted_by_request_and_told_once(world: World) -> None:
    for _ in range(3):
        world.ask("user=alice", "user=bob", domain="egde")
    assert world.series("headgate_unknown_domain_requests_total") == [({"domain": "egde"}, 3.0)]
    assert world.unknown == ["egde"]
    assert world.series("headgate_rule_decisions_total") == []


def test_counts_stay_when_the_rules_change(world: World, load: Load) -> None:
    world.ask("user=alice")
    world.rules = load(RULES.replace("requests_per_unit: 10", "requests_per_unit: 20"))
    world.ask("user=alice")
    assert world.results("user") == {("within_limit", "local"): 2}


def test_a_scripted_run_equals_what_callers_were_told(world: World) -> None:
    """Ten thousand requests, each counted once per descriptor, with the result that its caller saw."""
    rng, told = random.Random(7), Counter[tuple[str, bool]]()
    for step in range(10_000):
        rules = rng.sample(["user", "watched", "plan", "internal", "other"], rng.randint(1, 3))
        answer = world.ask(*[f"{rule}={rng.randint(0, 5)}" for rule in rules])
        for rule, status in zip(rules, answer.statuses, strict=True):
            told[rule, status.code == RateLimitResponse.OVER_LIMIT] += 1
        if step % 500 == 0:
            world.clock.advance(20_000)
    names = {"user": "user", "watched": "watched", "plan": "plans", "internal": "internal", "other": "(none)"}
    for rule, name in names.items():
        counts = world.results(name)
        over = sum(count for (result, _), count in counts.items() if result == "over_limit")
        assert (over, sum(counts.values()) - over) == (told[rule, True], told[rule, False]), rule
    assert told["user", True], "some were denied"


def test_ratelimits_names_have_the_same_counts(world: World) -> None:
    for _ in range(4):
        world.ask("user=alice,path=/login")
    for _ in range(6):
        world.ask("watched=x")
    labels = {"domain": "edge", "key1": "user", "key2": "path_/login"}
    for name, count in (("total_hits", 4), ("within_limit", 3), ("over_limit", 1), ("near_limit", 1)):
        # The parser knows counters by the ending that these names do not have.
        assert (labels, count) in world.series(f"ratelimit_service_rate_limit_{name}_total")
    assert b"\nratelimit_service_rate_limit_total_hits{" in world.metrics.render()
    shadow = world.series("ratelimit_service_rate_limit_shadow_mode_total")
    assert ({"domain": "edge", "key1": "watched"}, 2) in shadow


def test_ratelimits_labels_are_those_of_envoy_gateways_mapping() -> None:
    tallies = Tallies()
    for text in ("a=1 > b=2 > c=3", "a=1 > b=2 > c=4", "ip=10.1.2.3/8 > x=a|b:c"):
        tallies.of_rule("gw:http", text, text).within["local"] += 1
    metrics = Metrics(node="n", region="r")
    register_ratelimit_names(metrics, tallies)
    lines = [line for line in metrics.render().decode().splitlines() if "_total_hits{" in line]
    assert lines == [
        'ratelimit_service_rate_limit_total_hits{domain="gw_http",key1="a_1",key2="b_2"} 2.0',
        'ratelimit_service_rate_limit_total_hits{domain="gw_http",key1="ip_10_1_2_3/8",key2="x_a_b_c"} 1.0',
    ]


def test_with_detailed_metric_ratelimits_labels_are_the_descriptors_levels(load: Load) -> None:
    """As its `detailedMetricFullKey` has them; with `value_to_metric` the value stands behind its key."""
    world = World(
        load,
        """
domain: edge
descriptors:
  - {key: user, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 9}}
  - key: plan
    descriptors:
      - {key: user, value: a*, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: tier, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 9}}
""",
    )
    for descriptor in ("user=al", "plan=free,user=al", "tier=gold"):
        world.ask(descriptor)
    hits = [labels for labels, _ in world.series("ratelimit_service_rate_limit_total_hits_total")]
    assert sorted((labels["key1"], labels.get("key2", "")) for labels in hits) == [
        ("plan_free", "user_al"),
        ("tier_gold", ""),
        ("user_al", ""),
    ]


def test_what_is_given_back_is_counted_apart(world: World) -> None:
    world.ask("upload=alice", hits=30)
    world.ask("upload=alice", hits=20, back=True)
    labels = {"domain": "edge", "key1": "upload"}
    for name, count in (("total_hits", 30), ("within_limit", 30), ("total_negative_hits", 20)):
        assert (labels, count) in world.series(f"ratelimit_service_rate_limit_{name}_total")


@pytest.mark.slow
def test_a_hundred_thousand_users_are_no_series(world: World) -> None:
    def series() -> int:
        return sum(1 for line in world.metrics.render().splitlines() if not line.startswith(b"#"))

    for _ in range(11):
        world.ask("user=000000")
    before = series()
    entry = RateLimitDescriptor.Entry(key="user", value="000000")
    payload = RateLimitRequest(domain="edge", descriptors=[RateLimitDescriptor(entries=[entry])]).SerializeToString()
    for user in range(1, 100_001):
        world.handler.answer(payload.replace(b"000000", b"%06d" % user))
    assert series() == before
    assert world.results("user")["within_limit", "local"] == 100_010


def test_a_request_that_is_not_kept_is_gone_when_it_is_answered(world: World) -> None:
    """Not only when the garbage collector comes: what callers send may be long."""

    def charges() -> int:
        return sum(isinstance(found, Charge) for found in gc.get_objects())

    world.ask("user=first")  # what all of them have in common is kept
    gc.collect()
    gc.disable()
    try:
        before = charges()
        for number in range(50):
            world.ask(f"user={number}{'x' * 5000}")
        assert charges() == before
    finally:
        gc.enable()
