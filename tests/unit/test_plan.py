"""A plan that is made from a shape is the one that would have been made from nothing."""

import inspect
import random
from pathlib import Path
from typing import Any

import pytest
from headgate.errors import RequestError
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.decision import Charge
from headgate.limiter.engine import Engine
from headgate.plan import MOST_ALIKE, MOST_SHAPES, Plan, Shape
from headgate.rules.directory import load_directory
from headgate.rules.model import Rules
from headgate.rules.ruleset import RuleSet
from headgate.wire import ratelimit as wire
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import ManualClock

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
def rules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rules:
    """With routes, and without: they are for domains in which each counter's key chooses its shard."""
    directory: Path = tmp_path_factory.mktemp("rules")
    (directory / "edge.yaml").write_text(request.param + RULES)
    return load_directory(directory)


def handler_of(rules: Rules) -> RateLimitHandler:
    engine = Engine(ManualClock(0), max_cells=1000)
    return RateLimitHandler(rules=lambda: rules, engine=engine, random=random.Random(1), settings=AnswerSettings())


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
    unlike = ("ask", "templates", "tallies", "grouped", "tally", "others", "version")
    shape = [getattr(plan.shape, name) for name in fields(Shape) if name not in unlike]
    tallies = [tally.name for tally in (*plan.shape.tallies, *plan.shape.others)]
    tallies += [tally.name for tally, count in plan.shape.grouped for _ in range(count)]
    charges = [[getattr(charge, name) for name in fields(Charge) if name != "look"] for charge in plan.charges]
    return shape, tallies, charges, type(plan.charges), plan.shape.ask.__name__, plan.size


@given(requests=REQUESTS)
def test_of_every_sequence_of_requests_the_plans_are_as_if_each_were_the_first(
    rules: Rules, requests: list[tuple[list[list[tuple[str, str]]], int]]
) -> None:
    one = handler_of(rules)
    for descriptors, hits in requests:
        payload = payload_of(descriptors, hits)
        assert shown(one._plan(payload, rules)) == shown(handler_of(rules)._plan(payload, rules))


def planned(handler: RateLimitHandler, payload: bytes, rules: Rules) -> Any:
    """The plan, or what is said of a request that has none."""
    try:
        return shown(handler._plan(payload, rules))
    except RequestError as error:
        return str(error)


@given(data=st.data(), key=st.sampled_from(["user", "vip", "tokens"]), hits=st.sampled_from([0, 1, 130]))
def test_whatever_bytes_stand_in_another_requests_place_are_planned_as_if_they_were_the_first(
    rules: Rules, data: st.DataObject, key: str, hits: int
) -> None:
    """A request that was read is an example for others; what is like it but for some bytes may be no request at all."""
    one = handler_of(rules)
    payload = payload_of([[(key, "ann")]], hits)
    for _ in range(3):  # the first makes a shape, the second an example
        one._plan(payload, rules)
    for _ in range(3):
        start = data.draw(st.integers(0, len(payload) - 1))
        other = data.draw(st.binary(min_size=1, max_size=len(payload) - start))
        changed = payload[:start] + other + payload[start + len(other) :]
        assert planned(one, changed, rules) == planned(handler_of(rules), changed, rules)


@pytest.mark.pure("compiled code calls scan without asking the module for it")
def test_who_differs_from_another_in_the_last_value_alone_is_not_read(
    rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or nothing would have been won by examples."""
    handler = handler_of(rules)
    for name in ("ann", "bob"):
        handler._plan(payload_of([[("user", name)]], 0), rules)
    read: list[bytes] = []
    scan = wire.scan

    def noted(payload: bytes, bounds: wire.RequestBounds) -> wire.Scanned | None:
        read.append(payload)
        return scan(payload, bounds)

    monkeypatch.setattr(wire, "scan", noted)
    plan = handler._plan(payload_of([[("user", "eve")]], 0), rules)
    assert plan.charges[0].entries == (("user", "eve"),)
    routed = rules.route("edge", (("user", "ann"),)) is not None
    assert bool(read) is not routed


def test_examples_are_bounded_however_many_ways_callers_take(rules: Rules) -> None:
    handler = handler_of(rules)
    for number in range(100, 140):
        handler._plan(payload_of([[("realm", str(number)), ("path", "/c")]], 0), rules)
        handler._plan(payload_of([[("realm", "x"), ("path", "/" + "c" * number)]], 0), rules)
    assert all(len(examples) <= MOST_ALIKE for examples in handler._shapes._examples.values())


def test_requests_that_meet_the_same_rules_share_their_shape(rules: Rules) -> None:
    """Or nothing would have been won."""
    handler = handler_of(rules)
    first, second = (handler._plan(payload_of([[("user", name)]], 0), rules) for name in ("ann", "bob"))
    assert first.shape is second.shape
    assert first.charges[0].key != second.charges[0].key


def test_shapes_are_bounded_whatever_costs_callers_name(rules: Rules) -> None:
    handler = handler_of(rules)
    for cost in range(MOST_SHAPES + 10):
        handler._plan(payload_of([[("user", "ann")]], cost + 1), rules)
    assert len(handler._shapes._shapes) <= MOST_SHAPES


def test_who_meets_rules_for_any_value_is_not_matched(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing would have been won by routes."""
    handler = handler_of(rules)
    first = handler._plan(payload_of([[("user", "ann")], [("realm", "x"), ("path", "/")]], 0), rules)
    matched: list[str] = []
    match = RuleSet.match

    def noted(of: RuleSet, domain: str, entries: Any) -> Any:
        matched.append(domain)
        return match(of, domain, entries)

    monkeypatch.setattr(RuleSet, "match", noted)
    again = handler._plan(payload_of([[("user", "bob")], [("realm", "y"), ("path", "/c")]], 0), rules)
    assert again.shape is first.shape
    routed = rules.route("edge", (("user", "ann"),)) is not None
    assert bool(matched) is not routed
