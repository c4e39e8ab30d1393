"""Limits that come with a request: taken, taken as a lower bound, or refused."""

import random
from pathlib import Path

import pytest
from headgate.errors import BadRequest
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Limit, OnError, Unit
from headgate.rules.directory import load_directory
from headgate.rules.request_limits import RequestLimits, is_smaller, lowered
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.support.clock import ManualClock

OK, OVER = RateLimitResponse.OK, RateLimitResponse.OVER_LIMIT
UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")
NOW_MS = 1_700_000_000_000
RULE = 5

RULES = f"""
descriptors:
  - key: user
    rate_limit: {{name: users, unit: hour, requests_per_unit: {RULE}, algorithm: fixed_window}}
  - key: free
    rate_limit: {{unlimited: true}}
  - key: watched
    shadow_mode: true
    rate_limit: {{unit: hour, requests_per_unit: {RULE}}}
  - key: tenant
    rate_limit: {{unit: hour, requests_per_unit: 100, replaces: [{{name: users}}]}}
"""


class World:
    def __init__(self, directory: Path, server: RequestLimits, **files: str) -> None:
        for domain, said in (files or {"edge": ""}).items():
            (directory / f"{domain}.yaml").write_text(f"domain: {domain}\n{said}\n{RULES}")
        rules = load_directory(directory)
        self.handler = RateLimitHandler(
            rules=lambda: rules,
            engine=Engine(ManualClock(NOW_MS), max_cells=10_000),
            random=random.Random(4),
            settings=AnswerSettings(request_limits=server),
        )

    def ask(self, *descriptors: RateLimitDescriptor, domain: str = "edge") -> RateLimitResponse:
        answer = self.handler.answer(RateLimitRequest(domain=domain, descriptors=descriptors).SerializeToString())
        assert isinstance(answer, bytes)
        return RateLimitResponse.FromString(answer)

    def admitted(self, count: int, *descriptors: RateLimitDescriptor) -> int:
        return sum(self.ask(*descriptors).overall_code == OK for _ in range(count))


def d(entry: str, requests: int | None = None, unit: str = "HOUR", hits: int | None = None) -> RateLimitDescriptor:
    key, _, value = entry.partition("=")
    made = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value=value)])
    if requests is not None:
        made.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=requests, unit=unit))
    if hits is not None:
        made.hits_addend.value = hits
    return made


def left(world: World, entry: str) -> int:
    return world.ask(d(entry, hits=0)).statuses[0].limit_remaining


@pytest.fixture
def lower(tmp_path: Path) -> World:
    return World(tmp_path, RequestLimits.LOWER)


@pytest.mark.parametrize(
    ("asked", "rule", "smaller"),
    [
        (Limit(4, Unit.HOUR), Limit(5, Unit.HOUR), True),
        (Limit(5, Unit.HOUR), Limit(5, Unit.HOUR), False),
        (Limit(6, Unit.HOUR), Limit(5, Unit.HOUR), False),
        # By rate, whatever the units: 1 a second is 3,600 an hour.
        (Limit(1, Unit.SECOND), Limit(3599, Unit.HOUR), False),
        (Limit(1, Unit.SECOND), Limit(3601, Unit.HOUR), True),
        (Limit(100, Unit.DAY), Limit(5, Unit.HOUR), True),
        (Limit(121, Unit.DAY), Limit(5, Unit.HOUR), False),
        # Of equal rates, the smaller count.
        (Limit(1, Unit.SECOND), Limit(3600, Unit.HOUR), True),
        (Limit(3600, Unit.HOUR), Limit(1, Unit.SECOND), False),
        (Limit(60, Unit.HOUR), Limit(5, Unit.MINUTE, unit_multiplier=5), False),
        (Limit(0, Unit.YEAR), Limit(0, Unit.SECOND), False),
        (Limit(0, Unit.YEAR), Limit(1, Unit.YEAR), True),
        (Limit(2**32 - 1, Unit.SECOND), Limit(5, Unit.UNKNOWN, unlimited=True), True),
    ],
)
def test_which_is_smaller(asked: Limit, rule: Limit, smaller: bool) -> None:
    assert is_smaller(asked, rule) is smaller


def test_a_lowered_limit_is_treated_as_its_rule() -> None:
    rule = Limit(9, Unit.HOUR, name="n", precision_millionths=0, on_error=OnError.CLOSED, shadow=True, replaces=("x",))
    made = lowered(Limit(3, Unit.DAY), rule)
    assert made == Limit(3, Unit.DAY, name="n", precision_millionths=0, on_error=OnError.CLOSED, shadow=True)


