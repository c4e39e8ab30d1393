"""Why, in Envoy's own access log: as docs/explain.md and the examples print it."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.support.envoy import DIRECTORY, run_envoy
from tests.support.envoy_config import header_limit, http_config, route
from tests.support.examples import EXAMPLES
from tests.support.headgate import run, serve, write_rules
from tests.support.waiting import wait_until

ROUTES = [route("/", limits=[header_limit("user")])]
RULES = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n"


def hcm(config: dict[str, Any]) -> dict[str, Any]:
    """The front listener's connection manager."""
    (front,) = [item for item in config["static_resources"]["listeners"] if item["name"] == "front"]
    manager: dict[str, Any] = front["filter_chains"][0]["filters"][0]["typed_config"]
    return manager


def example_access_log() -> list[dict[str, Any]]:
    """That of examples/envoy/tcp.yaml, into a file of ours."""
    (log,) = hcm(yaml.safe_load((EXAMPLES / "envoy" / "tcp.yaml").read_text()))["access_log"]
    written = log["typed_config"]
    assert written.pop("@type").endswith("StdoutAccessLog")
    kind = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
    return [{"name": "file", "typed_config": {"@type": kind, "path": f"{DIRECTORY}/access", **written}}]


def test_envoys_access_log_says_why_and_the_id_finds_the_decision(tmp_path: Path) -> None:
    rules, data_dir = write_rules(tmp_path / "rules", RULES), tmp_path / "data"
    with serve(rules, "--reason-metadata", "true", "--data-dir", str(data_dir)) as headgate:
        config = http_config(headgate=[headgate.grpc], routes=ROUTES)
        hcm(config)["access_log"] = example_access_log()
        with run_envoy(config) as envoy:
            assert envoy.statuses("/", {"x-user": "alice"}, 2) == [200, 429]
            lines: list[str] = []

            def written() -> bool:
                path = envoy.directory / "access"
                lines[:] = path.read_text().splitlines() if path.exists() else []
                return len(lines) >= 2

            wait_until(written, "two lines in the access log")
        assert headgate.stop() == 0
    first, second = map(json.loads, lines)
    assert (first["status"], second["status"]) == (200, 429)
    assert (second["flags"], second["rule"], second["path_of_decision"]) == ("RL", "user", "local")
    assert second["rules"].startswith("1-")
    explained = run("explain", "--json", "--data-dir", str(data_dir), "--id", second["decision"])
    assert json.loads(explained.stdout)["cause"] == "own_usage"


def test_a_header_tells_the_caller(tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules", RULES)
    with (
        serve(rules, "--reason-header", "x-headgate") as headgate,
        run_envoy(http_config(headgate=[headgate.grpc], routes=ROUTES)) as envoy,
    ):
        answers = [envoy.get("/", {"x-user": "alice"}) for _ in range(2)]
    told = [{name.lower(): value for name, value in answer.headers.items()}["x-headgate"] for answer in answers]
    assert all(text.startswith("domain=edge rule=user version=1-") for text in told)
    assert all(text.endswith(" path=local") for text in told), "without a log there is no id"
