"""One request through rules, engine and wire: what a caller sees for it."""

import math
import random
import re
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import UInt64Value
from headgate.answer import STRETCH, told_ms
from headgate.errors import BadRequest
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.decision import Decision, DecisionPath, OnDecided
from headgate.limiter.engine import Engine
from headgate.limiter.overrides import Override, Overrides
from headgate.pending import PendingAnswer, answer_future
from headgate.plan_cache import MAX_CACHED_REQUEST_BYTES
from headgate.rules.directory import load_directory
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import RuleSet
from headgate.wire.ratelimit import MAX_RESETS
from headgate_client.unmet import Unmet
from headgate_client.values import decode_response
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.support.clock import ManualClock

NOW_MS = 1_700_000_040_000  # a minute's beginning
OK, OVER = RateLimitResponse.OK, RateLimitResponse.OVER_LIMIT

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
    metadata: {tier: free, who: user}
  - key: path
    rate_limit: {name: paths, unit: second, requests_per_unit: 2}
    metadata: {tier: path}
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 100, replaces: [{name: paths}]}
  - key: internal
    rate_limit: {unlimited: true}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: bare
"""


POLICIES = r"""
domain: edge
descriptors:
  - key: user
    rate_limit: {name: per user, unit: minute, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 2}
  - key: odd
    rate_limit: {name: 'a "b" \ é', unit: hour, requests_per_unit: 9}
  - key: tenant
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 2}
"""


class World:
    """A handler over rules that can be swapped, on a clock that can be moved; it tells exact times unless told."""

    def __init__(self, load: Callable[[str], RuleSet], *, exact_reset: bool = True, **settings: Any) -> None:
        self.load = load
        self.rules = load(RULES)
        self.clock = ManualClock(NOW_MS)
        self.engine = Engine(self.clock, max_cells=1000)
        self.overrides = Overrides()
        self.handler = RateLimitHandler(
            rules=lambda: self.rules,
            engine=self.engine,
            random=random.Random(4),
            settings=AnswerSettings(exact_reset=exact_reset, **settings),
            overrides=self.overrides,
        )

    def ask(self, *descriptors: RateLimitDescriptor, domain: str = "edge", hits: int = 0) -> RateLimitResponse:
        request = RateLimitRequest(domain=domain, descriptors=descriptors, hits_addend=hits)
        answer = self.handler.answer(request.SerializeToString())
        assert isinstance(answer, bytes), "a node on its own waits for nobody"
        return RateLimitResponse.FromString(answer)


@pytest.fixture
def load(tmp_path: FilePath) -> Callable[[str], RuleSet]:
    def load(text: str) -> RuleSet:
        (tmp_path / "rules.yaml").write_text(text, encoding="utf-8")
        return load_directory(tmp_path)

    return load


@pytest.fixture
def world(load: Callable[[str], RuleSet]) -> World:
    return World(load)


def d(*entries: str, hits: int | None = None) -> RateLimitDescriptor:
    pairs = [entry.split("=") for entry in entries]
    made = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value=value) for key, value in pairs])
    if hits is not None:
        made.hits_addend.CopyFrom(UInt64Value(value=hits))
    return made


def override(entry: str, requests: int, unit: str) -> RateLimitDescriptor:
    made = d(entry)
    made.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=requests, unit=unit))
    return made


def codes(answer: RateLimitResponse) -> tuple[int, list[int]]:
    return answer.overall_code, [status.code for status in answer.statuses]


def test_until_the_limit_and_over_it(world: World) -> None:
    answers = [world.ask(d("user=alice")) for _ in range(4)]
    assert [answer.overall_code for answer in answers] == [OK, OK, OK, OVER]
    assert [answer.statuses[0].limit_remaining for answer in answers] == [2, 1, 0, 0]
    assert MessageToDict(answers[0].statuses[0]) == {
        "code": "OK",
        "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE"},
        "limitRemaining": 2,
        "durationUntilReset": "60s",
    }
    # Full at the very beginning of a window: it must end, and then a third must decay.
    assert MessageToDict(answers[3].statuses[0])["durationUntilReset"] == "60.001s"
    assert world.ask(d("user=bob")).overall_code == OK


def test_every_descriptor_has_a_status_in_its_place(world: World) -> None:
    answer = world.ask(d("nobody=x"), d("user=alice"), d("internal=y"), d("bare=z"), d("path=/"))
    assert [MessageToDict(status) for status in answer.statuses] == [
        {"code": "OK"},
        {"code": "OK", "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE"}, "limitRemaining": 2,
         "durationUntilReset": "60s"},
        {"code": "OK", "limitRemaining": 4294967295},
        {"code": "OK"},
        {"code": "OK", "currentLimit": {"requestsPerUnit": 2, "unit": "SECOND", "name": "paths"},
         "limitRemaining": 1, "durationUntilReset": "1s"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("domain", "entry", "path"),
    [
        ("edge", "nobody=x", DecisionPath.NO_RULE),
        ("other", "user=alice", DecisionPath.NO_RULE),
        ("edge", "internal=x", DecisionPath.UNLIMITED),
    ],
)
def test_what_has_no_limit_passes_and_says_why(world: World, domain: str, entry: str, path: DecisionPath) -> None:
    for _ in range(5):
        assert world.ask(d(entry), domain=domain, hits=1000).overall_code == OK
    assert world.handler.stats.admitted[path] == 5


def test_a_status_without_a_limit_says_why(world: World) -> None:
    """Requests of the same limits that differ in it alone have answers of their own."""

    def reasons(*entries: str, domain: str = "edge") -> list[Unmet | None]:
        return [status.unmet for status in decode_response(world.ask(*map(d, entries), domain=domain)).statuses]

    for _ in range(3):  # planned, seen again, kept
        assert reasons("nobody=x", "user=alice") == [Unmet.NO_RULE, None]
        assert reasons("bare=x", "user=alice") == [Unmet.EXEMPT, None]
        assert reasons("path=/", "tenant=t") == [Unmet.REPLACED, None]
        assert reasons("nobody=x", "tenant=t") == [Unmet.NO_RULE, None]
        assert reasons("nobody=x", "bare=x") == [Unmet.NO_RULE, Unmet.EXEMPT]
        assert reasons("internal=x") == [None], "unlimited by a rule"
        assert reasons("user=x", "path=/", domain="edgee") == [Unmet.NO_DOMAIN, Unmet.NO_DOMAIN]


def test_a_replaced_rule_is_neither_enforced_nor_charged(world: World) -> None:
    for _ in range(5):
        answer = world.ask(d("path=/"), d("tenant=t"))
        assert codes(answer) == (OK, [OK, OK])
        assert not answer.statuses[0].HasField("current_limit")
    assert world.ask(d("path=/")).statuses[0].limit_remaining == 1, "not charged before"


def test_a_shadow_rule_answers_ok_and_is_counted(world: World) -> None:
    for _ in range(3):
        assert codes(world.ask(d("watched=w"))) == (OK, [OK])
    stats = world.handler.stats
    assert (stats.admitted[DecisionPath.LOCAL], stats.admitted[DecisionPath.SHADOW]) == (1, 2)


def test_global_shadow_mode_denies_nothing(load: Callable[[str], RuleSet]) -> None:
    world = World(load, shadow_mode=True)
    assert [world.ask(d("user=alice")).overall_code for _ in range(6)] == [OK] * 6
    assert world.handler.stats.admitted[DecisionPath.SHADOW] == 3


def test_an_override_has_its_own_limit_and_counter(load: Callable[[str], RuleSet]) -> None:
    world = World(load, request_limits=RequestLimits.ALLOW)
    limited = override("user=alice", 1, "HOUR")
    first, second = world.ask(limited), world.ask(limited)
    assert (first.overall_code, second.overall_code) == (OK, OVER)
    assert MessageToDict(first.statuses[0].current_limit) == {"requestsPerUnit": 1, "unit": "HOUR"}
    assert world.ask(d("user=alice")).statuses[0].limit_remaining == 2, "the rule's own counter is untouched"
    assert world.ask(override("nobody=x", 1, "HOUR")).statuses[0].HasField("current_limit"), "no rule is needed"
    assert not world.ask(override("user=alice", 1, "HOUR"), domain="other").statuses[0].HasField("current_limit")


def test_costs_come_from_the_descriptor_else_the_request(world: World) -> None:
    assert world.ask(d("user=alice"), d("path=/", hits=1), hits=2).statuses[0].limit_remaining == 1
    assert world.ask(d("user=alice", hits=0)).statuses[0].limit_remaining == 1
    assert world.ask(d("user=alice"), hits=2).overall_code == OVER
    assert world.ask(d("user=alice"), hits=1).statuses[0].limit_remaining == 0


def test_a_request_is_planned_once_under_one_rule_set(world: World) -> None:
    for _ in range(10):
        world.ask(d("user=alice"))
    assert world.handler.stats.planned == 2, "kept on second sight"
    world.rules = world.load(RULES.replace("requests_per_unit: 3", "requests_per_unit: 30"))
    assert world.ask(d("user=alice")).statuses[0].limit_remaining == 26, "counted on, under the new limit, at once"
    assert world.handler.stats.planned == 3


def test_the_plan_cache_is_bounded(load: Callable[[str], RuleSet]) -> None:
    world = World(load, match_cache_entries=3)
    for name in "aabbccdd":
        world.ask(d(f"user={name}"))
    assert (world.handler.stats.planned, world.handler.stats.plans_evicted) == (8, 1)
    world.ask(d("user=d"))
    assert world.handler.stats.planned == 8
    world.ask(d("user=a"))
    assert world.handler.stats.planned == 9
    for _ in range(3):
        world.ask(d("user=" + "x" * MAX_CACHED_REQUEST_BYTES))
    assert world.handler.stats.planned == 12, "large requests are not kept"


def test_the_plan_cache_is_bounded_in_bytes_too(load: Callable[[str], RuleSet]) -> None:
    world = World(load, match_cache_bytes=10_000)
    for number in range(200):
        for _ in range(2):
            world.ask(d(f"user={number}" + "x" * 500))
    stats = world.handler.stats
    assert 5_000 < stats.plan_bytes <= 10_000
    assert stats.plans_evicted > 150


def test_what_comes_once_is_not_kept(load: Callable[[str], RuleSet]) -> None:
    world = World(load)
    for number in range(1_000):
        world.ask(d(f"user=new{number}"))
    assert world.handler.stats.plan_bytes == 0


@pytest.mark.parametrize(
    ("descriptors", "said"),
    [
        ([d("user=a")] * 33, "33 descriptors: accepted are 1 to 32"),
        ([d("user=a", *["user=a"] * 32)], "descriptors[0] has 33 entries: accepted are 1 to 32"),
    ],
    ids=["descriptors", "entries"],
)
def test_one_request_asks_for_so_much_and_no_more(world: World, descriptors: list[Any], said: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(said)):
        world.ask(*descriptors)


def test_long_values_have_short_keys_and_counters_of_their_own(world: World) -> None:
    long = "x" * 50_000
    for value in (long + "a", long + "b"):
        for _ in range(3):
            assert world.ask(d(f"user={value}")).overall_code == RateLimitResponse.OK
        assert world.ask(d(f"user={value}")).overall_code == RateLimitResponse.OVER_LIMIT
    assert max(len(counter.key) for counter in world.engine.counters) < 200


def headers(answer: RateLimitResponse) -> dict[str, str]:
    return {header.key: header.value for header in answer.response_headers_to_add}


def test_headers_speak_for_the_tightest_descriptor(load: Callable[[str], RuleSet]) -> None:
    world = World(load, response_headers=True)
    world.clock.advance(500)
    assert headers(world.ask(d("tenant=t"), d("user=alice"), d("nobody=x"))) == {
        "RateLimit-Limit": "3",
        "RateLimit-Remaining": "2",
        "RateLimit-Reset": "60",
        "RateLimit-Policy": '"100 per 3600 s";q=100;w=3600, "3 per 60 s";q=3;w=60',
        "RateLimit": '"3 per 60 s";r=2;t=60',
    }
    assert headers(world.ask(d("nobody=x"))) == {}


def test_denials_of_one_moment_are_told_times_apart_and_never_too_early(load: Callable[[str], RuleSet]) -> None:
    """60.001 s are left: each answer says between that and a fifth more, the same in its status and its headers."""
    world = World(load, exact_reset=False, response_headers=True)
    world.ask(d("user=alice"), hits=3)
    seen = set()
    for _ in range(55):
        response = world.ask(d("user=alice"))
        told_ms, answer = response.statuses[0].duration_until_reset.ToMilliseconds(), headers(response)
        seen.add(told_ms)
        told_s = str(math.ceil(told_ms / 1000))
        assert (answer["RateLimit-Reset"], answer["Retry-After"]) == (told_s, told_s)
        assert answer["RateLimit"].endswith(f";t={told_s}")
    assert 60_001 <= min(seen) < max(seen) <= 60_001 * 1.2
    assert len(seen) > 20, "clients come back at many instants"


def test_admissions_are_told_times_apart_too_and_all_statuses_of_one_answer_alike(
    load: Callable[[str], RuleSet],
) -> None:
    """Who has used up a limit waits for its reset as who was denied does."""
    world = World(load, exact_reset=False)
    seen = set()
    for _ in range(20):
        first, second = [
            status.duration_until_reset.ToMilliseconds()
            for status in world.ask(d("tenant=t"), d("tenant=u"), hits=0).statuses
        ]
        assert first == second
        seen.add(first)
    assert len(seen) > 10


def test_exact_times_are_told_to_whoever_asks_for_them(load: Callable[[str], RuleSet]) -> None:
    world = World(load, exact_reset=True, response_headers=True)
    world.ask(d("user=alice"), hits=3)
    denials = [world.ask(d("user=alice")) for _ in range(20)]
    assert {denial.statuses[0].duration_until_reset.ToMilliseconds() for denial in denials} == {60_001}
    assert {headers(denial)["Retry-After"] for denial in denials} == {"61"}


@pytest.mark.parametrize("exact_ms", [0, 1, 9, 999, 60_001, 3_600_000, 365 * 86_400_000])
def test_a_told_time_is_between_the_exact_one_and_a_fifth_more(exact_ms: int) -> None:
    told = {told_ms(exact_ms, stretch) for stretch in range(1, STRETCH + 1)}
    assert exact_ms <= min(told) <= max(told) <= exact_ms * 1.2
    assert told_ms(exact_ms, 0) == exact_ms


def test_few_different_times_are_told() -> None:
    """All that are ever told of windows up to a month fit the table of those that are kept as they were written."""
    chance = random.Random(6)
    month_ms = 30 * 86_400_000
    told = {told_ms(int(month_ms ** chance.random()), chance.randint(1, STRETCH)) for _ in range(200_000)}
    assert len(told) < MAX_RESETS


def test_the_ietf_s_fields_name_all_policies_and_the_state_of_the_one_that_matters(
    load: Callable[[str], RuleSet],
) -> None:
    world = World(load, response_headers=True)
    world.rules = load(POLICIES)
    answer = headers(world.ask(d("user=alice"), d("path=/"), d("odd=x"), d("tenant=t")))
    assert answer["RateLimit-Policy"] == (
        '"per user";q=3;w=60, "2 per 300 s";q=2;w=300, "a \\"b\\" \\\\ ?";q=9;w=3600'
    ), "the policy of `tenant` is that of `path`"
    assert re.fullmatch(r'"2 per 300 s";r=1;t=\d+', answer["RateLimit"])
    assert answer["RateLimit-Limit"] == "2"


def test_retry_after_is_at_least_a_second(load: Callable[[str], RuleSet]) -> None:
    world = World(load, response_headers=True)
    world.ask(d("path=/"), hits=2)
    world.clock.advance(999)
    assert headers(world.ask(d("path=/")))["Retry-After"] == "1"


def test_header_names_and_the_denied_body_are_settings(load: Callable[[str], RuleSet]) -> None:
    world = World(
        load,
        response_headers=True,
        header_limit="X-Limit",
        header_remaining="X-Left",
        header_reset="X-Reset",
        header_retry_after="X-Retry",
        denied_body="slow down",
    )
    allowed, denied = world.ask(d("user=alice"), hits=3), world.ask(d("user=alice"))
    assert list(headers(allowed)) == ["X-Limit", "X-Left", "X-Reset", "RateLimit-Policy", "RateLimit"]
    assert list(headers(denied)) == [*headers(allowed), "X-Retry"]
    assert (allowed.raw_body, denied.raw_body) == (b"", b"slow down")


def test_metadata_of_the_rules_in_force_is_returned_when_asked_for(load: Callable[[str], RuleSet]) -> None:
    world = World(load, dynamic_metadata=True)
    answer = world.ask(d("path=/"), d("user=alice"))
    assert MessageToDict(answer.dynamic_metadata) == {"tier": "path", "who": "user"}
    assert MessageToDict(world.ask(d("path=/"), d("tenant=t")).dynamic_metadata) == {}, "path is replaced"
    silent = World(load).ask(d("user=alice"))
    assert not silent.HasField("dynamic_metadata")


def test_a_bad_request_is_refused_and_not_counted_as_a_decision(world: World) -> None:
    with pytest.raises(BadRequest):
        world.handler.answer(b"\xff\xff")
    assert sum(world.handler.stats.admitted.values()) == 0
    assert world.handler.stats.refused == 1


def test_counters_of_one_shard_by_value_go_to_one_shard(load: Callable[[str], RuleSet]) -> None:
    rules = load("shard_by: tenant\n" + RULES)
    first, second = (("tenant", "t"), ("user", "a")), (("path", "/"), ("tenant", "t"))
    edge = rules.domains["edge"]
    assert edge.shard_key(first) == edge.shard_key(second) is not None
    assert edge.shard_key((("tenant", "other"),)) != edge.shard_key(first)
    assert edge.shard_key((("user", "a"),)) is None
    assert load(RULES).domains["edge"].shard_key(first) is None


class Pending:
    """A request whose decision the test brings."""

    on_decided: OnDecided


class LaterEngine:
    """An engine that has to ask somebody: the test says what comes of it."""

    def __init__(self) -> None:
        self.asked: list[Pending] = []

    def decide(self, _charges: Any, _caller: str = "") -> Pending:
        self.asked.append(Pending())
        return self.asked[-1]

    def uncharge(self, _charges: Any) -> None: ...


def waiting_handler(load: Callable[[str], RuleSet]) -> tuple[RateLimitHandler, LaterEngine, bytes]:
    rules, engine = load(RULES), LaterEngine()
    handler = RateLimitHandler(
        rules=lambda: rules, engine=engine, random=random.Random(4), settings=AnswerSettings(exact_reset=True)
    )
    request = RateLimitRequest(domain="edge", descriptors=[d("user=alice")])
    return handler, engine, request.SerializeToString()


async def test_a_decision_that_comes_later_is_answered_then(load: Callable[[str], RuleSet]) -> None:
    handler, engine, request = waiting_handler(load)
    answer = handler.answer(request)
    assert isinstance(answer, PendingAnswer)
    later = answer_future(answer)
    engine.asked[0].on_decided(Decision(False, DecisionPath.EXACT, [(True, 0, 7_000)]))
    response = RateLimitResponse.FromString(await later)
    assert response.overall_code == OVER
    assert response.statuses[0].duration_until_reset.seconds == 7
    assert handler.stats.denied[DecisionPath.EXACT] == 1


async def test_a_fault_in_answering_later_fails_the_answer(load: Callable[[str], RuleSet]) -> None:
    handler, engine, request = waiting_handler(load)
    later = answer_future(handler.answer(request))
    engine.asked[0].on_decided(Decision(True, DecisionPath.EXACT, []))
    with pytest.raises(IndexError):
        await later


async def test_a_caller_that_went_away_costs_the_decision_nothing(load: Callable[[str], RuleSet]) -> None:
    handler, engine, request = waiting_handler(load)
    later = answer_future(handler.answer(request))
    later.cancel()
    engine.asked[0].on_decided(Decision(True, DecisionPath.EXACT, [(False, 2, 0)]))
    assert later.cancelled()
    assert handler.stats.admitted[DecisionPath.EXACT] == 1


def overriding(world: World, entry: str, limit: int) -> bytes:
    """An operator's override of the limit that this descriptor meets."""
    key, _, value = entry.partition("=")
    match = world.rules.match("edge", [(key, value)])
    assert match is not None
    world.overrides.change([Override(match.key, "edge", ((key, value),), NOW_MS + 1, limit)])
    return match.key


