"""Changes at a root, at once and in stages, with the clock in the test's hands: what the log has, and who did it."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import structlog
from headgate.endpoint.admins import Operator
from headgate.errors import BadRequest, Forbidden, Misconfigured
from headgate.plane.carrying import Carrying
from headgate.plane.database import Sqlite
from headgate.plane.entry import FollowerState, LogEntry, Position, RecordKind, RolloutCounts
from headgate.plane.plane import Plane
from headgate.plane.rights import RightsFile
from headgate.plane.rollouts import RolloutEnd
from headgate.plane.rule_log import RuleLog
from headgate.plane.service import RulesService
from headgate.v1 import rules_pb2 as pb
from structlog.testing import capture_logs

from tests.support.clock import ManualClock

OPS = Operator("ops", "here")
LOG = structlog.get_logger("test")
OWN = "(own fields)"


class InterruptedPlane(Plane):
    """A plane on which something happens right after a look."""

    after_next_read: Callable[[], Coroutine[Any, Any, object]] | None = None

    async def read(self, work: Callable[[], Any]) -> Any:
        happen, self.after_next_read = self.after_next_read, None
        found = await super().read(work)
        if happen is not None:
            await happen()
        return found


class Root:
    """A root without a network."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(1_000_000)
        self.directory = directory
        self.open()
        self.log.name("a")

    def open(self) -> None:
        self.log = RuleLog(Sqlite(self.directory))
        self.plane = InterruptedPlane(self.log, self.clock)
        self.service = RulesService(self.plane, None, LOG)
        self.carrying = Carrying(self.plane, LOG)

    def restart(self) -> None:
        self.plane.close()
        self.open()

    async def change(self, *changes: pb.RuleChange, **request: Any) -> pb.ChangeResponse:
        return await self.service.change(pb.ChangeRequest(changes=changes, **request), OPS)

    async def pass_s(self, seconds: int) -> None:
        """Let time pass, and look at each second."""
        for _ in range(seconds):
            self.clock.advance(1_000)
            await self.carrying.look()

    def report(self, name: str = "n1", index: int | None = None, **counts: int) -> None:
        """Report as a node that has an entry in force."""
        has = self.log.position if index is None else Position("a", index, "v")
        (rollout,) = self.rollouts()
        counted = RolloutCounts("edge", rollout["rollout"], **counts)
        self.plane.reported([FollowerState(name, "eu", "1", False, has, rollouts=(counted,))])

    def records(self, kind: RecordKind = RecordKind.RULE, domain: str = "edge") -> dict[str, Any]:
        """Records of a kind, by the last value of their path."""
        with self.log.looking() as records:
            found = records.of_kind(domain, kind, 1_000)
        return {one.path[-1][1] if one.path else OWN: _short(json.loads(one.rule or b"")) for one in found}

    def rollouts(self) -> list[Any]:
        return [found] if (found := self.records(RecordKind.STAGED).get(OWN)) else []

    def staged(self) -> dict[str, Any]:
        return {value: rule for value, rule in self.records(RecordKind.STAGED).items() if value != OWN}

    def history(self) -> list[LogEntry]:
        return self.log.history(0, 100)[0]


def _short(fields: dict[str, Any]) -> Any:
    return fields["rate_limit"]["requests_per_unit"] if "rate_limit" in fields else fields


def put(user: str, limit: int | None, domain: str = "edge") -> pb.RuleChange:
    """A limit of a user; None exempts."""
    rule = {} if limit is None else {"rate_limit": {"unit": "minute", "requests_per_unit": limit}}
    return pb.RuleChange(domain=domain, path=[pb.Step(key="user", value=user)], rule=json.dumps(rule).encode())


def delete(user: str, domain: str = "edge") -> pb.RuleChange:
    return pb.RuleChange(domain=domain, path=[pb.Step(key="user", value=user)])


def own(text: str, domain: str = "edge") -> pb.RuleChange:
    return pb.RuleChange(domain=domain, rule=text.encode())


