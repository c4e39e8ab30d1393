"""The age of rules in a real process: what the alerts at 30 s and 60 s look at, and what they don't."""

import os
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.headgate import Headgate, serve, write_rules
from tests.support.waiting import wait_until


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules")


def gauge(headgate: Headgate, name: str) -> float:
    for family in text_string_to_metric_families(headgate.get("/metrics").body.decode()):
        for sample in family.samples:
            if sample.name == name:
                return sample.value
    raise AssertionError(f"no {name}")


def age_s(headgate: Headgate) -> float:
    return time.time() - gauge(headgate, "headgate_rules_last_look_timestamp_seconds")


@pytest.mark.parametrize("alert_at_s", [2.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_the_age_grows_while_the_directory_is_gone(rules: Path, alert_at_s: float) -> None:
    with serve(rules) as headgate:
        wait_until(lambda: age_s(headgate) < 1, "a look at the directory")
        os.rename(rules, rules.with_name("away"))
        headgate.wait_for_event("rules_not_delivered")
        wait_until(lambda: age_s(headgate) > alert_at_s, "the age to grow", timeout_s=alert_at_s + 10)
        assert gauge(headgate, "headgate_rules_loading") == 0
        assert headgate.get("/readyz").status == 200, "it serves on"
        os.rename(rules.with_name("away"), rules)
        wait_until(lambda: age_s(headgate) < 1, "a look at the directory that came back")
        wait_until(lambda: gauge(headgate, "headgate_rules_in_sync") == 1, "to be in sync")


def test_a_set_that_is_refused_is_another_alert_s_matter(rules: Path) -> None:
    with serve(rules) as headgate:
        (rules / "bad.yaml").write_text("domain: bad\ndescriptors: [\n")
        wait_until(lambda: gauge(headgate, "headgate_rules_in_sync") == 0, "the refusal")
        assert gauge(headgate, "headgate_rules_refused_domains") == 1
        wait_until(lambda: age_s(headgate) < 1, "the age to stay low")
        (rules / "bad.yaml").unlink()
        wait_until(lambda: gauge(headgate, "headgate_rules_in_sync") == 1, "to be in sync")