def test_an_operators_override_acts_on_one_key_at_once_also_where_a_plan_is_kept(world: World) -> None:
    for _ in range(3):
        assert world.ask(d("user=a")).overall_code == OK
        world.ask(d("user=b"))
    assert world.ask(d("user=a")).overall_code == OVER
    planned = world.handler.stats.planned
    key = overriding(world, "user=a", 5)
    answer = world.ask(d("user=a"))
    assert (answer.overall_code, answer.statuses[0].current_limit.requests_per_unit) == (OK, 5)
    assert world.ask(d("user=b")).overall_code == OVER
    assert world.handler.stats.planned == planned + 1, "the plans of other keys stay"
    assert [world.ask(d("user=a")).overall_code for _ in range(2)] == [OK, OVER]
    world.overrides.change([], [key])
    assert world.ask(d("user=a")).overall_code == OVER
    world.overrides.change([], [key])
    assert world.handler.stats.plan_bytes > 0


def test_an_override_of_0_denies_and_its_end_admits_again(world: World) -> None:
    key = overriding(world, "user=a", 0)
    assert world.ask(d("user=a")).overall_code == OVER
    world.overrides.change([], [key])
    assert world.ask(d("user=a")).overall_code == OK


def test_a_limit_in_the_request_goes_before_an_operators_override(load: Callable[[str], RuleSet]) -> None:
    world = World(load, request_limits=RequestLimits.ALLOW)
    overriding(world, "user=a", 1)
    answers = [world.ask(override("user=a", 2, "MINUTE")) for _ in range(3)]
    assert [answer.overall_code for answer in answers] == [OK, OK, OVER]