Scene = Callable[[Root], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        root = Root(tmp_path / "root")
        try:
            asyncio.run(scene(root))
        finally:
            root.plane.close()

    return run


Play = Callable[[Scene], None]


# At once, or in stages


def test_looser_goes_at_once_and_tighter_in_stages(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("", 10), put("ann", 5), now=True)
        assert root.staged() == {}
        answer = await root.change(put("ann", 6), why="more")
        assert (answer.changed, len(answer.rollouts), root.records()["ann"]) == (1, 0, 6)
        answer = await root.change(put("ann", 4), put("bob", 20), why="less")
        assert (answer.changed, answer.rollouts[0].share, answer.rollouts[0].why) == (2, 10_000, "less")
        assert root.staged() == {"ann": 4, "bob": 20}, "looser parts go with the rest"
        assert root.records() == {"": 10, "ann": 6}

    play(scene)


def test_a_rollout_goes_through_its_stages_and_comes_into_force(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("", 10), put("ann", 5), put("bob", 9), now=True)
        began = (await root.change(put("ann", 4), delete("bob"), put("", 9), why="less")).position.index
        shares = [root.rollouts()[0]["share"]]
        while root.rollouts():
            root.report(staged_decided=50)
            await root.pass_s(1)
            if root.rollouts() and root.rollouts()[0]["share"] != shares[-1]:
                shares.append(root.rollouts()[0]["share"])
        assert shares == [10_000, 100_000, 500_000]
        assert root.clock.now_ms() == 1_000_000 + 180_000
        assert (root.records(), root.staged()) == ({"": 9, "ann": 4}, {})
        last, *_, first, _now = root.history()
        assert [(entry.who, entry.carries_on) for entry in root.history()] == [("plane", began)] * 3 + [("ops", 0)] * 2
        assert last.why == "all stages passed: denied 0 of 50 by the staged rules, 0 of 0 by those in force"
        assert (first.position.index, root.plane.stats.rollouts[RolloutEnd.DONE]) == (began, 1)

    play(scene)


def test_a_root_that_restarts_goes_on_where_it_was(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5))
        await root.pass_s(90)
        assert root.rollouts()[0]["share"] == 100_000
        root.restart()
        await root.pass_s(29)
        assert root.rollouts()[0]["share"] == 100_000
        await root.pass_s(1)
        assert root.rollouts()[0]["share"] == 500_000

    play(scene)


def test_a_new_domain_is_there_at_once_and_its_rules_in_stages(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(own('{"shard_by": "user"}'), put("ann", 5))
        assert (root.records(), root.staged()) == ({OWN: {"shard_by": "user"}}, {"ann": 5})
        await root.change(put("ann", 5, "api"))
        assert root.records(domain="api") == {OWN: {}}

    play(scene)


def test_domains_of_a_call_are_one_entry_each_in_its_way(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), put("ann", 5, "api"), now=True)
        answer = await root.change(put("ann", 4), put("ann", 6, "api"))
        assert (answer.position.index, answer.changed) == (2, 2)
        assert [one.domain for one in answer.rollouts] == ["edge"]
        assert (root.records()["ann"], root.records(domain="api")["ann"]) == (5, 6)

    play(scene)


def test_own_fields_of_a_domain_that_is_there_change_at_once_or_not_at_all(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(own("{}"), put("ann", 5), now=True)
        with pytest.raises(Misconfigured, match="edge: `shard_by` and `request_limits` change for everybody at once"):
            await root.change(own('{"shard_by": "user"}'), put("ann", 6))
        await root.change(put("ann", 4))
        with pytest.raises(Misconfigured, match="while a rollout is under way, by ops: at 1%"):
            await root.change(own('{"shard_by": "user"}'), now=True)

    play(scene)


def test_who_calls_says_what_may_be_denied_and_changes_rules_alone(play: Play) -> None:
    async def scene(root: Root) -> None:
        answer = await root.change(put("ann", 5), expect_denials=20_000)
        assert answer.rollouts[0].expect_denials == 20_000
        with pytest.raises(BadRequest, match="expect_denials"):
            await root.change(put("ann", 5), expect_denials=1_000_001)
        staged = pb.RuleChange(domain="edge", rule=b"{}", kind=pb.RECORD_KIND_STAGED)
        with pytest.raises(BadRequest, match="the plane's to say"):
            await root.change(staged)

    play(scene)


def test_a_pattern_on_the_way_to_a_rule_has_a_place_of_its_own(play: Play) -> None:
    async def scene(root: Root) -> None:
        below = put("ann", 5)
        below.path.insert(0, pb.Step(key="path", value="/a*"))
        await root.change(below, now=True)
        assert root.records() == {"/a*": {"leads_on": True, "place": 0}, "ann": 5}

    play(scene)


# While one is under way


def test_another_that_would_be_staged_is_refused_with_who_and_what(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), put("bob", 5), now=True)
        await root.change(put("ann", 4), why="ticket 1")
        with pytest.raises(Misconfigured, match="edge: a rollout is under way, by ops, ticket 1: at 1%, since entry 2"):
            await root.change(put("bob", 4))
        again = await root.change(put("ann", 4), why="ticket 1")
        assert (again.changed, again.position.index, len(again.rollouts)) == (0, 2, 1), "it is the same change"

    play(scene)


