"""`Headgate.local`: the server's own engine within the process, asked by the real client."""

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from headgate_client import AsyncHeadgate, Descriptor, Headgate, RateLimitError
from headgate_client.testing import FakeClock, FakeServer

from tests.support.source import ROOT

RULES: dict[str, Any] = {
    "domain": "edge",
    "descriptors": [
        {"key": "user", "rate_limit": {"unit": "minute", "requests_per_unit": 5}},
        {"key": "bucket", "rate_limit": {"unit": "minute", "requests_per_unit": 6, "algorithm": "gcra", "burst": 2}},
        {"key": "späti", "value": "50%", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
        {"key": "back", "rate_limit": {"unit": "hour", "requests_per_unit": 4, "refund": True}},
    ],
}


def test_it_decides_as_the_fake_does_which_decides_as_the_server_does() -> None:
    """Random questions on one clock: codes and what is left. (Times are spread, as the server spreads them.)"""
    chance, clock = random.Random(7), FakeClock()
    local = Headgate.local(RULES, clock=clock, keep_denials=0)
    fake = FakeServer(RULES, clock=clock).client("edge", keep_denials=0)
    seen = set()
    for _ in range(400):
        clock.advance(chance.choice([0, 0.5, 9, 70]))
        key = chance.choice(["user", "bucket", "späti", "back", "unknown"])
        asked = [Descriptor({key: chance.choice(["a", "50%"])}, limit=chance.choice([None, None, "2/minute"]))]
        cost = chance.choice([0, 1, 2])
        decisions = [client.check(asked, cost=cost) for client in (local, fake)]
        said = [[(one.code, one.remaining, one.limit) for one in decision.statuses] for decision in decisions]
        assert said[0] == said[1]
        seen.add(decisions[0].allowed)
    assert seen == {True, False}


def test_reservations_settle_once_and_refunds_come_back() -> None:
    clock = FakeClock()
    limiter = Headgate.local(RULES, clock=clock, on_error="raise")
    reservation = limiter.reserve(estimate=4, user="a")
    assert limiter.check(user="a", cost=0).remaining == 1
    assert reservation.settle(1)
    assert not reservation.settle(5), "it was settled before"
    assert limiter.check(user="a", cost=0).remaining == 4
    with limiter.reserve(estimate=1, user="a") as another:
        another.actual = 4
    assert limiter.check(user="a", cost=0).remaining == 0, "beyond the estimate"
    assert limiter.check(back="a", cost=4)
    assert limiter.refund(back="a", cost=3)
    assert limiter.check(back="a", cost=0).remaining == 3
    late = limiter.reserve(estimate=1, ttl=1, back="b")
    clock.advance(2)
    with pytest.raises(Exception, match="NOT_FOUND: id: unknown, or expired"):
        late.settle(0)


def test_rules_come_from_files_too(tmp_path: Path) -> None:
    file = tmp_path / "edge.yaml"
    file.write_text(yaml.safe_dump(RULES))
    for given in (file, str(file), tmp_path, [RULES], RULES):
        assert Headgate.local(given).check(user="a").limit == 5
    assert Headgate.local(ROOT / "examples" / "rules", "edge").check(user="alice").limit == 100


def test_wrong_rules_and_domains_are_refused_with_what_is_wrong(tmp_path: Path) -> None:
    wrong = {
        "domain": "edge",
        "descriptors": [{"key": "user", "rate_limit": {"unit": "minut", "requests_per_unit": 1}}],
    }
    with pytest.raises(ValueError, match=r"rules: rules\[0\]:\d+: `unit` must be one of second, minute"):
        Headgate.local(wrong)
    with pytest.raises(ValueError, match=r"rules: .*can't list the rules directory"):
        Headgate.local(tmp_path / "none")
    with pytest.raises(ValueError, match="domain: one of 'edge', got 'egde'"):
        Headgate.local(RULES, "egde")
    two = [RULES, {"domain": "more", "descriptors": []}]
    with pytest.raises(ValueError, match="domain: one of 'edge', 'more', got None"):
        Headgate.local(two)
    assert Headgate.local(two, "more").check(user="a").limit is None


def test_a_question_that_the_engine_refuses_is_answered_by_on_error() -> None:
    assert not Headgate.local(RULES).refund(user="a")
    with pytest.raises(RateLimitError, match=r"INVALID_ARGUMENT: descriptors\[0\].is_negative_hits"):
        Headgate.local(RULES, on_error="raise").refund(user="a")


def test_threads_share_one_count() -> None:
    limiter = Headgate.local(
        {"domain": "d", "descriptors": [{"key": "k", "rate_limit": {"unit": "year", "requests_per_unit": 500}}]}
    )
    counted: list[int] = []

    def ask() -> None:
        counted.append(sum(limiter.check(k="v").allowed for _ in range(200)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counted) == 500


def test_asyncio_has_the_same() -> None:
    async def asked() -> tuple[list[bool], str]:
        async with AsyncHeadgate.local(RULES) as limiter:
            found = [(await limiter.check(user="a")).allowed for _ in range(6)]
            async with limiter.reserve(estimate=3, user="b") as reservation:
                reservation.actual = 1
            assert (await limiter.check(user="b", cost=0)).remaining == 4
            return found, repr(limiter)

    assert asyncio.run(asked()) == ([True] * 5 + [False], "<AsyncHeadgate 'edge' in this process>")


def test_what_was_counted_is_forgotten_when_its_time_is_over() -> None:
    """There is no housekeeping but the questions themselves."""
    clock = FakeClock()
    limiter = Headgate.local(RULES, clock=clock, keep_denials=0)
    for number in range(200):
        limiter.check(user=f"user-{number}")
    counters = limiter._within._server._engine.counters  # type: ignore[attr-defined]
    assert len(counters) == 200
    clock.advance(600)
    for _ in range(150):
        limiter.check(user="again")
    assert len(counters) == 1