def test_where_requests_may_only_lower_they_lower_the_overridden_limit(load: Callable[[str], RuleSet]) -> None:
    world = World(load, request_limits=RequestLimits.LOWER)
    overriding(world, "user=a", 6)
    codes = [world.ask(override("user=a", 5, "MINUTE")).overall_code for _ in range(6)]
    assert codes == [OK] * 5 + [OVER], "5 is more than the rule's 3, and less than what is in force"


def test_under_overdraft_a_cost_is_charged_in_any_case_and_none_is_a_look(load: Callable[[str], RuleSet]) -> None:
    """What Envoy sends for tokens: 0 of one descriptor at the start, the cost of it at the end."""
    world = World(load)
    limit = "{unit: minute, requests_per_unit: 10, overdraft: true}"
    world.rules = load(f"domain: edge\ndescriptors:\n- key: tokens\n  rate_limit: {limit}\n")
    look, late = d("tokens=a", hits=0), d("tokens=a", hits=12)
    assert world.ask(look).overall_code == OK
    assert world.ask(look).statuses[0].limit_remaining == 10
    over = world.ask(late)
    assert (over.overall_code, over.statuses[0].limit_remaining) == (OVER, 0)
    assert (over.quota.requests, over.quota.valid_until.seconds) == (1, 0), "not to be remembered: each is charged"
    denied = world.ask(look)
    assert (denied.overall_code, denied.HasField("quota")) == (OVER, False)
    world.clock.advance(2 * 60_000)
    assert world.ask(look).overall_code == OK
    # Of the whole request, 0 is 1, as ever.
    assert world.ask(d("tokens=a")).statuses[0].limit_remaining == 9