def test_a_change_at_once_goes_into_both(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), put("bob", 5), put("eve", 5), now=True)
        await root.change(put("ann", 4), put("bob", 4))
        await root.change(put("ann", 1), now=True)
        assert (root.records()["ann"], root.staged()) == (1, {"bob": 4})
        await root.change(put("eve", 6))
        assert (root.records()["eve"], root.staged()) == (6, {"bob": 4})
        assert root.rollouts()
        await root.change(put("bob", 6))
        assert (root.records()["bob"], root.records(RecordKind.STAGED)) == (6, {}), "nothing is left of it"
        assert root.plane.stats.rollouts[RolloutEnd.CANCELLED] == 1

    play(scene)


def test_a_domain_that_is_deleted_leaves_nothing(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(own("{}"), put("ann", 5), put("bob", 5), now=True)
        await root.change(put("ann", 4))
        await root.service.shadow(pb.ShadowRequest(domain="edge", for_ms=60_000), OPS)
        await root.change(pb.RuleChange(domain="edge"), delete("ann"), delete("bob"))
        assert [root.records(kind) for kind in RecordKind] == [{}, {}, {}]
        assert not root.log.domains

    play(scene)


# Gates


def test_a_change_that_denies_too_much_is_taken_back(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), now=True)
        began = (await root.change(put("ann", 4), why="bad")).position.index
        root.report("n1", staged_decided=600, staged_denied=60)
        await root.pass_s(1)
        assert root.rollouts()
        root.report("n2", staged_decided=600, staged_denied=60)
        with capture_logs() as logs:
            await root.pass_s(1)
        assert (root.records(RecordKind.STAGED), root.records()["ann"]) == ({}, 5)
        entry = root.history()[0]
        assert (entry.who, entry.carries_on) == ("plane", began)
        assert entry.why.startswith("denies 10% more than the rules in force, and 1% was expected: denied 120 of 1200")
        (said,) = [log for log in logs if log["event"] == "rollout_rolled_back"]
        assert (said["log_level"], said["domain"], said["reason"]) == ("error", "edge", entry.why)
        assert root.plane.stats.rollouts[RolloutEnd.ROLLED_BACK] == 1

    play(scene)


def test_a_step_is_not_taken_of_a_rollout_that_somebody_ended_meanwhile(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), now=True)
        await root.change(put("ann", 4))
        root.clock.advance(60_000)
        root.plane.after_next_read = lambda: root.service.rollback(pb.RollbackRequest(), OPS)
        await root.carrying.look()
        assert (root.records(), root.records(RecordKind.STAGED)) == ({"ann": 5}, {})

    play(scene)


def test_a_follower_that_is_behind_holds_it_and_is_named(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5))
        root.report("n1", index=0)
        await root.pass_s(25)
        root.report("n1", index=0)
        await root.pass_s(25)
        root.report("n1", index=0)
        await root.pass_s(20)
        status = await root.service.status(pb.StatusRequest(), OPS)
        assert (status.rollouts[0].share, status.rollouts[0].waits_for) == (10_000, "n1 (at entry 0)")
        root.report("n1")
        await root.pass_s(1)
        assert root.rollouts()[0]["share"] == 100_000

    play(scene)


# Halt, rollback and shadow


def test_halt_holds_and_resume_lets_go_on(play: Play) -> None:
    async def scene(root: Root) -> None:
        with pytest.raises(Misconfigured, match="edge: no rollout is under way"):
            await root.service.halt(pb.HaltRequest(domain="edge"), OPS)
        await root.change(put("ann", 5), put("ann", 5, "api"))
        answer = await root.service.halt(pb.HaltRequest(domain="edge", why="wait"), OPS)
        assert [(one.domain, one.halted) for one in answer.rollouts] == [("edge", True)]
        await root.pass_s(70)
        assert root.rollouts()[0]["share"] == 10_000
        assert root.records(RecordKind.STAGED, "api")[OWN]["share"] == 100_000
        await root.service.halt(pb.HaltRequest(resume=True), OPS)
        await root.pass_s(1)
        assert root.rollouts()[0]["share"] == 100_000

    play(scene)


