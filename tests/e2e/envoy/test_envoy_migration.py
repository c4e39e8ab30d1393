"""A deployment of envoyproxy/ratelimit, moved: its environment and rules as they are, Envoy none the wiser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.envoy import Envoy, run_envoy
from tests.support.envoy_config import header_limit, http_config, route
from tests.support.headgate import Headgate, run, start, write_rules

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 3}
"""
ENVIRON = {
    "HEADGATE_COMPAT": "ratelimit",
    "HEADGATE_DRAIN_S": "0",
    "RUNTIME_SUBDIRECTORY": "ratelimit",
    "GRPC_HOST": "127.0.0.1",
    "GRPC_PORT": "0",
    "HOST": "127.0.0.1",
    "PORT": "0",
    "LOG_LEVEL": "INFO",
    "LOG_FORMAT": "json",
    "LIMIT_RESPONSE_HEADERS_ENABLED": "true",
    "LIMIT_LIMIT_HEADER": "X-Quota",
    "LIMIT_REMAINING_HEADER": "X-Quota-Left",
    "USE_STATSD": "false",
    "DEBUG_PORT": "0",
    "REDIS_POOL_SIZE": "10",
}


@contextmanager
def moved(directory: Path, **environ: str) -> Iterator[tuple[Headgate, Envoy]]:
    write_rules(directory / "ratelimit" / "config", RULES)
    with start("serve", environ={**ENVIRON, "RUNTIME_ROOT": str(directory), **environ}) as headgate:
        headgate.wait_ready()
        config = http_config(routes=[route("/", limits=[header_limit("user")])], headgate=[headgate.grpc])
        with run_envoy(config) as envoy:
            yield headgate, envoy


def test_rules_addresses_headers_and_logs_are_where_they_were(tmp_path: Path) -> None:
    with moved(tmp_path) as (headgate, envoy):
        answers = [envoy.get("/", {"x-user": "alice"}) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert (answers[0].headers["x-quota"], answers[0].headers["x-quota-left"]) == ("3", "2")
        assert "ratelimit-reset" in answers[0].headers
        warnings = [line for line in headgate.lines if line.startswith("headgate: warning: ")]
        assert [line.split()[2] for line in warnings] == ["REDIS_POOL_SIZE:"]


def test_shadow_mode_of_the_whole_service_denies_nothing(tmp_path: Path) -> None:
    with moved(tmp_path, SHADOW_MODE="true") as (_, envoy):
        assert envoy.statuses("/", {"x-user": "alice"}, 6) == [200] * 6


def test_what_would_be_decided_differently_does_not_start() -> None:
    ended = run("serve", environ={**ENVIRON, "RUNTIME_ROOT": "/nowhere", "BACKEND_TYPE": "memcache"})
    assert ended.returncode == 2
    assert "BACKEND_TYPE" in ended.stderr
