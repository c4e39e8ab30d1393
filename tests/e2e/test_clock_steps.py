"""A real Redis whose clock is set while two real nodes serve: every key goes on, and no step is cheap to exploit."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clocked_redis import ClockedRedis, clocked_redis
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.waiting import wait_until

HOURLY = 40
RULES = f"""
domain: clocks
descriptors:
- key: second
  rate_limit: {{unit: second, requests_per_unit: 3}}
- key: fixed
  rate_limit: {{unit: second, requests_per_unit: 3, algorithm: fixed_window}}
- key: bucket
  rate_limit: {{unit: second, requests_per_unit: 3, algorithm: gcra, burst: 3}}
- key: hour
  rate_limit: {{unit: hour, requests_per_unit: {HOURLY}}}
"""
HOUR_S = 3_600
YEAR_S = 365 * 24 * HOUR_S
STEPS_S = [2 * HOUR_S, 0, -3 * HOUR_S, 0, YEAR_S, YEAR_S + 5, 0]
"""Where the clock stands after each step: forth and back, by seconds, hours and a year."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[ClockedRedis]:
    with clocked_redis(tmp_path) as server:
        yield server


@pytest.fixture
def nodes(redis: ClockedRedis, tmp_path: Path) -> Iterator[list[Headgate]]:
    rules = write_rules(tmp_path / "rules", RULES)
    with ExitStack() as stack:
        arguments = ("--origin", redis.server.url, "--origin-deadline-ms", "1000")
        yield [stack.enter_context(serve(rules, *arguments)) for _ in range(2)]


def admitted(node: Headgate, key: str, value: str = "x") -> bool:
    body = {"domain": "clocks", "descriptors": [{"entries": [{"key": key, "value": value}]}]}
    return node.post_json(body).status == 200


def exhaust(nodes: list[Headgate], key: str) -> int:
    """Ask until both nodes deny; how often they admitted."""
    count, denials = 0, 0
    while denials < 4 * len(nodes):
        for node in nodes:
            if admitted(node, key):
                count += 1
            else:
                denials += 1
    return count


def lines(node: Headgate) -> list[str]:
    return node.get("/metrics").body.decode().splitlines()


def steps_noticed(node: Headgate) -> int:
    (line,) = [line for line in lines(node) if line.startswith("headgate_shard_clock_steps_total{")]
    return int(float(line.rsplit(" ", 1)[1]))


def wait_for_steps(nodes: list[Headgate], steps: int) -> None:
    wait_until(lambda: [steps_noticed(node) for node in nodes] == [steps] * len(nodes), "the step to be noticed")


def test_every_key_works_again_after_a_step(redis: ClockedRedis, nodes: list[Headgate]) -> None:
    """Windows and buckets that were full when the clock was set: none stays so, and each step is said once."""
    for number, offset_s in enumerate(STEPS_S, 1):
        for key in ("second", "fixed", "bucket"):
            exhaust(nodes, key)
        redis.set_clock(offset_s)
        wait_for_steps(nodes, number)
        for node in nodes:
            for key in ("second", "fixed", "bucket"):
                wait_until(lambda node=node, key=key: admitted(node, key), f"{key} to work again")  # type: ignore[misc]
    for node in nodes:
        said = [event for event in node.events if event["event"] == "shard_clock_set"]
        assert len(said) == len(STEPS_S)
        # The first answer after a step says by how much; what it says is exact but for the way of the message.
        assert abs(said[0]["by_ms"] - 2 * HOUR_S * 1000) < 60_000


def test_a_step_costs_at_most_one_extra_limit_per_key(redis: ClockedRedis, nodes: list[Headgate]) -> None:
    total = exhaust(nodes, "hour")
    assert HOURLY <= total <= HOURLY * 1.05 + 1
    for number, offset_s in enumerate([2 * HOUR_S, 0, -3 * HOUR_S], 1):
        redis.set_clock(offset_s)
        wait_for_steps(nodes, number)
        total += exhaust(nodes, "hour")
        assert total <= (number + 1) * (HOURLY * 1.05 + 1)


def test_nobody_is_decided_by_policy_because_a_clock_was_set(redis: ClockedRedis, nodes: list[Headgate]) -> None:
    redis.set_clock(2 * HOUR_S)
    for number in range(50):
        admitted(nodes[number % 2], "hour", f"user{number % 5}")
    for node in nodes:
        degraded = [line for line in lines(node) if line.startswith("headgate_shard_degraded_total{")]
        assert all(line.endswith(" 0.0") for line in degraded), degraded
