"""Why was I denied? With real processes: a server that is killed, one that runs, a shipper that reads stdout."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from headgate_client import Headgate

from tests.support.headgate import Headgate as Process
from tests.support.headgate import run, serve, write_rules
from tests.support.redis_servers import free_port
from tests.support.waiting import wait_until
from tests.support.workers import scrape

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 5}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "admins"
    path.write_text("alice=token-of-alice\n")
    return path


def ask(address: str, user: str, times: int, *, cost: int = 1) -> list[Any]:
    with Headgate(address, "edge", timeout=5, on_error="raise") as client:
        return [client.check([{"user": user}], cost=cost) for _ in range(times)]


def explain(*arguments: str) -> tuple[int, Any]:
    ended = run("explain", "--json", *arguments)
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else ended.stderr


def test_after_a_kill_the_log_still_says_why(rules: Path, tmp_path: Path) -> None:
    """From the data directory alone: the process is gone without a word, and the rules are others."""
    data_dir = tmp_path / "data"
    with serve(rules, "--data-dir", str(data_dir), "--reason-metadata", "true") as headgate:
        ask(headgate.grpc, "ann", 5)
        (denied,) = ask(headgate.grpc, "ann", 1)
        assert not denied.allowed
        wait_until(
            lambda: explain("--data-dir", str(data_dir), "--id", denied.id)[0] == 0, "it is on disk", every_s=0.5
        )
        os.kill(headgate.process.pid, signal.SIGKILL)
        headgate.process.wait()
    write_rules(rules, RULES.replace("5}", "500}"))
    (segment,) = (data_dir / "decisions").glob("*.hgd")
    with segment.open("ab") as file:
        file.write(b"HGD1 and then the machine went down")
    status, answer = explain("--data-dir", str(data_dir), "--domain", "edge", "user=ann")
    assert status == 0
    assert (answer["outcome"], answer["cause"]) == ("denied", "own_usage")
    assert answer["decision"]["id"] == denied.id
    assert (denied.rule, denied.path) == (answer["decision"]["rule"], answer["decision"]["path"])
    assert answer["decision"]["counted"]["own"] == 5
    assert answer["log"]["skipped_bytes"] > 0


def test_rules_that_change_while_it_serves_are_named(rules: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serve(rules, "--data-dir", str(data_dir)) as headgate:
        ask(headgate.grpc, "ann", 4)
        write_rules(rules, RULES.replace("5}", "2}"))
        wait_until(lambda: headgate.get("/readyz").json()["rules"]["version"].startswith("2-"), "the new rules")
        assert not ask(headgate.grpc, "ann", 1)[0].allowed
        assert headgate.stop() == 0
    status, answer = explain("--data-dir", str(data_dir), "--domain", "edge", "user=ann")
    assert (status, answer["cause"]) == (0, "limit_lowered")
    assert (answer["causes"][0]["limit_before"], answer["causes"][0]["limit"]) == (5, 2)


def test_a_running_server_is_asked_and_followed(rules: Path, tokens: Path, tmp_path: Path) -> None:
    flags = ("--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(tokens), "--data-dir", str(tmp_path / "data"))
    with serve(rules, *flags, "--decision-log-values", "true") as headgate:
        admin = headgate.wait_for_event("serving")["admin_grpc"]
        server = ("--addr", admin, "--token-file", str(tokens), "--timeout", "30")
        seen: list[str] = []

        def follow() -> None:
            ended = run("tail", *server, "--denied", "user=ann", "--domain", "edge", "--count", "2")
            seen.extend(ended.stdout.splitlines())

        follower = threading.Thread(target=follow)
        follower.start()

        def denied_once_more() -> bool:
            ask(headgate.grpc, "ann", 6)
            ask(headgate.grpc, "bob", 1)
            follower.join(0.5)
            return not follower.is_alive()

        wait_until(denied_once_more, "two denials to be followed")
        assert len(seen) == 2
        assert all("DENIED edge user user=ann" in line for line in seen)

        question = ("--domain", "edge", "user=ann")
        status, answer = explain(*server, *question)
        assert (status, answer["cause"]) == (0, "own_usage")
        # Others that do not answer are said, and do no harm.
        host, _, port = admin.rpartition(":")
        both = run("explain", "--json", "--addr", f"dns:///{host}:{port},127.0.0.1:1", *server[2:], *question)
        assert both.returncode == 0
        assert "127.0.0.1:1" in both.stderr
        nobody = run("explain", "--addr", "127.0.0.1:1", *server[2:], *question)
        assert nobody.returncode == 2
        stranger = run("explain", "--addr", admin, *question)
        assert (stranger.returncode, "UNAUTHENTICATED" in stranger.stderr) == (2, True)


def test_an_override_is_named_with_who_made_it(rules: Path, tokens: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    flags = ("--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(tokens), "--data-dir", str(data_dir))
    with serve(rules, *flags) as headgate:
        admin = headgate.wait_for_event("serving")["admin_grpc"]
        change = ("--limit", "1", "--until", "1h", "--why", "abuse")
        server = ("--addr", admin, "--token-file", str(tokens), "--timeout", "30")
        assert run("key", "override", *server, "--domain", "edge", "user=ann", *change).returncode == 0
        assert [decision.allowed for decision in ask(headgate.grpc, "ann", 2)] == [True, False]
        assert headgate.stop() == 0
    status, answer = explain("--data-dir", str(data_dir), "--domain", "edge", "user=ann")
    assert (status, answer["cause"]) == (0, "override")
    cause = answer["causes"][0]
    assert (cause["stated"], cause["enforced"], cause["who"], cause["why"]) == (5, 1, "alice", "abuse")


SHARED = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 10, scope: global}
"""


