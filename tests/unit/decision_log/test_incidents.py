"""Bad moments, one after the other: each is played, the server stops, the rules change, and `explain` finds the cause.

What is asserted is the structured answer, from the data directory alone.
"""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from headgate.decision_log.explain.explanation import explain, lines_of
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.json_lines import record_to_json
from headgate.decision_log.reader import LogView
from headgate.handler import AnswerSettings
from headgate.limiter.engine import Engine
from headgate.limiter.overrides import Override
from headgate.limiter.scopes import LimitsOfRegion
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.interface import REGION_GONE_MS
from headgate.origin.operations.import_counts import ImportCounts
from headgate.region.active import ActiveRegions
from headgate.region.node import RegionNode
from headgate.simulation.loop import LoopClock, run_virtually
from headgate.simulation.network import NetworkedOrigin, NetworkPath
from headgate.simulation.shard import SimulatedShard
from headgate_client.values import decode_response, encode_request

from tests.support.clock import ManualClock
from tests.support.decision_log import LoggedNode, decisions

NOW_MS = 1_700_000_040_000  # a minute's beginning
ANN = {"user": "ann"}


def rules(*lines: str) -> str:
    return "domain: d\ndescriptors:\n" + "".join([f"  - {line}\n" for line in lines])


def limit(requests: int, unit: str = "minute", **more: Any) -> str:
    fields = {"unit": unit, "requests_per_unit": requests, **more}
    return json.dumps(fields)


def user(requests: int, unit: str = "minute", **more: Any) -> str:
    return f"{{key: user, rate_limit: {limit(requests, unit, **more)}}}"


USER_3 = rules(user(3))


class Incident:
    """A node alone, the question that comes afterwards, and the answer to it."""

    def __init__(self, directory: Path, text: str = USER_3, **options: Any) -> None:
        self.directory = directory
        self.clock = ManualClock(NOW_MS)
        self.options = options
        self.node = LoggedNode(directory, text, self.clock, **options)

    def ask(self, times: int = 1, *descriptors: dict[str, str], cost: int = 1) -> None:
        for _ in range(times):
            self.node.ask(*(descriptors or (ANN,)), cost=cost)

    def restart(self, text: str = USER_3) -> None:
        self.node.stop()
        run = self.options.get("run", 1) + 1
        self.node = LoggedNode(self.directory, text, self.clock, **{**self.options, "run": run})

    def explained(self, descriptor: dict[str, str] | None = None, at_ms: int | None = None) -> dict[str, Any]:
        """After the server has stopped and the rules have changed."""
        self.node.stop()
        return explained(self.node, descriptor or ANN, self.clock.now_ms() if at_ms is None else at_ms)


def explained(node: LoggedNode, descriptor: dict[str, str], at_ms: int) -> dict[str, Any]:
    for path in node.rules_dir.iterdir():
        path.write_text("domain: other\n")
    question = DecisionQuestion("d", tuple(descriptor.items()), at_ms)
    found = explain(LogView([node.data_dir]), question)
    assert lines_of(found)
    return json.loads(json.dumps(found.to_json()))  # type: ignore[no-any-return]


def kinds(answer: dict[str, Any]) -> list[str]:
    return [cause["kind"] for cause in answer["causes"]]


# A node on its own


def test_the_caller_used_up_the_limit(tmp_path: Path) -> None:
    incident = Incident(tmp_path)
    incident.ask(4)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("denied", "own_usage")
    assert answer["causes"][0]["counted"] == 3
    assert answer["decision"]["rule"] == "user"
    assert answer["would_admit_at"] == "2023-11-14T22:15:00.001Z" or answer["would_admit_at"] > "2023-11-14T22:15"


def test_the_limit_was_lowered(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(100)))
    incident.ask(20)
    incident.clock.advance(5_000)
    incident.node.use(rules(user(10)))
    incident.clock.advance(1_000)
    incident.ask(1)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("denied", "limit_lowered")
    cause = answer["causes"][0]
    assert (cause["limit_before"], cause["limit"], cause["at_ms"]) == (100, 10, NOW_MS + 5_000)


def test_a_limit_that_was_lowered_long_ago_is_not_to_blame(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(100)))
    incident.node.use(rules(user(10)))
    incident.clock.advance(3_600_000)
    incident.ask(11)
    assert incident.explained()["cause"] == "own_usage"