REFUNDABLE = """
domain: edge
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 10, refund: true}
- key: plain
  rate_limit: {unit: minute, requests_per_unit: 10}
- key: free
  rate_limit: {unlimited: true}
"""


def back(text: str, hits: int) -> RateLimitDescriptor:
    descriptor = d(text, hits=hits)
    descriptor.is_negative_hits = True
    return descriptor


def test_negative_hits_are_given_back_on_rules_that_say_so(load: Callable[[str], RuleSet]) -> None:
    world = World(load)
    world.rules = load(REFUNDABLE)
    assert world.ask(d("user=a", hits=10)).overall_code == OK
    denied = [world.ask(d(f"{key}=a", hits=11)) for key in ("user", "plain")]
    assert [(one.overall_code, one.HasField("quota")) for one in denied] == [(OVER, True), (OVER, False)]
    assert world.ask(d("user=a")).overall_code == OVER
    given = world.ask(back("user=a", 4))
    assert (given.overall_code, given.statuses[0].limit_remaining) == (OK, 4)
    assert world.ask(d("user=a", hits=5)).overall_code == OVER
    assert world.ask(d("user=a", hits=4)).overall_code == OK
    assert world.ask(back("user=a", 99)).statuses[0].limit_remaining == 10, "no more than was charged"
    assert world.ask(back("user=b", 7)).statuses[0].limit_remaining == 10
    assert world.ask(d("user=b", hits=11)).overall_code == OVER


