"""Planes of real processes: what is published reaches nodes, and what is lost, killed or refused takes nothing away."""

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import FREE_PORTS, Headgate, run, start, write_rules
from tests.support.plane import PlaneSite, free_address, limits
from tests.support.waiting import wait_until

EDGE = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 5}}\n"
API = "domain: api\ndescriptors:\n- {key: key, rate_limit: {unit: year, requests_per_unit: 7}}\n"


@pytest.fixture
def site(tmp_path: Path) -> PlaneSite:
    return PlaneSite(tmp_path / "site")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    write_rules(tmp_path / "rules", EDGE, "edge.yaml")
    return write_rules(tmp_path / "rules", API, "api.yaml")


def test_a_day_of_an_operator(site: PlaneSite, rules: Path) -> None:
    """Publish, squeeze, look, undo: through a relay, with who and why."""
    root, relay = free_address(), free_address()
    with (
        site.plane("root", root),
        site.plane("relay", relay, "--upstream", root),
        site.node("n1", relay, ready=False) as node,
    ):
        status, output = site.rules(root, "publish", str(rules), "--now", "--why", "first")
        assert (status, "4 changes" in output) == (0, True), output
        node.wait_ready()
        assert limits(node) == {"edge:user": 5, "api:key": 7}
        squeeze = ("put", "--domain", "edge", "user=acme", "--limit", "1/year", "--now", "--why", "squeeze")
        assert site.rules_json(root, *squeeze)["behind"] == []
        assert limits(node) == {"edge:user": 5, "edge:user=acme": 1, "api:key": 7}
        status, output = site.rules(root, "status")
        assert (status, "in force on 2 of 2 followers" in output) == (0, True), output
        told = site.status(root)
        assert (told["head"], sorted(told["domains"]), told["rollouts"]) == (2, ["api", "edge"], [])
        shown = [(one["node"], one["role"], one["index"], one["age_s"], one["refused"]) for one in told["nodes"]]
        assert shown == [("n1", "node", 2, 0.0, {}), ("relay", "relay", 2, 0.0, {})]
        assert site.rules(root, "rollback", "--why", "undo")[0] == 0
        assert limits(node) == {"edge:user": 5, "api:key": 7}
        entries = site.rules_json(root, "history")
        assert [(entry["who"], entry["why"], entry["domains"]) for entry in entries] == [
            ("ops", "undo", ["edge"]),
            ("ops", "squeeze", ["edge"]),
            ("ops", "first", ["api", "edge"]),
        ]
        assert entries[0]["version"] == entries[2]["version"] == entries[1]["predecessor"]
        wait_until(lambda: node.get("/readyz").json()["rules"]["in_sync"], "the node to be in sync")
        feed = node.get("/rules").json()["feed"]
        assert (feed["index"], feed["version"], feed["connected"]) == (3, entries[0]["version"], True)


def test_an_overlay_of_a_node_lies_over_a_plane_s_rules_and_over_each_change(site: PlaneSite, rules: Path) -> None:
    root, overlay = free_address(), rules.parent / "overlay"
    write_rules(overlay, "overlay:\n- {domain: edge, on_error: closed}\n", "edge.yaml")

    def policies(node: Headgate) -> dict[str, str]:
        told = node.get("/rules").json()["rules"]
        return {f"{rule['domain']}:{rule['rule']}": rule["limit"]["on_error"] for rule in told}

    with site.plane("root", root):
        site.rules(root, "publish", str(rules), "--now")
        with site.node("n1", root, "--rules-overlay", str(overlay)) as node:
            assert policies(node) == {"edge:user": "closed", "api:key": "local"}
            site.rules(root, "put", "--domain", "edge", "user=acme", "--limit", "1/year", "--now")
            wait_until(lambda: "edge:user=acme" in policies(node), "the change on the node")
            assert policies(node) == {"edge:user": "closed", "edge:user=acme": "closed", "api:key": "local"}