def by_peer(node: Process, metric: str) -> float:
    return sum(value for (name, _), value in scrape(node).items() if name == metric)


def is_unreached(node: Process, region: str) -> bool:
    """By the last that it said of it: while the other one was not there yet it could not be reached either."""
    said = [event["event"] for event in node.events if event.get("region") == region]
    return [event for event in said if event in ("peer_failed", "peer_connected")][-1:] == ["peer_failed"]


def test_what_another_region_used_is_named_and_that_it_can_no_longer_be_reached(tmp_path: Path) -> None:
    """Two regions, one of which goes away; then the other one stops as well, and the rules are others."""
    rules, data_dir = write_rules(tmp_path / "rules", SHARED), tmp_path / "data"
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    common = ("--exchange-insecure", "--exchange-interval-s", "0.1", "--origin-deadline-ms", "1000")
    eu = ("--region", "eu", "--peer", f"us={there}", "--exchange", here, "--data-dir", str(data_dir), *common)
    us = ("--region", "us", "--peer", f"eu={here}", "--exchange", there, *common)
    with serve(rules, *eu) as node:
        with serve(rules, *us) as other:
            ask(other.grpc, "ann", 1, cost=8)
            wait_until(lambda: by_peer(node, "headgate_peer_received_entries_total"), "the eight to be told")
            assert [decision.allowed for decision in ask(node.grpc, "ann", 3)] == [True, True, False]
            assert other.stop() == 0
        wait_until(lambda: is_unreached(node, "us"), "the other one to be unreached")
        assert not ask(node.grpc, "ann", 1)[0].allowed
        assert node.stop() == 0
    write_rules(rules, RULES)
    status, answer = explain("--data-dir", str(data_dir), "--domain", "edge", "user=ann")
    assert (status, answer["outcome"], answer["cause"]) == (0, "denied", "foreign_usage")
    counted = answer["decision"]["counted"]
    assert (counted["own"], counted["others"], counted["foreign"]) == (2, 0, 8)
    assert "us" in [one["region"] for one in answer["in_progress"] if one["kind"] == "region_unreached"]
