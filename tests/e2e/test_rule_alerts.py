"""Alerts on rules fire on what real processes show: a stream that is lost, and a set that is refused.

The long form waits for the alerts as they are; the short one for the same, of times that are ten times shorter.
"""

from pathlib import Path

import pytest
from headgate.plane.database import Sqlite
from headgate.plane.entry import RuleChange
from headgate.plane.rule_log import Author, RuleLog

from tests.support.alerts import ALERTS, Scrapes, quicker
from tests.support.headgate import serve, write_rules
from tests.support.plane import PlaneSite, free_address

LIMIT = b'{"rate_limit":{"unit":"year","requests_per_unit":5}}'
NEWER = b'{"rate_limit":{"unit":"year","requests_per_unit":5},"teapot":true}'
"""A rule of a later version of the program: it has a field that this one does not know."""

pytestmark = pytest.mark.debian


@pytest.fixture(params=[10, pytest.param(1, marks=pytest.mark.long)])
def alerts(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / "alerts.yaml"
    file.write_text(ALERTS.read_text() if request.param == 1 else quicker(ALERTS.read_text(), request.param))
    return file


@pytest.fixture
def site(tmp_path: Path) -> PlaneSite:
    return PlaneSite(tmp_path / "site")


def test_a_stream_that_is_lost_is_noticed_on_the_node_and_at_the_relay(
    site: PlaneSite, alerts: Path, tmp_path: Path
) -> None:
    root, below = free_address(), free_address()
    rules = write_rules(tmp_path / "rules")
    wanted = ("HeadgatePlaneRelayCutOff", "HeadgateRulesNotDelivered", "HeadgateRulesNotDeliveredForLong")
    with site.plane("relay", below, "--upstream", root) as relay, site.plane("root", root) as first:
        site.rules(root, "publish", str(rules), "--now")
        with site.node("n1", below) as node:
            scrapes = Scrapes({"relay": relay, "n1": node})
            scrapes.until_quiet(wanted, alerts)
            first.process.kill()
            for alert in wanted:
                scrapes.until_fires(alert, alerts, 120)
            assert node.get("/readyz").status == 200, "it serves on"
            assert "HeadgateRulesRefused" not in scrapes.firing(["HeadgateRulesRefused"], alerts)
            with site.plane("root", root):
                scrapes.until_quiet(wanted, alerts)


def test_a_domain_that_a_node_cant_take_is_noticed_at_the_plane_and_as_age(site: PlaneSite, alerts: Path) -> None:
    root = free_address()
    author = Author("ops", "", 1)
    wanted = ("HeadgatePlaneFollowersRefuse", "HeadgateRulesNotDelivered")
    log = RuleLog(Sqlite(site.directory / "root"))
    log.name("a")
    log.change([RuleChange("edge", (("user", ""),), LIMIT)], author)
    log.close()
    with site.node("n1", root, ready=False) as node:
        with site.plane("root", root) as plane:
            scrapes = Scrapes({"root": plane, "n1": node.wait_ready()})
            scrapes.until_quiet(wanted, alerts)
        # A root of a later version writes what this node does not know, and is gone again.
        log = RuleLog(Sqlite(site.directory / "root"))
        log.change([RuleChange("edge", (("user", "acme"),), NEWER)], author)
        log.close()
        with site.plane("root", root) as plane:
            scrapes.processes["root"] = plane
            for alert in wanted:
                scrapes.until_fires(alert, alerts, 120)
            site.rules(root, "rollback", "--why", "a node can't take it", "--wait", "0")
            scrapes.until_quiet(wanted, alerts)


def test_a_file_with_a_mistake_is_noticed_as_refused_and_not_as_age(alerts: Path, tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules")
    with serve(rules) as node:
        scrapes = Scrapes({"n1": node})
        scrapes.until_quiet(["HeadgateRulesRefused"], alerts)
        write_rules(rules, "domain: bad\ndescriptors: [\n", "bad.yaml")
        scrapes.until_fires("HeadgateRulesRefused", alerts, 120)
        assert scrapes.firing(["HeadgateRulesNotDelivered"], alerts) == set()
        (rules / "bad.yaml").unlink()
        scrapes.until_quiet(["HeadgateRulesRefused"], alerts)
