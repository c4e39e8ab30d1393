"""`headgate-ratelimit`: in the place of envoyproxy/ratelimit, with its probes, its ports and its arguments ignored."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support.headgate import RATELIMIT, Headgate, http_request, start, write_rules
from tests.support.waiting import wait_until

ROUTE = "httproute/eg/web/rule/0/match/0/*"
RULES = """\
domain: eg/web/http
descriptors:
- key: httproute/eg/web/rule/0/match/0/*
  value: httproute/eg/web/rule/0/match/0/*
  descriptors:
  - key: rule-0-match-0
    value: rule-0-match-0
    rate_limit: {unit: minute, requests_per_unit: 3}
"""
ENVIRON = {
    "RUNTIME_SUBDIRECTORY": "ratelimit",
    "HOST": "127.0.0.1",
    "PORT": "0",
    "GRPC_HOST": "127.0.0.1",
    "GRPC_PORT": "0",
    "DEBUG_PORT": "0",
    "USE_PROMETHEUS": "true",
    "PROMETHEUS_ADDR": ":0",
}


@contextlib.contextmanager
def replaced(directory: Path, **environ: str) -> Iterator[Headgate]:
    write_rules(directory / "ratelimit" / "config", RULES)
    with start(
        "--a-flag", "and", "more", environ={**ENVIRON, "RUNTIME_ROOT": str(directory), **environ}, program=RATELIMIT
    ) as headgate:
        yield headgate.wait_ready()


def test_probes_metrics_and_rules_are_where_they_were(tmp_path: Path) -> None:
    with replaced(tmp_path, HEADGATE_DRAIN_S="60") as headgate:
        assert "arguments are ignored" in headgate.lines[0]
        answer = headgate.get("/healthcheck")
        assert (answer.status, answer.body) == (200, b"OK")
        listens = headgate.wait_for_event("serving")
        port = listens["metrics"].rpartition(":")[2]
        for host in ("127.0.0.1", "[::1]"):
            scrape = http_request(f"{host}:{port}", "GET", "/metrics")
            assert b"ratelimit_service_config_load_success" in scrape.body
        assert http_request(f"127.0.0.1:{port}", "GET", "/rules").status == 404
        shown = http_request(listens["debug"], "GET", "/rlconfig")
        assert shown.body.decode() == (
            f"eg/web/http.{ROUTE}_{ROUTE}.rule-0-match-0_rule-0-match-0: "
            "unit=MINUTE requests_per_unit=3, shadow_mode: false\n"
        )
        headgate.send(signal.SIGTERM)
        wait_until(lambda: headgate.get("/healthcheck").status == 500, "the probe to fail while draining")
        headgate.send(signal.SIGTERM)
        headgate.wait_exit()


def test_requests_are_as_large_as_envoy_gateways_policies_make_them(tmp_path: Path) -> None:
    with replaced(tmp_path) as headgate:
        many = {"entries": [{"key": "k", "value": "v"}]}
        assert headgate.post_json({"domain": "eg/web/http", "descriptors": [many] * 100}).status == 200
        long = {"entries": [{"key": "k", "value": "v"}] * 100}
        assert headgate.post_json({"domain": "eg/web/http", "descriptors": [long]}).status == 200


def test_it_is_ready_without_rules_where_that_is_forced(tmp_path: Path) -> None:
    environ = {**ENVIRON, "RUNTIME_ROOT": str(tmp_path)}
    with start(environ=environ, program=RATELIMIT) as none:
        assert none.wait_exit() == 1, none.lines
    with start(environ={**environ, "FORCE_START_WITHOUT_INITIAL_CONFIG": "true"}, program=RATELIMIT) as one:
        one.wait_ready()
        assert one.get("/healthcheck").status == 200
        write_rules(tmp_path / "ratelimit" / "config", RULES)
        wait_until(lambda: one.get("/rules").json()["total"] == 1, "the rules to come")