def test_a_limit_that_was_raised_is_not_to_blame(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(2)))
    incident.node.use(rules(user(5)))
    incident.ask(6)
    assert incident.explained()["cause"] == "own_usage"


def test_a_rule_was_added(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules("{key: other, rate_limit: " + limit(1) + "}"))
    incident.ask(5)
    incident.node.use(rules(user(0)))
    incident.ask(1)
    answer = incident.explained()
    assert answer["cause"] == "rule_added"
    assert "limit_is_zero" in kinds(answer)


def test_a_more_specific_rule_took_over(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(100)))
    incident.ask(5)
    incident.node.use(rules(user(100), f"{{key: user, value: ann, rate_limit: {limit(2)}}}"))
    incident.ask(3)
    answer = incident.explained()
    assert answer["cause"] == "another_rule_applies"
    assert (answer["causes"][0]["rule_before"], answer["decision"]["rule"]) == ("user", "user=ann")


def test_a_more_specific_rule_that_gives_more_is_not_to_blame(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(2)))
    incident.node.use(rules(user(2), f"{{key: user, value: ann, rate_limit: {limit(5)}}}"))
    incident.ask(6)
    answer = incident.explained()
    assert answer["cause"] == "own_usage"
    (changed,) = [one for one in answer["in_progress"] if one["kind"] == "rules_changed"]
    assert changed["since_ms"] == NOW_MS


def test_the_window_was_changed(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(3)))
    incident.ask(3)
    incident.node.use(rules(user(3, "hour")))
    incident.ask(4)
    answer = incident.explained()
    assert answer["cause"] == "window_changed"
    assert answer["causes"][0]["window_ms_before"] == 60_000


def test_the_window_before_still_counts(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(10)))
    incident.clock.advance(50_000)
    incident.ask(10)
    incident.clock.advance(13_000)
    incident.ask(3)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("denied", "previous_window")
    assert answer["decision"]["counted"]["previous"] == 10


def test_another_descriptor_of_the_request_was_over(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(100), "{key: path, rate_limit: " + limit(2) + "}"))
    incident.ask(3, ANN, {"path": "/"})
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("denied", "another_descriptor")
    assert answer["causes"][0]["rules"] == ["path"]
    assert {part["rule"]: part["over"] for part in answer["request"]} == {"user": False, "path": True}


def test_a_rule_is_in_shadow_mode(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(f"{{key: user, shadow_mode: true, rate_limit: {limit(1)}}}"))
    incident.ask(2)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("would_have_been_denied", "shadow_rule")
    assert "own_usage" in kinds(answer)


def test_the_whole_server_is_in_shadow_mode(tmp_path: Path) -> None:
    incident = Incident(tmp_path, settings=AnswerSettings(shadow_mode=True))
    incident.ask(4)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("would_have_been_denied", "shadow_mode")


def test_a_nested_rule_applied(tmp_path: Path) -> None:
    nested = (
        f"{{key: user, rate_limit: {limit(100)}, descriptors: [{{key: path, value: /login, rate_limit: {limit(1)}}}]}}"
    )
    incident = Incident(tmp_path, rules(nested))
    incident.ask(2, {"user": "ann", "path": "/login"})
    answer = incident.explained({"user": "ann", "path": "/login"})
    assert (answer["cause"], answer["decision"]["rule"]) == ("own_usage", "user>path=/login")
    assert answer["decision"]["terms"]["limit"] == 1


def test_a_node_restarted_and_forgot(tmp_path: Path) -> None:
    """Somebody got twice the limit: the node counts in memory, and began anew in between."""
    incident = Incident(tmp_path, allowances=1)
    incident.ask(3)
    incident.clock.advance(10_000)
    incident.restart()
    incident.clock.advance(1_000)
    incident.ask(2)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("admitted", "node_restarted")
    assert answer["causes"][0]["at_ms"] == NOW_MS + 10_000