def test_a_domain_with_a_problem_is_refused_alone_and_by_name(site: PlaneSite, rules: Path) -> None:
    root = free_address()
    with site.plane("root", root):
        site.rules(root, "publish", str(rules), "--now")
        write_rules(rules, EDGE.replace("5", "6"), "edge.yaml")
        write_rules(rules, API.replace("year", "fortnight"), "api.yaml")
        status, output = site.rules(root, "publish", str(rules), "--now")
        assert status == 1
        assert f"{rules / 'api.yaml'}:3: `unit` must be" in output
        assert "entry 2" in output
        assert site.rules_json(root, "history")[0]["domains"] == ["edge"]
        bad = ("put", "--domain", "api", "key=x", "--rule", '{"rate_limit": {"unit": "day"}}')
        status, output = site.rules(root, *bad)
        assert (status, "api: key=x: rate_limit has no `requests_per_unit`" in output) == (1, True), output
        assert site.status(root)["head"] == 2


def test_a_change_to_another_head_than_expected_is_refused(site: PlaneSite, rules: Path) -> None:
    root = free_address()
    with site.plane("root", root):
        site.rules(root, "publish", str(rules), "--now")
        looked_at = site.status(root)["version"]
        put = ("put", "--domain", "edge", "user=a", "--limit", "1/day", "--now", "--expect", looked_at)
        assert site.rules(root, *put, "--why", "floods")[0] == 0
        status, output = site.rules(root, *put)
        assert (status, "FAILED_PRECONDITION" in output, looked_at in output) == (2, True, True), output
        assert "since then: entry 2 by ops, of edge (floods)" in output


MORE = "domain: edge\ndescriptors:\n- {key: tenant, value: t1, rate_limit: {unit: day, requests_per_unit: 9}}\n"


def test_changes_from_a_file_are_one_entry(site: PlaneSite, tmp_path: Path) -> None:
    root = free_address()
    rule = {"rate_limit": {"unit": "day", "requests_per_unit": 5}}
    lines = [{"domain": "edge", "path": [["tenant", f"t{number}"]], "rule": rule} for number in range(500)]
    file = tmp_path / "tenants.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with site.plane("root", root), site.node("n1", root, ready=False) as node:
        assert site.rules_json(root, "put", "--now", str(file))["changed"] == 500
        node.wait_ready()
        assert node.get("/rules").json()["total"] == 500
        assert site.rules_json(root, "put", "--now", str(file))["changed"] == 0
        rules = write_rules(tmp_path / "more", MORE) / "edge.yaml"
        assert site.rules_json(root, "put", "--now", str(rules))["changed"] == 1, "a rules file, of which others stay"
        assert site.rules(root, "put", "user=ann", "--limit", "1/day")[1].count("a rule is named with --domain D") == 1
        assert site.rules_json(root, "delete", "--now", str(file))["index"] == 3


def test_only_those_who_may_change_a_domain_do(site: PlaneSite, rules: Path) -> None:
    root = free_address()
    site.rights = "ops=change:*\nnode=watch\nbilling=change:edge\n"
    with site.plane("root", root) as process:
        assert site.rules(root, "publish", str(rules), "--now")[0] == 0
        edge = ("put", "--domain", "edge", "user=a", "--limit", "1/day", "--now")
        assert site.rules(root, *edge, who="billing")[0] == 0
        status, output = site.rules(root, "put", "--domain", "api", "key=a", "--limit", "1/day", "--now", who="billing")
        assert (status, "PERMISSION_DENIED" in output, "billing=change:api" in output) == (2, True, True), output
        assert site.rules(root, *edge, who="node")[0] == 2
        assert site.rules(root, "status", who="node")[0] == 0
        site.rules(root, "put", "--domain", "api", "key=b", "--limit", "1/day", "--now")
        assert "'api'" in site.rules(root, "rollback", who="billing")[1], "the last entry was not of its domain"
        changed = [event for event in process.events if event["event"] == "rules_changed"]
        assert [event["who"] for event in changed] == ["ops", "billing", "ops"]
        (site.directory / "other").write_text("ops=wrong\n")
        site.tokens["ops"] = site.directory / "other"
        assert "UNAUTHENTICATED" in site.rules(root, "status")[1]