def test_it_is_given_back_whatever_else_the_request_comes_to(load: Callable[[str], RuleSet]) -> None:
    world = World(load)
    world.rules = load(REFUNDABLE)
    world.ask(d("user=a", hits=10))
    answer = world.ask(back("user=a", 3), d("plain=a", hits=11))
    assert [status.code for status in answer.statuses] == [OK, OVER]
    assert world.ask(d("user=a", hits=3)).overall_code == OK
    assert world.ask(d("plain=a", hits=10)).overall_code == OK, "nothing of the denied request was charged"


@pytest.mark.parametrize(
    ("descriptor", "reason"),
    [
        (back("plain=a", 1), "descriptors[0].is_negative_hits: hits are given back on rules with `refund: true`"),
        (back("free=a", 1), None),
        (back("unknown=a", 1), None),
    ],
    ids=["a rule without refunds", "an unlimited rule", "no rule"],
)
def test_elsewhere_negative_hits_are_a_mistake_or_mean_nothing(
    load: Callable[[str], RuleSet], descriptor: RateLimitDescriptor, reason: str | None
) -> None:
    world = World(load)
    world.rules = load(REFUNDABLE)
    if reason is None:
        assert world.ask(descriptor).overall_code == OK
        return
    with pytest.raises(BadRequest, match=re.escape(reason)):
        world.ask(descriptor)
    assert world.handler.stats.refused == 1


