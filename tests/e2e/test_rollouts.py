"""Rollouts at a real root, by the commands that operators type: stages, a change that is taken back, the red button."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.headgate import Headgate, run, write_rules
from tests.support.plane import CountingFollower, PlaneSite, free_address
from tests.support.waiting import wait_until

EDGE = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 5}}\n"
SQUEEZE = ("put", "--domain", "edge", "user=acme", "--limit", "1/year")
QUICK = ("--rollout-stages", "10%,50%", "--rollout-stage-s", "1")
LONG = ("--rollout-stage-s", "3600")


class Site(PlaneSite):
    """A site with one root."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.root = free_address()

    def ask(self, *arguments: str) -> tuple[int, str]:
        return self.rules(self.root, *arguments)

    def lines(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        status, output = self.ask(*arguments, "--json")
        return status, [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", EDGE, "edge.yaml")


@pytest.fixture
def long(site: Site, rules: Path) -> Iterator[Headgate]:
    """A root that has rules, and on which no stage ends by itself."""
    with site.plane("root", site.root, *LONG) as process:
        assert site.ask("publish", str(rules), "--now")[0] == 0
        yield process


def test_a_change_goes_through_its_stages_and_its_command_says_so(site: Site, rules: Path) -> None:
    with site.plane("root", site.root, *QUICK) as root, CountingFollower(site.root):
        status, output = site.ask("publish", str(rules), "--follow", "--why", "first")
        assert status == 0, output
        told = [line for line in output.splitlines() if line.startswith("edge: ")]
        shares = [line.split(" at ")[1].split(" of ")[0] for line in told[:-1]]
        assert shares in (["10%", "50%"], ["50%"]), "a slow machine may be late for the first"
        assert told[-1].startswith("edge: in force for everybody: all stages passed: denied 0 of 0")
        status, lines = site.lines(*SQUEEZE, "--follow")
        assert (status, [line.get("share") for line in lines[-2:]]) == (0, ["50%", None])
        assert (lines[0]["changed"], lines[-1]["outcome"], lines[-1]["who"]) == (1, "done", "plane")
        entries = site.rules_json(site.root, "history")
        assert [(entry["who"], entry["carries_on"]) for entry in entries] == [
            *[("plane", 4)] * 2,
            ("ops", 0),
            *[("plane", 1)] * 2,
            ("ops", 0),
        ]
        assert "plane for 4: edge" in site.ask("history")[1]
        lines_of_metrics = root.get("/metrics").body.decode().splitlines()
        (done,) = [line for line in lines_of_metrics if "rollouts_total" in line and 'outcome="done"' in line]
        assert float(done.split()[-1]) == 2


def test_a_change_that_denies_too_much_is_rolled_back_by_the_plane(site: Site, long: Headgate) -> None:
    with CountingFollower(site.root) as follower:
        follower.counts = {"staged_decided": 1_000, "staged_denied": 30, "base_decided": 9_000, "base_denied": 90}
        status, output = site.ask(*SQUEEZE, "--follow", "--why", "a typo")
        assert (status, "edge: rolled back by the plane: denies 2% more than" in output) == (1, True), output
        event = long.wait_for_event("rollout_rolled_back")
        assert (event["level"], event["domain"], event["who"]) == ("error", "edge", "ops")
        assert site.ask(*SQUEEZE, "--expect-denials", "2%")[0] == 0
        wait_until(lambda: _rollouts(site)[0]["staged"]["decided"] == 1_000, "the counts")
        assert _rollouts(site)[0]["expect_denials"] == "2%", "as much as was said is not too much"


def test_one_at_a_time_and_what_is_said_with_now_goes_into_both(site: Site, long: Headgate) -> None:
    status, output = site.ask(*SQUEEZE, "--why", "ticket 1")
    assert (status, "edge: 1 changes by ops (ticket 1) at 1% of 1%, 10%, 50%, 100%" in output) == (0, True), output
    status, output = site.ask("put", "--domain", "edge", "user=evil", "--limit", "1/year")
    assert (status, "a rollout is under way, by ops, ticket 1: at 1%, since entry 2" in output) == (2, True), output
    assert site.ask("put", "--domain", "edge", "user=evil", "--limit", "0/year", "--now")[0] == 0
    assert len(_rollouts(site)) == 1
    assert site.ask("halt", "--why", "wait")[0] == 0
    assert _rollouts(site)[0]["halted"] is True
    assert site.ask("halt", "--domain", "edge", "--resume")[0] == 0
    assert "halted" not in site.ask("status")[1]
    assert site.ask("rollback", "--why", "over")[0] == 0
    assert _rollouts(site) == []


def test_the_red_button(site: Site, long: Headgate) -> None:
    assert site.ask("shadow", "--domain", "edge", "--for", "10m", "--why", "incident 17")[0] == 0
    output = site.ask("status")[1]
    assert "edge: all rules in shadow until " in output
    assert ", by ops (incident 17)" in output
    assert site.ask("shadow", "--domain", "edge", "--end")[0] == 0
    assert site.ask("shadow", "--domain", "edge", "user=", "--for", "1s")[0] == 0
    wait_until(lambda: "in shadow" not in site.ask("status")[1], "the shadow to end")
    assert site.rules_json(site.root, "history")[0]["who"] == "plane"
    status, output = site.ask("shadow", "--domain", "edgy", "--for", "10m")
    assert (status, "there is no domain 'edgy'" in output) == (2, True), output


def test_a_rollout_goes_on_after_its_root_was_restarted(site: Site, rules: Path) -> None:
    with site.plane("root", site.root, *LONG):
        site.ask("publish", str(rules), "--now")
        site.ask(*SQUEEZE)
        assert _rollouts(site)[0]["share"] == "1%"
    with site.plane("root", site.root, *LONG):
        assert _rollouts(site)[0]["share"] == "1%"


@pytest.mark.parametrize("share", ["2", "101%", "-1%", "x"])
def test_a_share_that_is_none_is_refused(share: str) -> None:
    done = run("rules", *SQUEEZE, f"--expect-denials={share}")
    assert done.returncode == 2
    assert "expected a percentage from 0% to 100%, like 5% or 0.5%" in done.stderr


def _rollouts(site: Site) -> list[dict[str, Any]]:
    status, output = site.ask("status", "--json")
    assert status in (0, 1), output
    rollouts: list[dict[str, Any]] = json.loads(output)["rollouts"]
    return rollouts