def test_new_rules_came_with_a_restart(tmp_path: Path) -> None:
    """The node goes by another name since: it was given none, so it is made of its host's and chance."""
    incident = Incident(tmp_path, rules(user(100)), name="host-1f")
    incident.ask(20)
    incident.options["name"] = "host-2e"
    incident.clock.advance(5_000)
    incident.restart(rules(user(3)))
    incident.ask(4)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("denied", "limit_lowered")
    assert answer["causes"][0]["limit_before"] == 100


def test_a_node_without_a_name_restarted_and_forgot(tmp_path: Path) -> None:
    incident = Incident(tmp_path, name="host-1f", allowances=1)
    incident.ask(3)
    incident.options["name"] = "host-2e"
    incident.restart()
    incident.ask(1)
    assert incident.explained()["cause"] == "node_restarted"


def test_a_change_of_the_rules_had_been_refused(tmp_path: Path) -> None:
    """Somebody raised the limit, and wonders why it is not in force."""
    incident = Incident(tmp_path)
    incident.clock.advance(1_000)
    incident.node.noted(structlog.get_logger()).error("rules_refused", problems=1, version="1-x")
    incident.clock.advance(1_000)
    incident.ask(4)
    answer = incident.explained()
    assert answer["cause"] == "own_usage"
    assert [one["kind"] for one in answer["in_progress"]] == ["node_started", "rules_refused"]
    assert any("had been refused at 2023-11-14T22:14:01.000Z" in line for line in answer["sentences"])


def test_the_rules_could_not_be_had(tmp_path: Path) -> None:
    """Somebody raised the limit, and the server that has the rules is away."""
    incident = Incident(tmp_path)
    incident.clock.advance(1_000)
    incident.node.noted(structlog.get_logger()).warning("rules_not_delivered", problems=1, version="1-x")
    incident.clock.advance(1_000)
    incident.ask(4)
    answer = incident.explained()
    assert [one["kind"] for one in answer["in_progress"]] == ["node_started", "rules_not_delivered"]
    assert any("since 2023-11-14T22:14:01.000Z: rules 1-x served on" in line for line in answer["sentences"])


def test_the_limit_is_zero(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(0)))
    incident.ask(1)
    assert incident.explained()["cause"] == "limit_is_zero"


def test_the_cost_is_above_the_limit(tmp_path: Path) -> None:
    incident = Incident(tmp_path)
    incident.ask(1, cost=4)
    answer = incident.explained()
    assert answer["cause"] == "cost_above_limit"
    assert not any("would have been admitted" in line for line in answer["sentences"])


def test_the_limit_came_with_the_request(tmp_path: Path) -> None:
    incident = Incident(tmp_path)
    request = encode_request("d", [ANN], 1)
    request.descriptors[0].limit.requests_per_unit = 1
    request.descriptors[0].limit.unit = "MINUTE"  # type: ignore[assignment]
    for _ in range(2):
        incident.node.handler.answer(request.SerializeToString())
    answer = incident.explained()
    assert (answer["cause"], answer["decision"]["rule"]) == ("limit_in_request", "(request)")


def test_a_bucket_was_used_up(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(1, "second", algorithm="gcra", burst=5)))
    incident.ask(6)
    answer = incident.explained()
    assert answer["cause"] == "burst_used_up"
    assert answer["causes"][0] == {"kind": "burst_used_up", "used": 5, "burst": 5}
    assert "Of the bucket's 5 tokens 5 were in use; the request's cost was 1." in answer["sentences"]


def test_nothing_was_denied(tmp_path: Path) -> None:
    incident = Incident(tmp_path)
    incident.ask(2)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("not_logged", None)
    assert any("rule user: 3 per minute" in line for line in answer["sentences"])


def test_no_rule_applies(tmp_path: Path) -> None:
    incident = Incident(tmp_path)
    incident.ask(5, {"nobody": "x"})
    answer = incident.explained({"nobody": "x"})
    assert answer["outcome"] == "not_logged"
    assert any("no rule applies" in line for line in answer["sentences"])


def test_quotas_deny_only_together(tmp_path: Path) -> None:
    quota = "{{key: {}, quota_mode: true, rate_limit: {}}}"
    incident = Incident(tmp_path, rules(quota.format("user", limit(1)), quota.format("team", limit(9))), allowances=1)
    incident.ask(2, ANN, {"team": "t"})
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("admitted", "quota_mode")