def test_what_is_given_back_is_counted_apart_from_what_requests_cost(load: Callable[[str], RuleSet]) -> None:
    world = World(load)
    world.rules = load(REFUNDABLE)
    world.ask(d("user=a", hits=6))
    world.ask(back("user=a", 4))
    (tally,) = world.handler.tallies.all()
    assert (dict(tally.costs())["within_limit"], tally.refunded) == (6, 4)


class Numbered:
    def __call__(self, plan: Any, decision: Decision) -> int:
        return 0xABC


@pytest.mark.parametrize(
    ("settings", "where"), [({"reason_metadata": True}, "metadata"), ({"reason_header": "x-headgate"}, "header")]
)
def test_an_answer_says_why_where_that_is_wanted(
    load: Callable[[str], RuleSet], settings: dict[str, Any], where: str
) -> None:
    rules, clock = load(RULES), ManualClock(NOW_MS)
    handler = RateLimitHandler(
        rules=lambda: rules,
        engine=Engine(clock, max_cells=1000),
        random=random.Random(4),
        settings=AnswerSettings(**settings, dynamic_metadata=True),
        record=Numbered(),
    )
    request = RateLimitRequest(domain="edge", descriptors=[d("user=alice"), d("path=/")]).SerializeToString()
    for _ in range(3):
        answer = handler.answer(request)
    assert isinstance(answer, bytes)
    response = RateLimitResponse.FromString(answer)
    decision = decode_response(response)
    assert (decision.rule, decision.path, decision.id) == ("paths", "local", "0000000000000abc")
    said = {"domain": "edge", "rule": "paths", "version": str(rules.version), "path": "local", "id": decision.id}
    if where == "metadata":
        # Beside the rules' own metadata, not in its place.
        metadata = MessageToDict(response.dynamic_metadata)
        assert metadata == {"tier": "free", "who": "user", "headgate": said}
    else:
        told = " ".join(f"{name}={value}" for name, value in said.items())
        assert [(h.key, h.value) for h in response.response_headers_to_add] == [("x-headgate", told)]


def test_without_a_log_a_reason_has_no_id(load: Callable[[str], RuleSet]) -> None:
    world = World(load, reason_metadata=True)
    decision = decode_response(world.ask(d("user=alice")))
    assert (decision.rule, decision.path, decision.id) == ("user", "local", "")
