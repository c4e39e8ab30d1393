"""Requests under marks: decided by the rules of their side and counted for the rollout; not denied under a shadow."""

import random
from pathlib import Path

import pytest
from headgate.handler import RateLimitHandler
from headgate.limiter.blocks import Block, BlockedEntry, Blocks
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Limit, Unit
from headgate.limiter.rule_name import Steps
from headgate.limiter.shadows import Shadow, Shadows
from headgate.plan import AnswerSettings
from headgate.rules.changes import DomainMarks, changed
from headgate.rules.directory import load_directory
from headgate.rules.marks import NO_MARKS, Marks, Rollout
from headgate.rules.model import RuleContent
from headgate.rules.request_limits import RequestLimits
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.support.clock import ManualClock

NOW_MS = 1_800_000_000_000
RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 2}
- key: path
  rate_limit: {unit: minute, requests_per_unit: 1}
  descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1}
"""
USER: Steps = (("user", ""),)
LOWER = RuleContent(Limit(1, Unit.MINUTE))


class World:
    """A handler whose rules get marks."""

    def __init__(self, directory: Path) -> None:
        (directory / "rules.yaml").write_text(RULES)
        self.rules = self.base = load_directory(directory)
        self.clock = ManualClock(NOW_MS)
        self.blocks = Blocks()
        self.shadows = Shadows(self.clock.now_ms)
        self.handler = RateLimitHandler(
            rules=lambda: self.rules,
            engine=Engine(self.clock, max_cells=1_000),
            random=random.Random(4),
            settings=AnswerSettings(request_limits=RequestLimits.ALLOW),
            blocks=self.blocks,
            shadows=self.shadows,
        )

    def mark(self, marks: Marks) -> None:
        self.rules = changed(self.rules, [DomainMarks("edge", marks)])

    def roll_out(self, share: int, rule: RuleContent | None = LOWER, path: Steps = USER) -> None:
        self.mark(Marks(Rollout("r", share, ((path, rule),)), total=share + 1))

    def shadow(self, path: Steps, seconds: int = 60) -> None:
        self.mark(Marks(shadows=(Shadow(path, self.clock.now_ms() + 1_000 * seconds),), total=len(path) + 1))

    def admitted(self, text: str, times: int = 1, limit: int = 0) -> int:
        """How many of some requests pass."""
        request = RateLimitRequest(domain="edge")
        made = request.descriptors.add()
        pairs = [entry.split("=") for entry in text.split(",")]
        made.entries.extend(RateLimitDescriptor.Entry(key=key, value=value) for key, value in pairs)
        if limit:
            made.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=limit, unit="HOUR"))
        return sum(self._passes(request.SerializeToString()) for _ in range(times))

    def _passes(self, payload: bytes) -> bool:
        answer = self.handler.answer(payload)
        assert isinstance(answer, bytes), "a node on its own waits for nobody"
        return RateLimitResponse.FromString(answer).overall_code == RateLimitResponse.OK

    def decided(self, staged: bool) -> tuple[int, int]:
        return self.handler.tallies.decided("edge", "r", staged)

    def counted(self, rule: str) -> dict[str, int]:
        """All decisions on a rule, by result."""
        (tally,) = [tally for tally in self.handler.tallies.all() if tally.name.rule == rule]
        found: dict[str, int] = {}
        for result, _, count in tally.results():
            found[result] = found.get(result, 0) + count
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# Rollouts


def test_whoever_is_in_the_share_has_the_staged_limit_at_once(world: World) -> None:
    names = [str(number) for number in range(200)]
    for name in names:  # their plans are kept
        world.admitted(f"user={name}", 2)
    world.clock.advance(120_000)
    world.roll_out(500_000)
    passed = [world.admitted(f"user={name}", 3) for name in names]
    assert set(passed) == {1, 2}
    assert 70 < passed.count(1) < 130
    world.clock.advance(120_000)
    world.roll_out(1_000_000)
    assert [world.admitted(f"user={name}", 3) for name in names] == [1] * 200
    world.clock.advance(120_000)
    world.mark(NO_MARKS)
    assert [world.admitted(f"user={name}", 3) for name in names] == [2] * 200


def test_decisions_that_the_rollout_concerns_are_counted_by_side(world: World) -> None:
    assert world.admitted("user=ann", 2) == 2, "the second time its plan is kept"
    world.admitted("path=/a", 2)
    world.roll_out(0)
    assert world.admitted("user=ann", 3) == 0
    assert world.admitted("path=/a", 3) == 0, "a rule that stays is nothing of the rollout"
    assert (world.decided(staged=True), world.decided(staged=False)) == ((0, 0), (3, 3))
    world.roll_out(1_000_000)
    world.admitted("user=bob", 3)
    assert (world.decided(staged=True), world.decided(staged=False)) == ((3, 2), (3, 3))
    assert world.counted("user") == {"within_limit": 3, "over_limit": 5}, "and the rule has counted all of them"


def test_after_the_rollout_the_rule_has_all_counts_and_goes_on(world: World) -> None:
    world.roll_out(1_000_000)
    world.admitted("user=ann", 3)
    world.mark(NO_MARKS)
    world.admitted("user=bob", 3)
    assert world.decided(staged=True) == (0, 0)
    assert world.counted("user") == {"within_limit": 3, "over_limit": 3}
    world.roll_out(1_000_000)
    world.admitted("user=cid", 2)
    assert world.decided(staged=True) == (2, 1)
    assert world.counted("user") == {"within_limit": 4, "over_limit": 4}


def test_a_caller_beside_the_one_that_the_rollout_concerns_is_not_counted(world: World) -> None:
    """They meet the same rule, and only for one of them does the rollout bring another."""
    world.roll_out(0, path=(("user", "ann"),))
    world.admitted("user=bob", 2)
    world.admitted("user=ann", 2)
    assert world.decided(staged=False) == (2, 0)


# Shadows


@pytest.mark.parametrize("path", [(), (("path", ""),)], ids=["the domain", "a rule"])
def test_under_a_shadow_nobody_is_denied_until_it_ends(world: World, path: Steps) -> None:
    assert world.admitted("path=/a,user=ann", 3) == 1
    world.shadow(path)
    assert world.admitted("path=/a,user=ann", 3) == 3
    assert world.counted("path>user")["shadow_over_limit"] == 3, "and it is counted"
    world.clock.advance(59_000)
    world.shadows.expire()
    assert world.admitted("path=/a,user=ann", 3) == 3
    world.clock.advance(1_000)
    world.shadows.expire()
    world.admitted("path=/a,user=ann", 1)
    assert world.admitted("path=/a,user=ann", 3) == 0, "it ends by itself"


def test_other_rules_deny_on(world: World) -> None:
    world.shadow((("path", ""), ("user", "")))
    assert world.admitted("path=/a", 3) == 1, "a rule above it"
    assert world.admitted("user=ann", 3) == 2, "a rule beside it"
    assert world.admitted("user=ann", 3, limit=1) == 1, "a request's own limit"


def test_a_shadow_over_the_domain_covers_limits_of_requests(world: World) -> None:
    world.shadow(())
    assert world.admitted("other=x", 3, limit=1) == 3


def test_a_caller_that_was_shut_out_stays_so(world: World) -> None:
    world.blocks.change([Block(BlockedEntry("edge", "user", "eve"), NOW_MS * 2, "ann", "abuse")])
    world.shadow(())
    assert world.admitted("user=eve") == 0


def test_a_shadow_is_taken_away_with_its_mark(world: World) -> None:
    world.shadow(USER)
    assert world.admitted("user=ann", 4) == 4
    world.mark(NO_MARKS)
    assert world.admitted("user=ann", 4) == 0
