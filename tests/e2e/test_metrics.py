"""What a server shows of itself after a scripted run: exactly what it decided, as Prometheus' own tool reads it."""

import json
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from headgate_client import Client
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from tests.support.headgate import Headgate, http_request, run, serve
from tests.support.promtool import promtool
from tests.support.redis_servers import redis_shards, shards_url
from tests.support.waiting import PATIENCE_S, wait_until

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 20}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: open
    rate_limit: {unlimited: true}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    directory = tmp_path / "rules"
    directory.mkdir()
    (directory / "edge.yaml").write_text(RULES)
    return directory


def per_rule(headgate: Headgate) -> Counter[tuple[str, str]]:
    """Decisions by rule and result, of all workers and paths together."""
    found = Counter[tuple[str, str]]()
    for family in text_string_to_metric_families(headgate.get("/metrics").body.decode()):
        for sample in family.samples:
            if sample.name == "headgate_rule_decisions_total":
                found[sample.labels["rule"], sample.labels["result"]] += int(sample.value)
    return found


def scripted_run(headgate: Headgate) -> Counter[tuple[str, str]]:
    """Requests of all kinds, and what their callers were told of each rule."""
    told = Counter[tuple[str, str]]()
    with Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
        for number in range(60):
            user = f"u{number % 2}"
            admitted = client.should_rate_limit("edge", [{"user": user}]).admitted
            told["user", "within_limit" if admitted else "over_limit"] += 1
        for _ in range(9):
            assert client.should_rate_limit("edge", [{"watched": "x"}]).admitted
        for _ in range(3):
            assert client.should_rate_limit("edge", [{"open": "x"}, {"nothing": "x"}]).admitted
    told["watched", "within_limit"] = 5
    told["watched", "shadow_over_limit"] = 4
    told["open", "within_limit"] = told["(none)", "within_limit"] = 3
    return told


def test_a_scrape_after_a_scripted_run_equals_what_was_decided(rules: Path) -> None:
    with serve(rules) as headgate:
        told = scripted_run(headgate)
        assert told["user", "over_limit"] == 20
        assert per_rule(headgate) == told


def test_so_it_is_in_a_region_with_several_workers(rules: Path) -> None:
    flags = ("--workers", "2", "--drain-s", "0")
    with redis_shards(2) as servers, serve(rules, "--origin", shards_url(servers), *flags) as headgate:
        told = scripted_run(headgate)
        assert per_rule(headgate) == told
        assert headgate.stop() == 0


def test_promtool_finds_nothing_to_say(rules: Path) -> None:
    with redis_shards(1) as servers, serve(rules, "--origin", shards_url(servers)) as headgate:
        scripted_run(headgate)
        text = headgate.get("/metrics").body
    checked = subprocess.run([promtool(), "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_scraper_that_asks_for_openmetrics_gets_the_same(rules: Path) -> None:
    with serve(rules) as headgate:
        scripted_run(headgate)
        wanted = {"Accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"}
        answer = http_request(headgate.http, "GET", "/metrics", None, wanted)
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        families = {family.name: family for family in open_families(answer.body.decode())}  # type: ignore[no-untyped-call]
        assert families["target"].samples[0].labels["service_name"] == "headgate"
        decided = sum(sample.value for sample in families["headgate_decisions"].samples)
        assert decided == 72
        durations = families["headgate_decision_duration_seconds"].samples
        assert next(s.value for s in durations if s.name.endswith("_count")) == 72


def test_top_shows_the_heaviest_keys_of_all_workers(rules: Path) -> None:
    flags = ("--workers", "2", "--drain-s", "0")
    with redis_shards(1) as servers, serve(rules, "--origin", shards_url(servers), *flags) as headgate:
        scripted_run(headgate)
        shown = run("top", "--addr", headgate.http, "--once")
        assert shown.returncode == 0, shown.stderr
        assert "edge  user" in shown.stdout
        assert re.search(r"denied +10  user='u0'", shown.stdout)
        assert re.search(r"used .*watched='x'  \(0 of 5 left\)", shown.stdout)
        told = json.loads(run("top", "--addr", headgate.http, "--json").stdout)
        assert {rule["rule"] for rule in told["rules"]} == {"user", "watched"}
        assert headgate.stop() == 0


def test_sigusr1_switches_the_level_of_all_workers(rules: Path) -> None:
    flags = ("--workers", "2", "--drain-s", "0")
    with redis_shards(1) as servers, serve(rules, "--origin", shards_url(servers), *flags) as headgate:
        headgate.send(signal.SIGUSR1)

        def levels() -> list[str]:
            return [event["log_level"] for event in headgate.events if event["event"] == "log_level_changed"]

        wait_until(lambda: levels() == ["debug"] * 3, "the supervisor's line and the workers'")
        assert headgate.stop() == 0