def test_certificates_say_who_it_is(site: PlaneSite, rules: Path, tmp_path: Path) -> None:
    """Nodes and operators are known by their certificates' names, and have the rights of these."""
    ca = authority("plane")
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem)
    for name in ("server", "ann", "n1", "mallory"):
        issued_by(authority("others") if name == "mallory" else ca, name, name).write(tmp_path, name)
    (tmp_path / "rights").write_text("ann=change:*\nn1=watch\n")
    root, here = free_address(), {name: str(tmp_path / name) for name in ("ca.pem", "rights", "server", "n1")}
    listens = (
        *("--data-dir", str(tmp_path / "root"), "--http", "127.0.0.1:0", "--admin-grpc", root),
        *("--admin-tls-cert", f"{here['server']}.crt", "--admin-tls-key", f"{here['server']}.key"),
        *("--admin-tls-client-ca", here["ca.pem"], "--plane-rights-file", here["rights"]),
    )
    follows = (
        *("--rules", f"plane://{root}", "--plane-tls", "--plane-ca", here["ca.pem"], "--plane-server-name", "server"),
        *("--plane-cert", f"{here['n1']}.crt", "--plane-key", f"{here['n1']}.key", "--drain-s", "0"),
    )

    def publish(name: str) -> tuple[int, str]:
        shown = ("--tls-cert", f"{tmp_path / name}.crt", "--tls-key", f"{tmp_path / name}.key")
        tls = ("--addr", root, "--tls-ca", here["ca.pem"], "--tls-server-name", "server", *shown)
        done = run("rules", "publish", str(rules), "--now", *tls)
        return done.returncode, done.stdout + done.stderr

    with start("plane", *listens) as plane:
        plane.wait_for_event("plane_serving")
        with start("serve", *follows, *FREE_PORTS) as node:
            assert publish("mallory")[0] == 2
            assert "PERMISSION_DENIED" in publish("n1")[1]
            assert publish("ann")[0] == 0
            node.wait_ready()
            assert limits(node) == {"edge:user": 5, "api:key": 7}
        assert [event["who"] for event in plane.events if event["event"] == "rules_changed"] == ["ann"]


def test_everything_restarts_and_nothing_is_lost(site: PlaneSite, rules: Path) -> None:
    """The root is killed, then the relay, then the node: who has rules goes on with them, and catches up later."""
    root, relay = free_address(), free_address()
    with site.plane("root", root) as first:
        site.rules(root, "publish", str(rules), "--now")
        with (
            site.plane("relay", relay, "--upstream", root) as relay_process,
            site.node("n1", relay) as node,
        ):
            first.send(signal.SIGKILL)
            first.wait_exit()
            wait_until(
                lambda: relay_process.get("/readyz").json()["plane"]["connected"] is False, "the relay to notice"
            )
            with site.node("n2", relay) as late:
                assert limits(late) == limits(node), "a relay serves its region while the root is gone"
            node.send(signal.SIGKILL)
            node.wait_exit()
            relay_process.send(signal.SIGKILL)
            relay_process.wait_exit()
        with site.node("n1", relay) as alone:
            assert limits(alone) == {"edge:user": 5, "api:key": 7}, "a node serves while nobody is there"
            with site.plane("root", root), site.plane("relay", relay, "--upstream", root):
                site.rules(root, "put", "--domain", "edge", "user=x", "--limit", "1/year", "--now", "--wait", "0")
                wait_until(lambda: "edge:user=x" in limits(alone), "the node to catch up")
                assert alone.get("/rules").json()["feed"]["index"] == 2


