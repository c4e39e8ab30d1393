"""Limits in requests, over the wire, where a region counts: nobody gets more than the rule by making up units."""

from collections.abc import Iterator

import grpc
import pytest
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from headgate_client.wire.envoy.type.v3 import ratelimit_unit_pb2

from tests.support.headgate import Headgate, serve, write_rules
from tests.support.redis_servers import RedisServer

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RULE = 4
RULES = f"- {{key: user, rate_limit: {{unit: day, requests_per_unit: {RULE}, precision: 0}}}}\n"
DAY_S = 86_400
UNIT_S = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": DAY_S, "MONTH": 30 * DAY_S, "YEAR": 365 * DAY_S}
WINDOWS_KEPT, MARGIN_S = 3, 60
"""A counter matters in its own window and the next, and for as long as a node may be silent."""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def headgate(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headgate]:
    rules = tmp_path_factory.mktemp("rules")
    for domain, said in (("plain", ""), ("trusting", "request_limits: allow"), ("strict", "request_limits: refuse")):
        write_rules(rules, f"domain: {domain}\n{said}\ndescriptors:\n{RULES}", f"{domain}.yaml")
    flags = ("--origin", redis.url, "--origin-deadline-ms", "1000", "--request-limits", "lower")
    with serve(rules, *flags) as server:
        yield server


def ask(headgate: Headgate, domain: str, value: str, requests: int, unit: str) -> RateLimitResponse:
    request = RateLimitRequest(domain=domain)
    descriptor = request.descriptors.add()
    descriptor.entries.add(key="user", value=value)
    descriptor.limit.requests_per_unit = requests
    descriptor.limit.unit = getattr(ratelimit_unit_pb2, unit)
    with grpc.insecure_channel(headgate.grpc) as channel:
        call = channel.unary_unary(
            METHOD,
            request_serializer=RateLimitRequest.SerializeToString,
            response_deserializer=RateLimitResponse.FromString,
        )
        return call(request, timeout=20)


def is_ok(answer: RateLimitResponse) -> bool:
    return answer.overall_code == RateLimitResponse.OK


def test_changing_units_gives_no_fresh_count(headgate: Headgate) -> None:
    asked = [(requests, unit) for requests in (2, 3, 1000) for unit in UNIT_S]
    assert sum(is_ok(ask(headgate, "plain", "mallory", *each)) for each in asked) == RULE


def test_a_limit_in_a_request_lowers_the_rule(headgate: Headgate) -> None:
    answers = [ask(headgate, "plain", "alice", 1, "DAY") for _ in range(2)]
    assert [is_ok(answer) for answer in answers] == [True, False]
    assert answers[1].statuses[0].current_limit.requests_per_unit == 1


def test_a_domain_may_allow_or_refuse_them(headgate: Headgate) -> None:
    assert sum(is_ok(ask(headgate, "trusting", "alice", RULE + 2, "DAY")) for _ in range(RULE + 3)) == RULE + 2
    with pytest.raises(grpc.RpcError) as caught:
        ask(headgate, "strict", "alice", 1, "DAY")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "descriptors[0].limit" in str(caught.value.details())


@pytest.mark.parametrize("unit", UNIT_S)
def test_what_it_leaves_in_redis_goes_with_its_window(headgate: Headgate, redis: RedisServer, unit: str) -> None:
    ask(headgate, "trusting", f"in-{unit}", 5, unit)
    (key,) = redis.client.keys(f"*in-{unit}*")
    assert 0 <= redis.client.ttl(key) <= WINDOWS_KEPT * UNIT_S[unit] + MARGIN_S
