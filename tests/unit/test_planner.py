"""A plan that is made from a shape is the one that would have been made from nothing."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from headgate.errors import RequestError
from headgate.limiter.blocks import Blocks
from headgate.limiter.decision import Charge, Kind
from headgate.limiter.overrides import Overrides
from headgate.limiter.scopes import LimitsOfRegion
from headgate.plan import AnswerSettings, HandlerStats, Plan, Shape
from headgate.planner import MOST_SHAPES, Planner
from headgate.rules.directory import load_directory
from headgate.rules.ruleset import RuleSet
from headgate.telemetry.tallies import Tallies
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest
from hypothesis import given
from hypothesis import strategies as st

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: vip
    value: ann
    rate_limit: {unit: minute, requests_per_unit: 30}
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 100, replaces: [{name: paths}]}
    descriptors:
      - key: path
        value: "/a*"
        rate_limit: {name: paths, unit: second, requests_per_unit: 2}
  - key: realm
    descriptors:
      - key: path
        rate_limit: {unit: second, requests_per_unit: 2}
      - key: path
        value: "/b"
        rate_limit: {unit: second, requests_per_unit: 7}
  - key: realm
    value: bob
    descriptors:
      - key: path
        rate_limit: {unit: second, requests_per_unit: 8}
  - key: shown
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: tokens
    rate_limit: {unit: minute, requests_per_unit: 5, overdraft: true}
  - key: given
    rate_limit: {unit: minute, requests_per_unit: 5, refund: true}
  - key: free
    rate_limit: {unlimited: true}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
"""
KEYS = ("user", "vip", "tenant", "realm", "shown", "tokens", "free", "watched", "nobody")
ENTRIES = st.tuples(st.sampled_from(KEYS), st.sampled_from(["ann", "bob", "", "x" * 200]))
PATHS = st.tuples(st.just("path"), st.sampled_from(["/a", "/abc", "/b"]))
DESCRIPTORS = st.one_of(st.lists(ENTRIES, min_size=1, max_size=1), st.tuples(ENTRIES, PATHS).map(list))
REQUESTS = st.lists(st.tuples(st.lists(DESCRIPTORS, min_size=1, max_size=3), st.sampled_from([0, 1, 2])), max_size=12)


@pytest.fixture(scope="module", params=["", "shard_by: tenant\n"], ids=["by key", "by tenant"])
def rules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    """Each counter's key chooses its shard, or an entry does."""
    directory: Path = tmp_path_factory.mktemp("rules")
    (directory / "edge.yaml").write_text(request.param + RULES)
    return load_directory(directory)


def new_planner(*, overdraft: bool = False) -> Planner:
    return Planner(
        AnswerSettings(),
        HandlerStats(),
        Tallies(),
        LimitsOfRegion(overdraft=overdraft),
        Overrides(),
        Blocks(),
        on_unknown_domain=lambda _: None,
    )


def payload_of(descriptors: list[list[tuple[str, str]]], hits: int) -> bytes:
    request = RateLimitRequest(domain="edge", hits_addend=hits)
    for entries in descriptors:
        made = [RateLimitDescriptor.Entry(key=key, value=value) for key, value in entries]
        request.descriptors.append(RateLimitDescriptor(entries=made))
    return request.SerializeToString()


def fields(kind: type) -> list[str]:
    """What its objects have; a compiled class has no `__slots__` to say it."""
    return [name for name in dir(kind) if name[0] != "_" and inspect.isdatadescriptor(getattr(kind, name))]


def shown(plan: Plan) -> tuple[Any, ...]:
    """All of it, without what is another object by name only."""
    unlike = ("charges", "tallies", "others", "version")
    shape = [getattr(plan.shape, name) for name in fields(Shape) if name not in unlike]
    tallies = [tally.name for tally in (*plan.shape.tallies, *plan.shape.others)]
    charges = [
        [charge.peek.key, *(getattr(charge, name) for name in fields(Charge) if name != "peek")]
        for charge in plan.charges
    ]
    return shape, tallies, charges, type(plan.charges), plan.size


