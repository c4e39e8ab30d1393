"""A plan that is made from a shape, or kept while rules change, is the one that would have been made from nothing."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from headgate.errors import RequestError
from headgate.limiter.blocks import Blocks
from headgate.limiter.decision import Charge, Kind
from headgate.limiter.limit import Limit, Unit
from headgate.limiter.overrides import Overrides
from headgate.limiter.scopes import LimitsOfRegion
from headgate.limiter.shadows import Shadows
from headgate.plan import AnswerSettings, HandlerStats, Plan, Shape
from headgate.planner import MOST_SHAPES, Planner
from headgate.rules.changes import Change, Delete, DomainSettings, Put, changed
from headgate.rules.directory import load_directory
from headgate.rules.model import RuleContent
from headgate.rules.request_limits import RequestLimits
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


def new_planner(tallies: Tallies | None = None, *, overdraft: bool = False) -> Planner:
    return Planner(
        AnswerSettings(),
        HandlerStats(),
        tallies or Tallies(),
        LimitsOfRegion(overdraft=overdraft),
        Overrides(),
        Blocks(),
        Shadows(lambda: 0),
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


# Rules that change


def minute(requests: int) -> RuleContent:
    return RuleContent(Limit(requests, Unit.MINUTE))


def warm(planner: Planner, payload: bytes, rules: RuleSet) -> Plan:
    """The plan of a request that has come often enough to have it kept."""
    planner.plan(payload, rules)
    planner.plan(payload, rules)
    return planner.plan(payload, rules)


def test_a_change_that_does_not_concern_a_plan_leaves_it(rules: RuleSet) -> None:
    planner = new_planner()
    payload = payload_of([[("user", "ann")]], 0)
    plan = warm(planner, payload, rules)
    planned = planner._stats.planned
    changes = [Put("edge", (("user", "zoe"),), minute(1)), Put("other", (("user", ""),), minute(1))]
    for change in changes:
        rules = changed(rules, [change])
        assert planner.plan(payload, rules) is plan
        assert plan.version is rules.version
    assert planner._stats.planned == planned


@pytest.mark.parametrize(
    "change",
    [
        Put("edge", (("user", "ann"),), minute(1)),
        Put("edge", (("user", "a*"),), minute(1)),
        Put("edge", (("user", ""),), minute(1)),
        Put("edge", (("user", "ann"), ("path", "")), minute(1)),
        Delete("edge", (("user", ""),)),
        Delete("edge"),
        DomainSettings("edge", "user"),
        DomainSettings("edge", "", RequestLimits.REFUSE),
    ],
)
def test_a_change_that_concerns_a_plan_has_it_made_again(rules: RuleSet, change: Change) -> None:
    planner = new_planner()
    payload = payload_of([[("user", "ann")]], 0)
    plan = warm(planner, payload, rules)
    after = changed(rules, [change])
    again = planner.plan(payload, after)
    assert again is not plan
    assert shown(again) == shown(new_planner().make(payload, after))
    assert planner.plan(payload, after) is again, "and it is kept"
    assert planner._stats.plan_bytes == again.size


STEPS = st.one_of(ENTRIES, PATHS, st.tuples(st.sampled_from(KEYS), st.just("a*")))
CHANGES = st.lists(
    st.builds(
        Put,
        st.just("edge"),
        st.lists(STEPS, min_size=1, max_size=2).map(tuple),
        st.one_of(st.builds(RuleContent), st.integers(1, 3).map(minute)),
    ),
    max_size=4,
)


@given(requests=REQUESTS, changes=CHANGES)
def test_under_any_changes_a_kept_plan_is_what_it_would_be_if_it_were_made_now(
    rules: RuleSet, requests: list[tuple[list[list[tuple[str, str]]], int]], changes: list[Put]
) -> None:
    one = new_planner()
    payloads = [payload_of(descriptors, hits) for descriptors, hits in requests]
    for payload in payloads:
        warm(one, payload, rules)
    for change in changes:
        rules = changed(rules, [change])
        for payload in payloads[::2]:
            assert shown(one.plan(payload, rules)) == shown(new_planner().make(payload, rules))
    for payload in payloads:
        assert shown(one.plan(payload, rules)) == shown(new_planner().make(payload, rules))


def test_a_domain_that_comes_to_be_is_noticed(rules: RuleSet) -> None:
    planner = new_planner()
    entry = RateLimitDescriptor.Entry(key="user", value="ann")
    payload = RateLimitRequest(domain="new", descriptors=[RateLimitDescriptor(entries=[entry])]).SerializeToString()
    plan = warm(planner, payload, rules)
    assert plan.charges == ()
    after = changed(rules, [Put("edge", (("user", "zoe"),), minute(1))])
    assert planner.plan(payload, after) is plan
    after = changed(after, [Put("new", (("user", ""),), minute(1))])
    assert len(planner.plan(payload, after).charges) == 1


def test_a_plan_that_counts_where_nobody_reads_is_made_again(rules: RuleSet) -> None:
    """Its rule went, its tally made room for another, and the rule came back as it was."""
    planner = new_planner(Tallies(max_rules=1))
    payload, other = payload_of([[("vip", "ann")]], 0), payload_of([[("user", "ann")]], 0)
    plan = warm(planner, payload, rules)
    path = (("vip", "ann"),)
    vip = next(rule for steps, rule in rules.domains["edge"].rules() if steps == path)
    without = changed(rules, [Delete("edge", path)])
    planner.plan(other, without)
    assert plan.shape.tallies[0].dropped
    back = changed(without, [Put("edge", path, vip)])
    assert not planner.plan(payload, back).shape.tallies[0].dropped
