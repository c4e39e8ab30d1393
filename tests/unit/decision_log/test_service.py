"""A decision log over the admin side: what is found, and what those who follow get."""

from pathlib import Path
from typing import Any

import pytest
from headgate.decision_log import service as decisions_service
from headgate.decision_log.json_lines import entry_of_line
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.schema import DecisionRecord, Event
from headgate.decision_log.service import DecisionsService
from headgate.endpoint.admins import Operator
from headgate.errors import BadRequest, NotReady
from headgate.v1 import decisions_pb2 as pb

from tests.support.clock import ManualClock
from tests.support.decision_log import LoggedNode
from tests.support.waiting import PATIENCE_S

NOW_MS = 1_700_000_040_000
RULES = (
    "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}\n"
    "  - {key: path, rate_limit: {unit: minute, requests_per_unit: 1000}}\n"
)
OPERATOR = Operator("alice", "here")
WHO = hash_of_descriptor("d", (("user", "ann"),))


@pytest.fixture
def node(tmp_path: Path) -> LoggedNode:
    return LoggedNode(tmp_path, RULES, ManualClock(NOW_MS))


def written(node: LoggedNode) -> None:
    """Have what was logged on disk."""
    node.clock.advance(1_000)
    node.log.flush()
    assert node.log._sender.flush(PATIENCE_S)


async def tail(service: DecisionsService, cursor: int) -> tuple[list[Any], int, int]:
    answer = await service.tail(pb.TailRequest(cursor=cursor), OPERATOR)
    return [entry_of_line(line) for line in answer.lines], answer.cursor, answer.missed


async def test_all_that_an_explanation_needs_is_found(node: LoggedNode) -> None:
    for _ in range(3):
        node.ask({"user": "ann"}, {"path": "/"})
        node.ask({"user": "bob"})
    node.stop()
    answer = await DecisionsService(node.data_dir).find(pb.FindRequest(who=WHO, until_ms=NOW_MS), OPERATOR)
    entries = [entry_of_line(line) for line in answer.lines]
    records = [entry for entry in entries if isinstance(entry, DecisionRecord)]
    assert [(record.rule.id, record.over) for record in records] == [("user", True), ("path", False)] * 2
    assert [entry.kind for entry in entries if isinstance(entry, Event)] == ["start", "rules_in_force", "stop"]
    assert [rules.files[0].data for rules in answer.rules] == [RULES.encode()]
    assert not answer.more
    assert (answer.first_ms, answer.last_ms) == (NOW_MS, NOW_MS)


async def test_those_who_follow_get_each_line_once(node: LoggedNode) -> None:
    node.ask({"user": "ann"})
    node.ask({"user": "ann"})
    written(node)
    service = DecisionsService(node.data_dir)
    before, cursor, _ = await tail(service, 0)
    assert before == [], "what was there before is not news"
    for _ in range(3):
        node.ask({"user": "ann"})
    written(node)
    first, cursor, missed = await tail(service, cursor)
    assert (len(first), missed) == (3, 0)
    node.ask({"user": "ann"}, cost=7)
    written(node)
    (second,), cursor, _ = await tail(service, cursor)
    assert second.cost == 7
    assert (await tail(service, cursor))[0] == []
    assert (await tail(service, cursor + 100))[0] == [], "a cursor of another run begins now"
    node.stop()


async def test_those_who_are_too_slow_are_told_what_they_missed(
    node: LoggedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions_service, "TAIL_KEPT", 4)
    monkeypatch.setattr(decisions_service, "TAIL_LINES", 3)
    service = DecisionsService(node.data_dir)
    node.ask({"user": "ann"})
    _, cursor, _ = await tail(service, 0)
    for cost in range(1, 8):
        node.ask({"user": "ann"}, cost=cost)
    written(node)
    first, cursor, missed = await tail(service, cursor)
    rest, _, none = await tail(service, cursor)
    assert [entry.cost for entry in [*first, *rest] if isinstance(entry, DecisionRecord)] == [4, 5, 6, 7]
    assert (len(first), none) == (3, 0)
    assert missed >= 3
    node.stop()


async def test_questions_without_an_answer(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="keeps no decision log"):
        await DecisionsService(None).find(pb.FindRequest(who=1), OPERATOR)
    with pytest.raises(BadRequest, match="give `who` or `number`"):
        await DecisionsService(tmp_path).find(pb.FindRequest(), OPERATOR)
    find = DecisionsService(tmp_path).methods()["/headgate.v1.Decisions/Find"]
    with pytest.raises(BadRequest, match="malformed FindRequest"):
        await find(b"\xff\xff", OPERATOR)