@given(requests=REQUESTS)
def test_of_every_sequence_of_requests_the_plans_are_as_if_each_were_the_first(
    rules: RuleSet, requests: list[tuple[list[list[tuple[str, str]]], int]]
) -> None:
    for overdraft in (False, True):
        one = new_planner(overdraft=overdraft)
        for descriptors, hits in requests:
            payload = payload_of(descriptors, hits)
            assert shown(one.make(payload, rules)) == shown(new_planner(overdraft=overdraft).make(payload, rules))


def planned(planner: Planner, payload: bytes, rules: RuleSet) -> Any:
    """The plan, or what is said of a request that has none."""
    try:
        return shown(planner.make(payload, rules))
    except RequestError as error:
        return str(error)


@given(data=st.data(), key=st.sampled_from(["user", "vip", "tokens"]), hits=st.sampled_from([0, 1, 130]))
def test_whatever_bytes_stand_in_another_requests_place_are_planned_as_if_they_were_the_first(
    rules: RuleSet, data: st.DataObject, key: str, hits: int
) -> None:
    """What is like a request that was read, but for some bytes, may be no request at all."""
    one = new_planner()
    payload = payload_of([[(key, "ann")]], hits)
    one.make(payload, rules)
    for _ in range(3):
        start = data.draw(st.integers(0, len(payload) - 1))
        other = data.draw(st.binary(min_size=1, max_size=len(payload) - start))
        changed = payload[:start] + other + payload[start + len(other) :]
        assert planned(one, changed, rules) == planned(new_planner(), changed, rules)


def test_requests_that_meet_the_same_rules_share_their_shape(rules: RuleSet) -> None:
    """Or nothing would have been won."""
    planner = new_planner()
    first, second = (planner.make(payload_of([[("user", name)]], 0), rules) for name in ("ann", "bob"))
    assert first.shape is second.shape
    assert first.charges[0].key != second.charges[0].key


def test_where_the_setting_makes_costs_late_an_ordinary_request_is_still_decided_exactly(rules: RuleSet) -> None:
    """What ratelimit's mode sets: a request that names no cost is no late cost, unless its rule says so."""
    planner = new_planner(overdraft=True)
    kinds = {
        (key, hits): planner.make(payload_of([[(key, "ann")]], hits), rules).charges[0].kind
        for key in ("user", "tokens")
        for hits in (0, 1, 2)
    }
    assert [kinds["user", hits] for hits in (0, 1, 2)] == [Kind.TAKE, Kind.LATE, Kind.LATE]
    assert [kinds["tokens", hits] for hits in (0, 1, 2)] == [Kind.LATE] * 3
    look = RateLimitRequest(domain="edge", descriptors=[RateLimitDescriptor()])
    look.descriptors[0].entries.add(key="user", value="ann")
    look.descriptors[0].hits_addend.value = 0
    assert planner.make(look.SerializeToString(), rules).charges[0].kind is Kind.PEEK


def test_requests_that_ask_for_another_kind_of_charge_have_another_shape(rules: RuleSet) -> None:
    planner = new_planner()
    tokens = payload_of([[("tokens", "ann")]], 2)
    kinds = [planner.make(tokens, rules, late=late).charges[0].kind for late in (None, False, True)]
    assert kinds == [Kind.LATE, Kind.TAKE, Kind.LATE]
    request = RateLimitRequest.FromString(payload_of([[("given", "ann")]], 2))
    taken = planner.make(request.SerializeToString(), rules).charges[0].kind
    request.descriptors[0].is_negative_hits = True
    assert (taken, planner.make(request.SerializeToString(), rules).charges[0].kind) == (Kind.TAKE, Kind.REFUND)


def test_shapes_are_bounded_whatever_costs_callers_name(rules: RuleSet) -> None:
    planner = new_planner()
    for cost in range(MOST_SHAPES + 10):
        planner.make(payload_of([[("user", "ann")]], cost + 1), rules)
    assert len(planner._shapes) <= MOST_SHAPES
