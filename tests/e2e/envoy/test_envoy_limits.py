"""Envoy's HTTP filter in front of Headgate: what a platform team relies on, over both transports, TCP and Unix socket.

All tests of one way in share one Envoy and one Headgate; each has keys of its own.
Windows are a year long, so none ends during a test.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.envoy import Envoy, run_envoy
from tests.support.envoy_config import generic_limit, header_limit, http_config, route
from tests.support.headgate import Answer, Headgate, serve, write_rules
from tests.support.jwt import Issuer
from tests.support.waiting import wait_until

YEAR_S = 365 * 24 * 3600

RULES = """\
domain: edge
request_limits: allow
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 5}
- key: user
  value: watched
  shadow_mode: true
  rate_limit: {unit: year, requests_per_unit: 2}
- key: cost
  rate_limit: {unit: year, requests_per_unit: 10}
- key: tokens
  rate_limit: {unit: year, requests_per_unit: 10}
- key: tenant
  rate_limit: {unit: year, requests_per_unit: 3}
- key: path
  value: /nested/login
  descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
- key: path
  value: /wild/shared/*
  share_threshold: true
  rate_limit: {unit: year, requests_per_unit: 3}
- key: path
  value: /wild/single/*
  rate_limit: {unit: year, requests_per_unit: 2}
- key: path
  value: /fixed
  rate_limit: {unit: year, requests_per_unit: 2, algorithm: fixed_window, name: front-door}
- key: plan
  value: gold
  metadata: {tier: premium}
  rate_limit: {unit: year, requests_per_unit: 100}
- key: remote_address
  rate_limit: {unit: year, requests_per_unit: 2}
- key: subject
  rate_limit: {unit: year, requests_per_unit: 2}
"""
OTHER_RULES = """\
domain: other
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 1}
"""
DENIED_BODY = '{"error": "too many requests"}'

PATH_ENTRY = {"request_headers": {"header_name": ":path", "descriptor_key": "path"}}
USER_ENTRY = {"request_headers": {"header_name": "x-user", "descriptor_key": "user"}}
SUBJECT_KEY = {"key": "envoy.filters.http.jwt_authn", "path": [{"key": "claims"}, {"key": "sub"}]}
OVERRIDE = {"dynamic_metadata": {"metadata_key": {"key": "limits", "path": [{"key": "override"}]}}}
# Stands for whatever finds a caller's own limit: an authorization service, a token's claims.
FIND_OVERRIDE = {
    "name": "envoy.filters.http.set_metadata",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
        "metadata": [{"metadata_namespace": "limits", "value": {"override": {"requests_per_unit": 2, "unit": "DAY"}}}],
    },
}

ROUTES: list[dict[str, Any]] = [
    route("/user", limits=[header_limit("user")]),
    route("/cost-ignored", limits=[header_limit("cost", hits_addend={"number": 4})]),
    route("/cost", per_route={"rate_limits": [header_limit("cost", hits_addend={"format": "%REQ(x-amount)%"})]}),
    route(
        "/tokens",
        per_route={
            "rate_limits": [
                header_limit("tokens", hits_addend={"number": 0}),
                header_limit("tokens", hits_addend={"format": "%RESP(x-cost)%"}, apply_on_stream_done=True),
            ]
        },
    ),
    route("/several", limits=[header_limit("user"), header_limit("tenant")]),
    route("/nested", limits=[{"actions": [PATH_ENTRY, USER_ENTRY]}]),
    route("/wild", limits=[{"actions": [PATH_ENTRY]}]),
    route("/fixed", limits=[{"actions": [PATH_ENTRY]}]),
    route("/override", limits=[header_limit("user", limit=OVERRIDE)]),
    route("/plan", limits=[generic_limit("plan", "gold")]),
    route("/address", limits=[{"actions": [{"remote_address": {}}]}]),
    route("/jwt", limits=[{"actions": [{"metadata": {"descriptor_key": "subject", "metadata_key": SUBJECT_KEY}}]}]),
    route("/other", limits=[header_limit("user")], per_route={"domain": "other"}),
    route("/unknown", limits=[generic_limit("nobody", "knows")]),
]


@dataclass
class Stack:
    envoy: Envoy
    headgate: Headgate
    issuer: Issuer

    def get(self, path: str, **headers: object) -> Answer:
        return self.envoy.get(path, {f"x-{name.replace('_', '-')}": str(value) for name, value in headers.items()})

    def statuses(self, path: str, count: int, **headers: object) -> list[int]:
        return [self.get(path, **headers).status for _ in range(count)]


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(
    scope="module",
    params=[("native", "tcp"), ("native", "unix"), ("grpcio", "tcp"), ("grpcio", "unix")],
    ids="-".join,
)
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, short_dir: Path, issuer: Issuer
) -> Iterator[Stack]:
    transport, socket = request.param
    rules = write_rules(tmp_path_factory.mktemp("rules"), RULES)
    write_rules(rules, OTHER_RULES, "other.yaml")
    address = f"unix:{short_dir}/{transport}.sock" if socket == "unix" else "127.0.0.1:0"
    flags = ["--transport", transport, "--response-headers", "--dynamic-metadata", "--denied-body", DENIED_BODY]
    with serve(rules, *flags, grpc=address) as headgate:
        config = http_config(
            routes=ROUTES,
            headgate=[headgate.grpc],
            before=[FIND_OVERRIDE, issuer.filter("/jwt")],
            enable_x_ratelimit_headers="DRAFT_VERSION_03",
            # A call that fails must show: as a 503, never as an admitted request.
            failure_mode_deny=True,
            status_on_error={"code": 503},
            response_headers={"x-tier": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:tier)%"},
        )
        with run_envoy(config) as envoy:
            yield Stack(envoy, headgate, issuer)


def test_as_many_requests_as_the_limit_pass_and_not_one_more(stack: Stack) -> None:
    assert stack.statuses("/user", 8, user="exact") == [200] * 5 + [429] * 3
    assert stack.get("/user", user="somebody-else").status == 200


def test_draft_03_headers_come_with_every_answer(stack: Stack) -> None:
    answers = [stack.get("/user", user="headers") for _ in range(6)]
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["4", "3", "2", "1", "0", "0"]
    for answer in answers:
        assert answer.headers["x-ratelimit-limit"] == f"5, 5;w={YEAR_S}"
        assert 0 < int(answer.headers["x-ratelimit-reset"]) <= 2 * YEAR_S


def test_a_fixed_window_counts_the_same_and_its_name_is_in_the_header(stack: Stack) -> None:
    answers = [stack.get("/fixed") for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert answers[0].headers["x-ratelimit-limit"] == f'2, 2;w={YEAR_S};name="front-door"'


def test_a_denial_says_when_to_come_back(stack: Stack) -> None:
    denied = [stack.get("/user", user="denied") for _ in range(6)][-1]
    assert denied.status == 429
    assert denied.headers["x-envoy-ratelimited"] == "true"
    reset_s, retry_s = int(denied.headers["ratelimit-reset"]), int(denied.headers["retry-after"])
    assert 0 < reset_s <= retry_s <= reset_s * 1.2 + 1
    assert denied.body.decode() == DENIED_BODY


def test_headers_that_headgate_adds_arrive(stack: Stack) -> None:
    answer = stack.get("/user", user="ours")
    assert (answer.headers["ratelimit-limit"], answer.headers["ratelimit-remaining"]) == ("5", "4")
    assert int(answer.headers["ratelimit-reset"]) > 0
    assert "retry-after" not in answer.headers
    assert answer.body == b"hello\n"


def test_the_cost_comes_from_a_request_header(stack: Stack) -> None:
    costs = [3, 3, 5, 3, 1, 1]
    statuses = [stack.get("/cost", cost="header", amount=cost).status for cost in costs]
    # A denied request charges nothing: after 3 + 3 there is no room for 5, but for 3 and 1.
    assert statuses == [200, 200, 429, 200, 200, 429]


def test_envoy_leaves_out_a_cost_in_the_route_s_own_rate_limits(stack: Stack) -> None:
    """If this fails, Envoy has learnt it: docs/envoy.md says where hits_addend is honoured."""
    answers = [stack.get("/cost-ignored", cost="ignored") for _ in range(2)]
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["9", "8"]


def test_a_cost_that_is_known_after_the_response_is_charged_then(stack: Stack) -> None:
    assert stack.get("/tokens", tokens="llm", reply_cost=7).headers["x-ratelimit-remaining"] == "10"
    wait_until(lambda: _remaining_tokens(stack) == 3, "the first response's cost to be charged")
    assert stack.get("/tokens", tokens="llm", reply_cost=3).status == 200
    wait_until(lambda: _remaining_tokens(stack) == 0, "the second response's cost to be charged")


def _remaining_tokens(stack: Stack) -> int:
    """Asked for nothing, so that looking changes nothing."""
    return int(stack.get("/tokens", tokens="llm", reply_cost=0).headers["x-ratelimit-remaining"])


def test_several_descriptors_must_all_admit_and_a_denial_charges_none(stack: Stack) -> None:
    assert stack.statuses("/user", 4, user="several") == [200] * 4
    # The user has one request left, the tenant three.
    assert stack.statuses("/several", 3, user="several", tenant="t") == [200, 429, 429]
    # Had the two denied requests been charged to the tenant, nothing would be left for others.
    assert stack.statuses("/several", 3, user="colleague", tenant="t") == [200, 200, 429]


def test_headers_tell_of_the_descriptor_that_is_closest_to_its_limit(stack: Stack) -> None:
    answer = stack.get("/several", user="closest", tenant="closest")
    assert answer.headers["ratelimit-limit"] == "3"
    assert answer.headers["x-ratelimit-limit"] == f"3, 5;w={YEAR_S}, 3;w={YEAR_S}"


def test_nested_descriptors_count_their_combination(stack: Stack) -> None:
    assert stack.statuses("/nested/login", 3, user="ann") == [200, 200, 429]
    assert stack.statuses("/nested/login", 1, user="bob") == [200]
    assert stack.statuses("/nested/elsewhere", 3, user="ann") == [200, 200, 200]


def test_a_wildcard_counts_each_value_or_all_together(stack: Stack) -> None:
    shared = [stack.get(f"/wild/shared/{number}").status for number in range(5)]
    assert shared == [200, 200, 200, 429, 429]
    single = [stack.get(f"/wild/single/{number % 2}").status for number in range(6)]
    assert single == [200, 200, 200, 200, 429, 429]


def test_a_rule_in_shadow_mode_never_denies(stack: Stack) -> None:
    answers = [stack.get("/user", user="watched") for _ in range(6)]
    assert [answer.status for answer in answers] == [200] * 6
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["1", "0", "0", "0", "0", "0"]


def test_a_limit_in_the_request_takes_the_rule_s_place(stack: Stack) -> None:
    answers = [stack.get("/override", user="overridden") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit"] == "2, 2;w=86400"


def test_a_rule_s_metadata_becomes_dynamic_metadata(stack: Stack) -> None:
    assert stack.get("/plan").headers["x-tier"] == "premium"
    assert "x-tier" not in stack.get("/user", user="no-tier").headers


def test_callers_are_told_apart_by_their_address(stack: Stack) -> None:
    assert stack.statuses("/address", 3) == [200, 200, 429]


def test_callers_are_told_apart_by_a_claim_of_their_token(stack: Stack) -> None:
    def statuses(subject: str, count: int) -> list[int]:
        authorization = {"authorization": f"Bearer {stack.issuer.token(subject)}"}
        return stack.envoy.statuses("/jwt", authorization, count)

    assert statuses("alice", 3) == [200, 200, 429]
    assert statuses("bob", 1) == [200]
    assert stack.envoy.get("/jwt", {"authorization": "Bearer forged"}).status == 401


def test_a_route_may_ask_for_another_domain(stack: Stack) -> None:
    assert stack.statuses("/other", 2, user="domains") == [200, 429]
    assert stack.statuses("/user", 1, user="domains") == [200]


def test_what_no_rule_knows_is_not_limited(stack: Stack) -> None:
    answers = [stack.get("/unknown") for _ in range(10)]
    assert {answer.status for answer in answers} == {200}
    assert "x-ratelimit-limit" not in answers[0].headers


def test_the_transport_under_test_is_the_one_that_answers(stack: Stack, request: pytest.FixtureRequest) -> None:
    transport, socket = request.node.callspec.params["stack"]
    assert stack.headgate.get("/version").json()["transport"] == transport
    assert stack.headgate.grpc.startswith("unix:") == (socket == "unix")
    assert stack.envoy.rate_limit_errors() == 0