KILLED = """
import os, signal, sys
from headgate.{module} import {owner}
from headgate.cli import main

{owner}.{method} = lambda *given: given[-1] and os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "owner", "method", "then"),
    [
        ("plane.rule_log", "RuleLog", "take", {}),
        ("rules.on_disk", "RulesOnDisk", "append", {"edge:user=x": 1}),
    ],
    ids=["before its copy has the entry", "after that, before the rules are saved"],
)
def test_a_node_that_is_killed_in_a_change_has_rules_that_were_published(
    site: PlaneSite, rules: Path, module: str, owner: str, method: str, then: dict[str, int]
) -> None:
    root = free_address()
    before = {"edge:user": 5, "api:key": 7}
    put = ("put", "--domain", "edge", "user=x", "--limit", "1/year", "--now", "--wait", "0")
    with site.plane("root", root):
        site.rules(root, "publish", str(rules), "--now")
        with site.node("n1", root) as node:
            assert limits(node) == before
        program = (sys.executable, "-c", KILLED.format(module=module, owner=owner, method=method))
        with site.node("n1", root, program=program) as killed:
            site.rules(root, *put)
            assert killed.wait_exit() == -signal.SIGKILL
    with site.node("n1", root) as alone:
        wait_until(lambda: limits(alone) == before | then, "the rules of the copy, while the plane is away")
        with site.plane("root", root):
            wait_until(lambda: limits(alone) == before | {"edge:user=x": 1}, "the node to catch up")


def test_a_new_node_behind_a_new_relay_never_has_rules_that_were_over_when_it_came(
    site: PlaneSite, rules: Path
) -> None:
    root, relay = free_address(), free_address()
    with site.plane("root", root):
        site.rules(root, "publish", str(rules), "--now")
        for limit in range(1, 6):
            site.rules(root, "put", "--domain", "edge", "user=acme", "--limit", f"{limit}/minute", "--now")
        head = site.rules_json(root, "status")["version"]
        with site.plane("relay", relay, "--upstream", root), site.node("n1", relay) as node:
            assert node.get("/rules").json()["digest"] == head
            versions = [event["version"] for event in node.events if event.get("source") == "plane"]
            assert [version.partition("-")[2] for version in versions] == [head[:12]]


def test_a_relay_is_made_the_root_when_the_root_is_lost(site: PlaneSite, rules: Path) -> None:
    root, relay = free_address(), free_address()
    with site.plane("root", root), site.plane("relay", relay, "--upstream", root):
        site.rules(root, "publish", str(rules), "--now")
        with site.node("n0", relay):
            pass
        assert "this is a relay" in site.rules(relay, "rollback")[1]
    with site.node("n1", f"{root},{relay}", ready=False) as node, site.plane("relay", relay, "--promote"):
        node.wait_ready()
        assert site.rules(relay, "put", "--domain", "edge", "user=x", "--limit", "1/year", "--now")[0] == 0
        assert limits(node)["edge:user=x"] == 1
    with site.plane("relay", relay), site.node("n1", relay) as node:
        assert limits(node)["edge:user=x"] == 1, "it is the root from now on, without being told again"


def test_a_copy_is_not_taken_for_the_root_by_accident(site: PlaneSite, rules: Path) -> None:
    root, relay = free_address(), free_address()
    with site.plane("root", root), site.plane("relay", relay, "--upstream", root) as process:
        site.rules(root, "publish", str(rules), "--now")
        wait_until(lambda: process.get("/readyz").status == 200, "the relay to have rules")
    with pytest.raises(AssertionError, match="--promote"), site.plane("relay", relay):
        pass


def test_a_plane_that_stands_still_is_noticed_and_heard_again(site: PlaneSite, rules: Path) -> None:
    root = free_address()
    with site.plane("root", root) as process, site.node("n1", root, ready=False) as node:
        site.rules(root, "publish", str(rules), "--now")
        node.wait_ready()
        wait_until(lambda: node.get("/rules").json()["in_sync"], "the node to be in sync")
        process.send(signal.SIGSTOP)
        wait_until(lambda: not node.get("/rules").json()["in_sync"], "the node to notice")
        looked_at = node.get("/rules").json()["feed"]["looked_at"]
        process.send(signal.SIGCONT)
        wait_until(lambda: node.get("/rules").json()["in_sync"], "the node to be in sync again")
        wait_until(lambda: node.get("/rules").json()["feed"]["looked_at"] > looked_at, "a later look")
