"""`GET /trend`: what was decided over time, in steps that grow with age, bounded however long it runs."""

from collections import Counter
from typing import Any

import pytest
from headgate.errors import BadRequest
from headgate.limiter.decision import DecisionPath
from headgate.plan import HandlerStats
from headgate.runtime.trend import GRAINS, MOST_RULES, OTHERS, Trend, merge_trends
from headgate.telemetry.tallies import Tallies

from tests.support.clock import ManualClock

BEGIN_S = 1_800_000_000
"""A multiple of every grain."""


class World:
    def __init__(self) -> None:
        self.stats, self.tallies, self.clock = HandlerStats(), Tallies(), ManualClock(BEGIN_S * 1000)
        self.trend = Trend(self.stats, self.tallies, self.clock)
        self.trend.look()

    def decide(self, admitted: int = 0, denied: int = 0, rule: str = "user") -> None:
        self.stats.admitted[DecisionPath.LOCAL] += admitted
        self.stats.denied[DecisionPath.DENY_CACHE] += denied
        self.tallies.of_rule("edge", rule, rule).over["deny_cache"] += denied

    def run(self, seconds: int, **decided: Any) -> None:
        """Decide so much in each second, and look twice in it."""
        for _ in range(seconds):
            self.decide(**decided)
            for _ in range(2):
                self.clock.advance(500)
                self.trend.look()

    def buckets(self, grain_s: int) -> list[dict[str, Any]]:
        told = self.trend.describe({"grain_s": str(grain_s)})
        assert (told["grain_s"], told["most"]) == (grain_s, GRAINS[grain_s])
        return list(told["buckets"])


@pytest.mark.parametrize("grain_s", GRAINS)
def test_every_decision_is_in_the_bucket_of_its_time(grain_s: int) -> None:
    world = World()
    world.run(240, admitted=3, denied=1)
    buckets = world.buckets(grain_s)
    assert [bucket["begin_s"] for bucket in buckets] == list(range(BEGIN_S, BEGIN_S + 240, grain_s))
    assert {str(bucket["decisions"]) for bucket in buckets} == {
        str({"admitted local": 3 * grain_s, "denied deny_cache": grain_s})
    }


@pytest.mark.parametrize("grain_s", [20, 120])
def test_denials_are_told_apart_by_rule(grain_s: int) -> None:
    world = World()
    for rule, denied in (("user", 2), ("path", 5)):
        world.run(120, denied=denied, rule=rule)
    told = [bucket["denials"] for bucket in world.buckets(grain_s)]
    half = len(told) // 2
    assert told == [[["edge", "user", 2 * grain_s]]] * half + [[["edge", "path", 5 * grain_s]]] * half


def test_of_fine_steps_one_of_twenty_seconds_has_the_denials_by_rule() -> None:
    world = World()
    world.run(60, denied=2)
    told = {bucket["begin_s"]: bucket["denials"] for bucket in world.buckets(2) if "denials" in bucket}
    assert told == {BEGIN_S + step + 18: [["edge", "user", 40]] for step in (0, 20, 40)}


def test_of_many_rules_those_that_deny_most_are_told_and_no_denial_is_lost() -> None:
    world = World()
    for number in range(50):
        world.decide(denied=number, rule=f"rule{number}")
    world.run(20)
    (bucket,) = world.buckets(20)
    told = {(domain, rule): count for domain, rule, count in bucket["denials"]}
    rest = sum(range(50 - MOST_RULES))
    assert told == {("edge", f"rule{number}"): number for number in range(50 - MOST_RULES, 50)} | {OTHERS: rest}


def test_it_is_bounded_and_forgets_what_is_old() -> None:
    world = World()
    for _ in range(400):
        world.clock.advance(120_000)
        world.decide(admitted=1)
        world.trend.look()
    for grain_s, most in GRAINS.items():
        buckets = world.buckets(grain_s)
        assert len(buckets) == most
        assert buckets[-1]["begin_s"] == (BEGIN_S + 400 * 120 - 1) // grain_s * grain_s


def test_a_clock_that_is_set_back_loses_nothing() -> None:
    world = World()
    world.run(60, admitted=1)
    world.clock.step(-600_000)
    world.run(30, admitted=1)
    assert sum(bucket["decisions"]["admitted local"] for bucket in world.buckets(2)) == 90


def test_another_grain_is_refused() -> None:
    with pytest.raises(BadRequest, match="one of 2, 20, 120"):
        World().trend.describe({"grain_s": "3"})


def test_workers_are_added_up_by_time() -> None:
    one, two = World(), World()
    one.run(40, admitted=1, denied=1)
    two.run(20, denied=2, rule="path")
    merged = merge_trends([world.trend.describe({"grain_s": "20"}) for world in (one, two)], 20)
    assert [(bucket["begin_s"] - BEGIN_S, Counter(bucket["decisions"])) for bucket in merged["buckets"]] == [
        (0, Counter({"admitted local": 20, "denied deny_cache": 60})),
        (20, Counter({"admitted local": 20, "denied deny_cache": 20})),
    ]
    assert merged["buckets"][0]["denials"] == [["edge", "path", 40], ["edge", "user", 20]]
