"""Changes under load: rules reloaded, and processes replaced one by one, without a failed request.

Failed calls are denials here (`failure_mode_deny`), so that not one can go unnoticed.
"""

import contextlib
import signal
from pathlib import Path

import pytest

from tests.e2e.envoy.conftest import TRANSPORTS
from tests.support.envoy import Envoy, run_envoy
from tests.support.envoy_config import header_limit, health_checked, http_config, route
from tests.support.envoy_load import Load
from tests.support.headgate import serve, write_rules
from tests.support.waiting import PATIENCE_S, wait_until

ROUTES = [route("/user", limits=[header_limit("user")]), route("/bulk", limits=[header_limit("bulk")])]

RELOADS = 5
HEALTH_INTERVAL_S = 0.2
HEALTH_TIMEOUT_S = PATIENCE_S
DRAIN_S = 3.0
"""Fifteen health intervals: two are what Envoy needs to see that a process is leaving."""


def rules_with(limit: int) -> str:
    return f"""\
domain: edge
descriptors:
- key: user
  rate_limit: {{unit: year, requests_per_unit: {limit}}}
- key: bulk
  rate_limit: {{unit: year, requests_per_unit: 4000000000}}
"""


def replace_rules(directory: Path, limit: int) -> None:
    """As careful operators do it: a new file is moved over the old one."""
    new = directory / "edge.yaml.new"
    new.write_text(rules_with(limit))
    new.rename(directory / "edge.yaml")


def limit_in_force(envoy: Envoy, user: str) -> int:
    return int(envoy.get("/user", {"x-user": user}).headers["x-ratelimit-limit"].partition(",")[0])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rules_change_under_load_without_a_failure(tmp_path: Path, transport: str) -> None:
    rules = write_rules(tmp_path / "rules", rules_with(100_000))
    with serve(rules, "--transport", transport) as headgate:
        config = http_config(
            routes=ROUTES,
            headgate=[headgate.grpc],
            enable_x_ratelimit_headers="DRAFT_VERSION_03",
            failure_mode_deny=True,
        )
        with run_envoy(config) as envoy, Load(envoy.address, "/bulk", {"x-bulk": "load"}) as load:
            load.wait_for_answers(100)
            for limit in range(100_001, 100_001 + RELOADS):
                _reload(envoy, rules, limit)
            # Lowered below what was used already: it is in force at once, in the same window.
            _reload(envoy, rules, 3)
            assert envoy.statuses("/user", {"x-user": "fresh"}, 5) == [200] * 3 + [429] * 2
            load.begin_phase()
            load.wait_for_answers(100)
        assert set(load.total) == {200}, load.total
        assert load.broken == []


def _reload(envoy: Envoy, rules: Path, limit: int) -> None:
    replace_rules(rules, limit)
    wait_until(lambda: limit_in_force(envoy, f"user-{limit}") == limit, f"a limit of {limit} to be in force")


@pytest.mark.parametrize("transport", ["native", pytest.param("grpcio", marks=pytest.mark.long)])
def test_two_processes_are_replaced_one_by_one_without_a_failed_request(tmp_path: Path, transport: str) -> None:
    rules = write_rules(tmp_path / "rules", rules_with(100))
    flags = ("--transport", transport)
    with contextlib.ExitStack() as processes:
        running = [processes.enter_context(serve(rules, *flags, drain_s=DRAIN_S)) for _ in range(2)]
        config = http_config(
            routes=ROUTES,
            headgate=[headgate.grpc for headgate in running],
            cluster=health_checked(HEALTH_INTERVAL_S, HEALTH_TIMEOUT_S),
            failure_mode_deny=True,
        )
        with run_envoy(config) as envoy, Load(envoy.address, "/bulk", {"x-bulk": "load"}) as load:
            wait_until(lambda: envoy.healthy_hosts() == 2, "two healthy processes")
            for old in running:
                load.begin_phase()
                load.wait_for_answers(100)
                old.send(signal.SIGTERM)
                wait_until(lambda: envoy.healthy_hosts() == 1, "Envoy to leave the old process")
                assert old.wait_exit() == 0
                processes.enter_context(serve(rules, *flags, grpc=old.grpc, drain_s=DRAIN_S))
                wait_until(lambda: envoy.healthy_hosts() == 2, "Envoy to find the new process")
            load.begin_phase()
            load.wait_for_answers(100)
        assert set(load.total) == {200}, load.total
        assert load.broken == []


def test_connections_spread_over_two_processes(tmp_path: Path) -> None:
    """Envoy balances calls, not connections: both processes get their share of one Envoy's traffic."""
    rules = write_rules(tmp_path / "rules", rules_with(100))
    with serve(rules) as first, serve(rules) as second:
        config = http_config(routes=ROUTES, headgate=[first.grpc, second.grpc])
        with run_envoy(config) as envoy:
            assert envoy.statuses("/bulk", {"x-bulk": "x"}, 40) == [200] * 40
            calls = envoy.counters("cluster.headgate.upstream_rq_total")["cluster.headgate.upstream_rq_total"]
            assert calls == 40
            clusters = envoy.admin("/clusters?format=json").json()["cluster_statuses"]
    (hosts,) = [cluster["host_statuses"] for cluster in clusters if cluster["name"] == "headgate"]
    totals = [int(stat["value"]) for host in hosts for stat in host["stats"] if stat["name"] == "rq_total"]
    assert sorted(totals) == [20, 20]
