"""Rollouts with real processes: a change that goes to some callers first, and is undone by itself where it is bad."""

from pathlib import Path

import pytest
from headgate_client.values import Descriptor, encode_request
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

from benchmarks.load import Connection, run
from tests.support.headgate import Headgate, write_rules
from tests.support.plane import PlaneSite, free_address
from tests.support.waiting import wait_until
from tests.support.workers import METHOD

RULES = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 1000}}\n"
TIGHTER = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 900}}\n"
STAGES = ("--rollout-stages", "20%,60%", "--rollout-stage-s", "2")
USERS = [f"user-{number}" for number in range(100)]


@pytest.fixture
def site(tmp_path: Path) -> PlaneSite:
    return PlaneSite(tmp_path / "site")


def payload(user: str) -> bytes:
    return encode_request("edge", [Descriptor([("user", user)])], 0).SerializeToString()


def limit_of(node: Headgate, user: str) -> int:
    """The limit that a caller has on a node, as it is told."""
    answers: list[bytes | None] = []
    connection = Connection(node.grpc, METHOD)
    connection.call(0, payload(user))
    connection.send()
    while not answers:
        connection.receive(lambda _, message: answers.append(message))
    connection.socket.close()
    answer = RateLimitResponse.FromString(answers[0] or b"")
    return answer.statuses[0].current_limit.requests_per_unit if answer.statuses else 0


def limits_of(node: Headgate) -> dict[str, int]:
    return {user: limit_of(node, user) for user in USERS}


def call(node: Headgate, times: int) -> None:
    """Let every user call."""
    assert run(node.grpc, METHOD, iter([payload(user) for user in USERS for _ in range(times)])).failures == 0


def rollouts(site: PlaneSite, root: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = site.status(root)["rollouts"]
    return found


def test_a_bad_day_of_an_operator(site: PlaneSite, tmp_path: Path) -> None:
    """A bad change is undone by itself, a good one goes through all stages; beside it a customer is squeezed at once,
    and root, relay and nodes are killed: whoever has the staged limit has it on every node, all the time."""
    rules, tighter = (write_rules(tmp_path / name, text) for name, text in (("rules", RULES), ("tighter", TIGHTER)))
    root, relay = free_address(), free_address()
    with (
        site.plane("root", root, *STAGES) as first,
        site.plane("relay", relay, "--upstream", root) as second,
        site.node("n1", relay, ready=False) as one,
    ):
        assert site.rules(root, "publish", str(rules), "--now", "--why", "first")[0] == 0
        one.wait_ready()
        with site.node("n2", relay) as two:
            _is_undone_by_itself(site, root, one, two)
            staged = _goes_on_beside_a_squeeze(site, root, tighter, one, two)
            _is_held_through_kills(site, root, (first, second, one, two), staged)


def _is_undone_by_itself(site: PlaneSite, root: str, one: Headgate, two: Headgate) -> None:
    status, output = site.rules(root, "put", "--domain", "edge", "user=", "--limit", "1/year", "--why", "a typo")
    assert status == 0, output
    wait_until(lambda: 1 in limits_of(one).values(), "some to have the staged limit")
    wait_until(lambda: limits_of(one) == limits_of(two), "a key to have one limit on all nodes")
    for node in (one, two):
        call(node, 60)
    wait_until(lambda: not rollouts(site, root), "the plane to take it back")
    wait_until(lambda: set(limits_of(one).values()) == {1000}, "the limit in force for everybody")
    last = site.rules_json(root, "history")[0]
    assert (last["who"], "more than the rules in force" in last["why"]) == ("plane", True), last


def _goes_on_beside_a_squeeze(
    site: PlaneSite, root: str, tighter: Path, one: Headgate, two: Headgate
) -> dict[str, int]:
    assert site.rules(root, "publish", str(tighter), "--why", "a little less")[0] == 0
    assert site.rules(root, "halt", "--why", "wait")[0] == 0
    wait_until(lambda: set(limits_of(one).values()) == {900, 1000}, "some to have the staged limit")
    status, output = site.rules(root, "put", "--domain", "edge", "user=x*", "--limit", "9/year")
    assert (status, "a little less" in output) == (2, True), "another one is refused, with what is under way"
    squeeze = ("put", "--domain", "edge", "user=user-7", "--limit", "5/year", "--now", "--why", "squeeze")
    assert site.rules_json(root, *squeeze)["behind"] == []
    assert limit_of(one, "user-7") == limit_of(two, "user-7") == 5
    found = limits_of(one)
    assert found == limits_of(two)
    assert set(found.values()) == {5, 900, 1000}
    return found


def _is_held_through_kills(site: PlaneSite, root: str, killed: tuple[Headgate, ...], staged: dict[str, int]) -> None:
    for headgate in killed:
        headgate.process.kill()
    node_one, node_two = (site.node(name, root) for name in ("n1", "n2"))
    with node_one as one, node_two as two:
        assert limits_of(one) == limits_of(two) == staged, "from their disks, while nobody can be asked"
        with site.plane("root", root, *STAGES):
            assert site.rules(root, "halt", "--resume", "--why", "go on")[0] == 0
            wait_until(lambda: not rollouts(site, root), "all stages to pass")
            wait_until(lambda: limits_of(one) == limits_of(two) == _all(900), "it to be in force for everybody")


def _all(limit: int) -> dict[str, int]:
    return {user: 5 if user == "user-7" else limit for user in USERS}


def test_a_shadow_stops_denials_on_every_node_and_ends_by_itself(site: PlaneSite, tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules", RULES.replace("1000", "1"))
    root = free_address()
    with site.plane("root", root):
        site.rules(root, "publish", str(rules), "--now")
        with site.node("n1", root) as node:
            assert [denied(node) for _ in range(3)] == [False, True, True]
            status, output = site.rules(root, "shadow", "--domain", "edge", "--for", "4s", "--why", "stop")
            assert status == 0, output
            wait_until(lambda: not denied(node), "nobody to be denied")
            wait_until(lambda: denied(node), "it to end by itself")


def denied(node: Headgate) -> bool:
    answers: list[bytes | None] = []
    connection = Connection(node.grpc, METHOD)
    connection.call(0, payload("ann"))
    connection.send()
    while not answers:
        connection.receive(lambda _, message: answers.append(message))
    connection.socket.close()
    return RateLimitResponse.FromString(answers[0] or b"").overall_code == RateLimitResponse.OVER_LIMIT