def test_less_than_the_rule_holds_and_so_does_the_rule(lower: World) -> None:
    first = lower.ask(d("user=a", 2))
    assert (first.statuses[0].current_limit.requests_per_unit, first.statuses[0].limit_remaining) == (2, 1)
    assert first.statuses[0].current_limit.name == "users"
    assert lower.admitted(5, d("user=a", 2)) == 1
    denied = lower.ask(d("user=a", 2))
    assert (denied.statuses[0].code, denied.statuses[0].current_limit.requests_per_unit) == (OVER, 2)
    assert len(denied.statuses) == 1
    assert left(lower, "user=a") == RULE - 2, "what was admitted counts against the rule, what was denied does not"


def test_more_than_the_rule_is_the_rule(lower: World) -> None:
    assert lower.ask(d("user=a", 1000)).statuses[0].current_limit.requests_per_unit == RULE
    assert lower.admitted(20, d("user=a", 1000), d("user=b", 2**32 - 1, "SECOND")) == RULE - 1


def test_no_choice_of_limits_and_units_gets_more_than_the_rule(lower: World) -> None:
    chooser = random.Random(8)
    admitted = sum(
        lower.admitted(1, d("user=a", chooser.choice((1, 2, 3, 4, 5, 7, 10**9)), chooser.choice(UNITS)))
        for _ in range(500)
    )
    assert admitted == RULE


def test_where_no_rule_limits_the_request_may_limit_itself(lower: World) -> None:
    for entry in ("nobody=x", "free=x"):
        assert lower.admitted(5, d(entry, 2)) == 2
        assert lower.admitted(5, d(entry)) == 5
    assert not lower.ask(d("user=a", 1), domain="other").statuses[0].HasField("current_limit")


def test_a_rule_in_shadow_mode_stays_there(lower: World) -> None:
    answers = [lower.ask(d("watched=x", 1)) for _ in range(3)]
    assert {answer.overall_code for answer in answers} == {OK}
    assert answers[-1].statuses[0].code == OK


def test_a_replaced_rule_takes_the_limit_under_it_along(lower: World) -> None:
    assert lower.admitted(10, d("tenant=t"), d("user=a", 1)) == 10
    assert lower.ask(d("tenant=t"), d("user=a", 1)).statuses[1].HasField("current_limit") is False


def test_statuses_stay_in_their_places(lower: World) -> None:
    answer = lower.ask(d("user=a", 2), d("nobody=x"), d("user=b", 3), d("user=c"), d("free=x"))
    assert [status.current_limit.requests_per_unit for status in answer.statuses] == [2, 0, 3, RULE, 0]
    assert [status.limit_remaining for status in answer.statuses] == [1, 0, 2, RULE - 1, 2**32 - 1]


def test_the_tighter_of_the_two_is_shown(lower: World) -> None:
    assert lower.admitted(4, d("user=a")) == 4
    answer = lower.ask(d("user=a", 3))
    assert (answer.statuses[0].current_limit.requests_per_unit, answer.statuses[0].limit_remaining) == (RULE, 0)
    denied = lower.ask(d("user=a", 3))
    assert (denied.statuses[0].code, denied.statuses[0].current_limit.requests_per_unit) == (OVER, RULE)


def test_refused_by_name(tmp_path: Path) -> None:
    world = World(tmp_path, RequestLimits.REFUSE)
    with pytest.raises(BadRequest, match=r"descriptors\[1\]\.limit: .*request_limits: refuse"):
        world.ask(d("user=a"), d("user=a", 1))
    with pytest.raises(BadRequest):
        world.ask(d("user=a", 1), domain="unknown")
    assert world.handler.stats.refused == 2
    assert left(world, "user=a") == RULE
    assert world.ask(d("user=a")).overall_code == OK


def test_allowed_means_instead_of_the_rule(tmp_path: Path) -> None:
    world = World(tmp_path, RequestLimits.ALLOW)
    assert world.admitted(20, d("user=a", 12)) == 12
    assert left(world, "user=a") == RULE


def test_a_domain_decides_for_itself(tmp_path: Path) -> None:
    says = {"a": "request_limits: allow", "b": "request_limits: lower", "c": "request_limits: refuse", "d": ""}
    world = World(tmp_path, RequestLimits.REFUSE, **says)
    asked = d("user=a", 1000)
    assert world.ask(asked, domain="a").statuses[0].current_limit.requests_per_unit == 1000
    assert world.ask(asked, domain="b").statuses[0].current_limit.requests_per_unit == RULE
    for domain in ("c", "d"):
        with pytest.raises(BadRequest):
            world.ask(asked, domain=domain)