def test_rollback_during_a_rollout_cancels_it(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), now=True)
        await root.change(put("ann", 4))
        await root.pass_s(61)
        await root.service.shadow(pb.ShadowRequest(domain="edge", for_ms=600_000), OPS)
        await root.service.rollback(pb.RollbackRequest(why="undo"), OPS)
        assert (root.records()["ann"], root.records(RecordKind.STAGED)) == (5, {})
        assert root.records(RecordKind.SHADOW), "shadows stay"
        assert root.plane.stats.rollouts[RolloutEnd.CANCELLED] == 1

    play(scene)


def test_rollback_after_a_rollout_undoes_what_came_of_it(play: Play) -> None:
    async def scene(root: Root) -> None:
        before = (await root.change(put("ann", 5), put("bob", 5), now=True)).position.version
        await root.change(put("ann", 4))
        await root.pass_s(180)
        assert root.records()["ann"] == 4
        answer = await root.service.rollback(pb.RollbackRequest(), OPS)
        assert (root.records()["ann"], answer.position.version) == (5, before)

    play(scene)


def test_rollback_of_a_new_domain_leaves_nothing_of_it(play: Play) -> None:
    """Undone is the entry that somebody asked for, with all that the plane did for it since."""

    async def scene(root: Root) -> None:
        await root.change(put("ann", 5))
        await root.pass_s(180)
        assert root.records() == {OWN: {}, "ann": 5}
        await root.service.rollback(pb.RollbackRequest(), OPS)
        assert root.records() == {}

    play(scene)


def test_only_those_who_may_change_a_domain_hold_its_rollout(play: Play, tmp_path: Path) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), put("ann", 5, "api"))
        (tmp_path / "rights").write_text("ops=change:edge\n")
        service = RulesService(root.plane, RightsFile(str(tmp_path / "rights"), LOG), LOG)
        await service.halt(pb.HaltRequest(domain="edge"), OPS)
        for refused in (
            service.halt(pb.HaltRequest(domain="api"), OPS),
            service.halt(pb.HaltRequest(), OPS),
            service.shadow(pb.ShadowRequest(domain="api", for_ms=1_000), OPS),
        ):
            with pytest.raises(Forbidden, match="ops=change:api"):
                await refused

    play(scene)


def test_rollback_to_a_version_ends_rollouts_of_what_was_changed_since(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), put("ann", 5, "api"), now=True)
        await root.change(put("ann", 4, "api"))
        target = (await root.change(put("ann", 6))).position.version
        await root.change(put("ann", 4))
        await root.change(put("bob", 1), now=True)
        await root.service.rollback(pb.RollbackRequest(version=target), OPS)
        assert (root.records(), root.records(RecordKind.STAGED)) == ({"ann": 6}, {})
        assert root.records(RecordKind.STAGED, "api"), "nothing of it was changed since"

    play(scene)


def test_a_shadow_begins_at_once_and_ends_by_itself(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), now=True)
        request = pb.ShadowRequest(
            domain="edge", path=[pb.Step(key="user", value="ann")], for_ms=60_000, why="stop denying"
        )
        assert (await root.service.shadow(request, OPS)).changed == 1
        (shadow,) = (await root.service.status(pb.StatusRequest(), OPS)).shadows
        assert (shadow.until_ms, shadow.who, shadow.why) == (1_060_000, "ops", "stop denying")
        await root.pass_s(59)
        assert root.records(RecordKind.SHADOW)
        await root.pass_s(1)
        assert root.records(RecordKind.SHADOW) == {}
        assert (root.history()[0].who, root.history()[0].carries_on) == ("plane", 2)
        await root.service.shadow(request, OPS)
        assert (await root.service.shadow(pb.ShadowRequest(domain="edge", path=request.path), OPS)).changed == 1
        assert root.records(RecordKind.SHADOW) == {}

    play(scene)


def test_a_shadow_over_nothing_is_refused(play: Play) -> None:
    async def scene(root: Root) -> None:
        await root.change(put("ann", 5), now=True)
        steps = [pb.Step(key="user", value="anm")]
        with pytest.raises(Misconfigured, match="edge: there is no rule user=anm"):
            await root.service.shadow(pb.ShadowRequest(domain="edge", path=steps, for_ms=1_000), OPS)
        with pytest.raises(Misconfigured, match="there is no domain 'edgy'"):
            await root.service.shadow(pb.ShadowRequest(domain="edgy", for_ms=1_000), OPS)
        with pytest.raises(BadRequest, match="a shadow lasts up to"):
            await root.service.shadow(pb.ShadowRequest(domain="edge", for_ms=10**12), OPS)

    play(scene)