def override(incident: Incident, limit: int) -> None:
    """As `headgate key override` has it done: a line of the audit, and an override in force."""
    match, now_ms = incident.node.rules.match("d", tuple(ANN.items())), incident.clock.now_ms()
    assert match is not None
    audit = incident.node.noted(structlog.get_logger()).bind(who="alice", peer="", why="abuse", key="d: user=ann")
    audit.warning("key_overridden", until_ms=now_ms + 3_600_000, rule="d: user", limit=limit)
    made = Override(match.key, "d", tuple(ANN.items()), now_ms + 3_600_000, limit, None, "alice", "abuse", now_ms)
    incident.node.overrides.change([made])


def test_an_operator_overrode_the_limit(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(100)))
    override(incident, 2)
    incident.ask(3)
    answer = incident.explained()
    assert answer["cause"] == "override"
    cause = answer["causes"][0]
    assert (cause["stated"], cause["enforced"], cause["who"], cause["why"]) == (100, 2, "alice", "abuse")


@pytest.mark.parametrize(("ends_ms", "cause"), [(3_600_000, "blocked"), (-1, "limit_is_zero")])
def test_an_operator_blocked_the_caller(tmp_path: Path, ends_ms: int, cause: str) -> None:
    incident = Incident(tmp_path, rules(user(0)))
    audit = incident.node.noted(structlog.get_logger()).bind(who="alice", peer="", why="scrapes", key="d: user=ann")
    audit.debug("block_in_force", until_ms=incident.clock.now_ms() + ends_ms)
    incident.ask(1)
    answer = incident.explained()
    assert answer["cause"] == cause
    if cause == "blocked":
        assert any("had blocked user=ann" in line and "(alice: scrapes)" in line for line in answer["sentences"])


@pytest.mark.parametrize("terms", [user(3), user(3, algorithm="gcra", burst=3)])
def test_an_override_that_gave_more_is_not_to_blame(terms: str, tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(terms))
    override(incident, 6)
    incident.ask(7)
    assert incident.explained()["cause"] in ("own_usage", "burst_used_up")


@pytest.mark.parametrize(
    ("terms", "later_ms", "cause"),
    [
        (limit(3), 0, "key_reset"),
        (limit(3), 60_000, "key_reset"),  # the window before would still have counted
        (limit(3), 120_000, "within_limit"),
        (limit(3, algorithm="fixed_window"), 0, "key_reset"),
        (limit(3, algorithm="fixed_window"), 60_000, "within_limit"),
        (limit(60, algorithm="gcra", burst=3), 2_000, "key_reset"),
        (limit(60, algorithm="gcra", burst=3), 4_000, "within_limit"),  # the bucket would have been full again
    ],
)
def test_an_operator_reset_the_key(terms: str, later_ms: int, cause: str, tmp_path: Path) -> None:
    """Somebody who was denied gets in again before the time, and it was no mistake; nobody else's reset is named."""
    incident = Incident(tmp_path, rules(f"{{key: user, rate_limit: {terms}}}"), allowances=1)
    incident.ask(3)
    incident.clock.advance(1_000)
    audit = incident.node.noted(structlog.get_logger()).bind(who="alice", peer="", why="our own load test")
    match, engine = incident.node.rules.match("d", tuple(ANN.items())), incident.node.engine
    assert match is not None
    assert isinstance(engine, Engine)
    assert engine.reset(match.key)
    audit.bind(key="d: user=ann").warning("key_reset", number=1, rule="d: user")
    incident.clock.advance(10)
    audit.bind(key="d: user=eve").warning("key_reset", number=1, rule="d: user")
    incident.clock.advance(later_ms)
    incident.ask(1)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("admitted", cause)
    if cause == "key_reset":
        named = {"kind": "key_reset", "at_ms": NOW_MS + 1_000, "who": "alice", "why": "our own load test"}
        assert answer["causes"] == [named]
        assert any("(alice: our own load test)" in line for line in answer["sentences"])


def test_this_region_enforces_a_part(tmp_path: Path) -> None:
    incident = Incident(tmp_path, rules(user(10, scope="cell")), limits=LimitsOfRegion(2))
    incident.ask(6)
    answer = incident.explained()
    assert answer["cause"] == "regional_part"
    assert (answer["causes"][0]["stated"], answer["causes"][0]["enforced"]) == (10, 5)


