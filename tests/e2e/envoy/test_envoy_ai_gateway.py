"""Answers as Envoy AI Gateway reads them: quotas of two backends, in a real Envoy's dynamic metadata."""

import json
from pathlib import Path
from typing import Any

from tests.support.envoy import DIRECTORY, run_envoy
from tests.support.envoy_config import http_config, route
from tests.support.headgate import RATELIMIT, start, write_rules
from tests.support.waiting import wait_until

RULES = """\
domain: edge
descriptors:
- key: backend_name
  value: ns/first
  descriptors:
  - key: model_name_override
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
    metadata: {to: first}
- key: backend_name
  value: ns/second
  descriptors:
  - key: model_name_override
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 2}
    metadata: {to: second}
"""
ENVIRON = {
    "RUNTIME_SUBDIRECTORY": "ratelimit",
    "HOST": "127.0.0.1",
    "PORT": "0",
    "GRPC_HOST": "127.0.0.1",
    "GRPC_PORT": "0",
    "RESPONSE_DYNAMIC_METADATA": "true",
}
FIELDS = ("domain", "descriptors", "metadata", "passedBackends")


def quota(backend: str) -> dict[str, Any]:
    """Actions as AI Gateway's for one model of a backend."""
    keys = (("backend_name", backend), ("model_name_override", "m"))
    return {"actions": [{"generic_key": {"descriptor_key": key, "descriptor_value": value}} for key, value in keys]}


def access_log() -> list[dict[str, Any]]:
    kind = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
    fields = {field: f"%DYNAMIC_METADATA(envoy.filters.http.ratelimit:{field})%" for field in FIELDS}
    line = {"json_format": {"status": "%RESPONSE_CODE%", **fields}}
    return [{"name": "file", "typed_config": {"@type": kind, "path": f"{DIRECTORY}/access", "log_format": line}}]


def test_envoy_is_told_which_backends_have_something_left(tmp_path: Path) -> None:
    write_rules(tmp_path / "ratelimit" / "config", RULES)
    routes = [route("/", limits=[quota("ns/first"), quota("ns/second")])]
    with start(environ={**ENVIRON, "RUNTIME_ROOT": str(tmp_path)}, program=RATELIMIT) as headgate:
        config = http_config(headgate=[headgate.wait_ready().grpc], routes=routes)
        (front,) = [item for item in config["static_resources"]["listeners"] if item["name"] == "front"]
        front["filter_chains"][0]["filters"][0]["typed_config"]["access_log"] = access_log()
        with run_envoy(config) as envoy:
            assert envoy.statuses("/", {}, 3) == [200, 200, 429]
            written = envoy.directory / "access"
            wait_until(lambda: written.exists() and written.read_text().count("\n") >= 3, "three lines")
            lines = [json.loads(line) for line in written.read_text().splitlines()]
    asked = [{"entries": [f"backend_name=ns/{name}", "model_name_override=m"]} for name in ("first", "second")]
    assert all((line["domain"], line["descriptors"]) == ("edge", asked) for line in lines)
    assert [line["metadata"] for line in lines] == [{"to": "first"}, {"to": "second"}, None]
    names = [[model["backend_name"] for model in line["passedBackends"] or ()] for line in lines]
    assert names == [["ns/first", "ns/second"], ["ns/second"], []]
