"""Requests of callers that an operator has blocked: denied on every rule they meet, and nobody else is."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.wrappers_pb2 import UInt64Value
from headgate.handler import RateLimitHandler
from headgate.limiter.blocks import Block, BlockedEntry, Blocks
from headgate.limiter.engine import Engine
from headgate.plan import AnswerSettings
from headgate.rules.directory import load_directory
from headgate.rules.request_limits import RequestLimits
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.support.clock import ManualClock

OK, OVER = RateLimitResponse.OK, RateLimitResponse.OVER_LIMIT
RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 100, name: per_user}
- key: shadow
  shadow_mode: true
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: free
  rate_limit: {unlimited: true}
- key: tokens
  rate_limit: {unit: minute, requests_per_unit: 100, overdraft: true}
- key: bucket
  rate_limit: {unit: minute, requests_per_unit: 100, burst: 10, algorithm: gcra}
- key: back
  rate_limit: {unit: minute, requests_per_unit: 100, refund: true}
- key: path
  descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 100}
- key: plan
  rate_limit: {unit: minute, requests_per_unit: 100, replaces: [{name: per_user}]}
"""


class World:
    """A handler with some callers blocked."""

    def __init__(self, directory: Path) -> None:
        (directory / "rules.yaml").write_text(RULES)
        rules = load_directory(directory)
        self.blocks = Blocks()
        self.handler = RateLimitHandler(
            rules=lambda: rules,
            engine=Engine(ManualClock(1_800_000_000_000), max_cells=100),
            random=random.Random(4),
            settings=AnswerSettings(request_limits=RequestLimits.ALLOW),
            blocks=self.blocks,
        )

    def block(self, key: str, value: str = "eve", domain: str = "edge") -> None:
        self.blocks.change([Block(BlockedEntry(domain, key, value), 2_000_000_000_000, "alice", "abuse")])

    def ask(self, *descriptors: str, hits: int | None = None, limit: int = 0, back: bool = False) -> int:
        request = RateLimitRequest(domain="edge")
        for text in descriptors:
            pairs = [entry.split("=") for entry in text.split(",")]
            made = request.descriptors.add()
            made.entries.extend(RateLimitDescriptor.Entry(key=key, value=value) for key, value in pairs)
            if hits is not None:
                made.hits_addend.CopyFrom(UInt64Value(value=hits))
            if limit:
                made.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=limit, unit="HOUR"))
            made.is_negative_hits = back
        answer = self.handler.answer(request.SerializeToString())
        assert isinstance(answer, bytes), "a node on its own waits for nobody"
        return RateLimitResponse.FromString(answer).overall_code


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("key", ["user", "shadow", "free", "tokens", "bucket", "back"])
@pytest.mark.parametrize("hits", [None, 0, 1, 5])
def test_whatever_the_rule_says_a_blocked_caller_is_denied(world: World, key: str, hits: int | None) -> None:
    assert world.ask(f"{key}=eve", hits=hits) == OK
    world.block(key)
    assert world.ask(f"{key}=eve", hits=hits) == OVER
    assert world.ask(f"{key}=bob", hits=hits) == OK


ASKED: list[tuple[str, Callable[[World], int]]] = [
    ("below another entry", lambda world: world.ask("path=/a,user=eve")),
    ("beside others", lambda world: world.ask("tokens=t", "user=eve")),
    ("though another rule takes its place", lambda world: world.ask("user=eve", "plan=gold")),
    ("with a limit of its own", lambda world: world.ask("user=eve", limit=1_000)),
]


@pytest.mark.parametrize("ask", [ask for _, ask in ASKED], ids=[name for name, _ in ASKED])
def test_wherever_the_entry_stands(world: World, ask: Callable[[World], int]) -> None:
    assert ask(world) == OK
    world.block("user")
    assert ask(world) == OVER


def test_what_was_charged_may_still_be_given_back(world: World) -> None:
    world.block("back")
    assert world.ask("back=eve", hits=3, back=True) == OK


def test_the_rules_decide_again_when_a_block_is_gone(world: World) -> None:
    for _ in range(3):
        assert world.ask("user=eve") == OK
    world.block("user")
    assert [world.ask("user=eve") for _ in range(3)] == [OVER] * 3
    world.blocks.change([], [BlockedEntry("edge", "user", "eve")])
    assert [world.ask("user=eve") for _ in range(97)] == [OK] * 97
    assert world.ask("user=eve") == OVER, "what was counted before still counts, and nothing that was denied"


def test_no_rule_no_denial(world: World) -> None:
    world.block("unknown")
    world.block("user", domain="other")
    assert world.ask("unknown=eve") == OK
    assert world.ask("user=eve") == OK