def test_the_denial_is_in_the_log_of_another_node(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = Incident(tmp_path / "a", name="a")
    first.ask(1)
    first.node.stop()
    second = Incident(tmp_path / "b", name="b")
    second.ask(4)
    second.node.stop()
    question = DecisionQuestion("d", (("user", "ann"),), NOW_MS)
    assert explain(LogView([first.node.data_dir]), question).outcome == "not_logged"
    both = explain(LogView([first.node.data_dir, second.node.data_dir]), question).to_json()
    assert (both["outcome"], both["decision"]["node"]) == ("denied", "b")


def test_the_pods_are_gone_and_their_lines_were_shipped(tmp_path: Path) -> None:
    """As a log store gives them back: wrapped, beside lines that are none of ours."""
    incident = Incident(tmp_path)
    incident.ask(4)
    incident.node.stop()
    records = [json.dumps(record_to_json(record)) for record in decisions(incident.node.data_dir)]
    shipped = tmp_path / "shipped.jsonl"
    lines = ['{"level": "info"}', "not json", *(json.dumps({"log": line, "stream": "stdout"}) for line in records)]
    shipped.write_text("\n".join(lines))
    found = explain(LogView([shipped]), DecisionQuestion("d", (("user", "ann"),), NOW_MS))
    assert found.to_json()["cause"] == "own_usage"
    assert found.counts["skipped_lines"] == 2


def test_the_log_has_a_hole_and_says_so(tmp_path: Path) -> None:
    incident = Incident(tmp_path)
    incident.ask(2)
    incident.node.log.note("dropped", NOW_MS, decisions=17)
    answer = incident.explained()
    assert answer["log"]["dropped"] == 17
    assert any("17 decisions" in line for line in answer["sentences"])


def test_one_decision_is_found_by_its_id(tmp_path: Path) -> None:
    incident = Incident(tmp_path, settings=AnswerSettings(reason_metadata=True))
    incident.ask(3)
    denied = incident.node.ask(ANN)
    number = decode_response(denied).id
    incident.node.stop()
    found = explain(LogView([incident.node.data_dir]), DecisionQuestion(number=int(number, 16)))
    assert found.record is not None
    assert found.record.id == number
    assert found.to_json()["cause"] == "own_usage"


# Nodes of a region, on virtual time


class Region:
    """Two nodes over one simulated shard; the first one's log is asked afterwards."""

    def __init__(self, directory: Path, text: str) -> None:
        self.clock = LoopClock(NOW_MS)
        self.shard = SimulatedShard(self.clock)
        self.paths: list[NetworkPath] = []
        self.nodes: list[LoggedNode] = []
        self.directory, self.text = directory, text

    async def start(self, count: int = 1, *, max_cells: int = 1000) -> None:

        for index in range(count):
            home = self.directory / f"node{index}"
            home.mkdir()
            logged = LoggedNode(home, self.text, self.clock, name=f"node{index}", run=index + 1, allowances=1)
            self.paths.append(NetworkPath())
            node = RegionNode(
                NetworkedOrigin([self.shard], [self.paths[-1]], random.Random(index)),
                run=b"run%d" % index,
                clock=self.clock,
                random=random.Random(index),
                logger=logged.noted(structlog.get_logger()),
                max_cells=max_cells,
                deadline_s=0.1,
                on_live_nodes=lambda live, logged=logged: logged.log.note("live_nodes", NOW_MS, live_nodes=live),  # type: ignore[misc]
            )
            await node.start()
            logged.join(node)
            self.nodes.append(logged)
        await asyncio.sleep(3)

    async def stop(self) -> None:
        for logged in self.nodes:
            assert logged.node is not None
            await logged.node.abandon()
            logged.stop()


def played(
    directory: Path, text: str, play: Callable[[Region], Any], *, nodes: int = 1, max_cells: int = 1000
) -> dict[str, Any]:
    """Play it on virtual time, then ask the first node's data directory."""

    async def main() -> tuple[LoggedNode, dict[str, str], int]:
        region = Region(directory, text)
        await region.start(nodes, max_cells=max_cells)
        descriptor = await play(region)
        now_ms = region.clock.now_ms()
        await region.stop()
        return region.nodes[0], descriptor or ANN, now_ms

    return explained(*run_virtually(main()))


def test_other_nodes_used_the_limit_up(tmp_path: Path) -> None:
    async def play(region: Region) -> None:
        for _ in range(8):
            await region.nodes[1].ask_region(ANN)
        await asyncio.sleep(5)  # until what the other one held for more of them is given back
        for _ in range(3):
            await region.nodes[0].ask_region(ANN)

    answer = played(tmp_path, rules(user(10, "hour")), play, nodes=2)
    assert (answer["outcome"], answer["cause"]) == ("denied", "other_nodes")
    assert answer["decision"]["counted"]["others"] == 8
    assert answer["decision"]["counted"]["own"] == 2


def test_a_denial_from_memory_is_logged_with_the_time_and_the_counts_of_its_moment(tmp_path: Path) -> None:
    asked_ms = []

    async def play(region: Region) -> None:
        node = region.nodes[0]
        for _ in range(6):
            await node.ask_region(ANN)
        for _ in range(3):
            await asyncio.sleep(7)
            asked_ms.append(node.node.earliest_ms())  # type: ignore[union-attr]
            await node.ask_region(ANN)

    played(tmp_path, rules(user(5, "hour")), play)
    denied = [record for record in decisions(tmp_path / "node0" / "data") if record.path == "deny_cache"]
    assert [record.time_ms for record in denied] == asked_ms
    assert [(record.own, record.others, record.shard) for record in denied] == [(5, 0, 0)] * 3
    assert denied[0].wait_ms - denied[1].wait_ms == asked_ms[1] - asked_ms[0]


def test_other_regions_used_the_limit_up(tmp_path: Path) -> None:
    async def play(region: Region) -> None:
        node = region.nodes[0]
        await node.ask_region(ANN)
        match = node.rules.match("d", (("user", "ann"),))
        assert match is not None
        window_ms = match.limit.window_ms
        sequence = region.clock.now_ms() // window_ms
        region.shard.apply(ImportCounts([ForeignCount(match.key, window_ms, sequence, b"eu", 95)]))
        await asyncio.sleep(6)
        for _ in range(5):
            await node.ask_region(ANN)

    answer = played(tmp_path, rules(user(100, "hour")), play)
    assert (answer["outcome"], answer["cause"]) == ("denied", "foreign_usage")
    assert answer["causes"][0]["counted"] == 95


def test_regions_did_not_hear_each_other(tmp_path: Path) -> None:
    """Somebody got more than the limit of all regions together: this one did not know of the others."""
    limits = LimitsOfRegion(2)
    incident = Incident(tmp_path, rules(user(3, "hour", scope="global")), limits=limits, allowances=1)
    noted = incident.node.noted(structlog.get_logger())
    active = ActiveRegions(
        limits, 2, incident.clock, lambda heard: noted.warning("active_regions_changed", active=heard, of=2)
    )
    incident.clock.advance(REGION_GONE_MS)
    active.heard(0)
    incident.clock.advance(1_000)
    incident.ask(1)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("admitted", "regions_apart")
    assert answer["causes"][0]["since_ms"] == NOW_MS + REGION_GONE_MS
    assert answer["in_progress"][-1] == {
        "kind": "regions_not_heard",
        "since_ms": NOW_MS + REGION_GONE_MS,
        "active": 1,
        "of": 2,
    }


def test_a_denial_while_a_region_could_not_be_reached_says_so(tmp_path: Path) -> None:
    """It is not to blame: what this region knows denies already."""
    incident = Incident(tmp_path, rules(user(3, "hour", scope="global")), limits=LimitsOfRegion(2))
    noted = incident.node.noted(structlog.get_logger())
    noted.warning("peer_failed", region="eu", address="h:1", reason="refused")
    noted.info("peer_connected", region="eu", address="h:1")
    incident.clock.advance(1_000)
    noted.warning("peer_failed", region="us", address="h:2", reason="no route")
    incident.ask(4)
    answer = incident.explained()
    assert (answer["outcome"], answer["cause"]) == ("denied", "own_usage")
    (apart,) = [one for one in answer["in_progress"] if one["kind"] == "region_unreached"]
    assert (apart["region"], apart["since_ms"]) == ("us", NOW_MS + 1_000)
    assert any(
        "Region us could not be reached since 2023-11-14T22:14:01.000Z (no route)." in line
        for line in answer["sentences"]
    )


def test_a_key_at_its_limit_waits_for_the_nodes_turn(tmp_path: Path) -> None:
    """What has just become free is not asked for at once: a node asks about such a key now and then."""

    async def play(region: Region) -> None:
        for _ in range(4_000):
            await region.nodes[0].ask_region(ANN)
            await asyncio.sleep(0.02)

    played(tmp_path, rules(user(1_000)), play)
    data_dir = tmp_path / "node0" / "data"
    denied = [record for record in decisions(data_dir) if not record.allowed]
    early = next(record for record in denied if record.counted + record.cost <= record.capacity)
    answer = explain(LogView([data_dir]), DecisionQuestion(number=early.number)).to_json()
    assert (answer["outcome"], answer["cause"]) == ("denied", "not_its_turn")
    assert answer["causes"][0] == {"kind": "not_its_turn", "counted": early.counted, "most": 1_000}


async def shard_goes_away(region: Region) -> None:
    """Long enough for its breaker to open."""
    for path in region.paths:
        path.connected = False
    for number in range(30):
        await region.nodes[0].ask_region({"user": f"warm{number}"})
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)


def test_the_shard_was_down_and_the_rule_closed(tmp_path: Path) -> None:
    async def play(region: Region) -> None:
        await region.nodes[0].ask_region(ANN)
        await shard_goes_away(region)
        await asyncio.sleep(6)
        await region.nodes[0].ask_region(ANN)

    answer = played(tmp_path, rules(user(100, "hour", on_error="closed")), play)
    assert (answer["outcome"], answer["cause"]) == ("denied", "shard_away")
    cause = answer["causes"][0]
    assert (cause["on_error"], cause["shard"]) == ("closed", 0)
    assert cause["since_ms"] < answer["decision"]["time_ms"]
    assert answer["would_admit_at"] is None
    assert "The caller was told to come again after 1 s" in " ".join(answer["sentences"])


def test_the_shard_was_down_and_the_rule_let_through(tmp_path: Path) -> None:
    async def play(region: Region) -> None:
        await shard_goes_away(region)
        await region.nodes[0].ask_region(ANN)

    answer = played(tmp_path, rules(user(100, "hour", on_error="open")), play)
    assert (answer["outcome"], answer["cause"]) == ("admitted", "shard_away")
    assert answer["decision"]["path"] == "degraded_open"


@pytest.mark.parametrize("on_error", ["local", "open"])
def test_the_shard_was_down_and_each_node_counted_for_several(tmp_path: Path, on_error: str) -> None:
    async def play(region: Region) -> None:
        await shard_goes_away(region)
        for _ in range(8):
            await region.nodes[0].ask_region(ANN)

    answer = played(tmp_path, rules(user(10, "hour", on_error=on_error)), play, nodes=3)
    assert (answer["outcome"], answer["cause"]) == ("denied", "shard_away")
    assert kinds(answer)[1] == "live_nodes"
    assert answer["causes"][1]["live_nodes"] == 3


def test_the_shard_was_slow_once(tmp_path: Path) -> None:
    async def play(region: Region) -> None:
        await asyncio.sleep(1)
        region.paths[0].stall()
        await region.nodes[0].ask_region(ANN)
        region.paths[0].resume()

    answer = played(tmp_path, rules(user(100, "hour", on_error="closed")), play)
    assert (answer["outcome"], answer["cause"]) == ("denied", "shard_slow")


def test_there_was_no_room_for_another_counter(tmp_path: Path) -> None:
    async def play(region: Region) -> dict[str, str]:
        await shard_goes_away(region)
        for number in range(8):
            await region.nodes[0].ask_region({"user": f"u{number}"})
        await region.nodes[0].ask_region({"closed": "x"})
        return {"closed": "x"}

    text = rules(user(10, "hour"), "{key: closed, rate_limit: " + limit(5, "hour", on_error="closed") + "}")
    answer = played(tmp_path, text, play, max_cells=8)
    assert (answer["outcome"], answer["cause"]) == ("denied", "no_room_for_counter")
