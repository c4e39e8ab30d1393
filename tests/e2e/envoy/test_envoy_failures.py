"""Headgate killed, stalled and restarted under load.

Envoy follows `failure_mode_deny` both ways, nothing crashes or hangs, and limits hold again afterwards.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.envoy import Envoy, run_envoy
from tests.support.envoy_config import header_limit, http_config, route
from tests.support.envoy_load import Load
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.waiting import wait_until

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 5}
- key: bulk
  rate_limit: {unit: year, requests_per_unit: 4000000000}
"""
ROUTES = [route("/user", limits=[header_limit("user")]), route("/bulk", limits=[header_limit("bulk")])]

STALL_TIMEOUT_S = 3.0
"""How long Envoy waits for a decision here: a stalled Headgate is seen soon, a busy machine is not taken for one."""

FAILED = 503
ALLOW: dict[str, Any] = {"failure_mode_deny": False}
DENY: dict[str, Any] = {"failure_mode_deny": True, "status_on_error": {"code": FAILED}}
MODES = [pytest.param(ALLOW, 200, id="allow"), pytest.param(DENY, FAILED, id="deny")]
WAYS = [pytest.param("native", "tcp", id="native-tcp"), pytest.param("grpcio", "unix", id="grpcio-unix")]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


def address(socket: str, directory: Path) -> str:
    return f"unix:{directory}/headgate.sock" if socket == "unix" else "127.0.0.1:0"


@contextmanager
def under_load(headgate: Headgate, mode: dict[str, Any], **fields: Any) -> Iterator[tuple[Envoy, Load]]:
    config = http_config(
        routes=ROUTES,
        headgate=[headgate.grpc],
        enable_x_ratelimit_headers="DRAFT_VERSION_03",
        **mode,
        **fields,
    )
    with run_envoy(config) as envoy, Load(envoy.address, "/bulk", {"x-bulk": "load"}) as load:
        load.wait_for_answers(100)
        yield envoy, load
        assert load.broken == []
        assert set(load.total) <= {200, FAILED}, load.total


def assert_limits_hold(envoy: Envoy, user: str) -> None:
    wait_until(lambda: "x-ratelimit-limit" in envoy.get("/bulk", {"x-bulk": "probe"}).headers, "a decision of Headgate")
    assert envoy.statuses("/user", {"x-user": user}, 7) == [200] * 5 + [429] * 2


@pytest.mark.parametrize(("mode", "expected"), MODES)
@pytest.mark.parametrize(("transport", "socket"), WAYS)
def test_killed_and_restarted(
    rules: Path, short_dir: Path, transport: str, socket: str, mode: dict[str, Any], expected: int
) -> None:
    where = address(socket, short_dir)
    with serve(rules, "--transport", transport, grpc=where) as first, under_load(first, mode) as (envoy, load):
        assert_limits_hold(envoy, "before")
        first.send(signal.SIGKILL)
        first.wait_exit()
        load.begin_phase()
        assert set(load.wait_for_answers(100)) == {expected}
        # Nobody is there to say no: what is over its limit gets the same answer as everybody.
        assert envoy.statuses("/user", {"x-user": "before"}, 3) == [expected] * 3
        with serve(rules, "--transport", transport, grpc=first.grpc):
            assert_limits_hold(envoy, "after")
            load.begin_phase()
            assert set(load.wait_for_answers(100)) == {200}


def is_stopped(headgate: Headgate) -> bool:
    return Path(f"/proc/{headgate.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize(("mode", "expected"), MODES)
@pytest.mark.parametrize(("transport", "socket"), WAYS)
def test_stalled_and_resumed(
    rules: Path, short_dir: Path, transport: str, socket: str, mode: dict[str, Any], expected: int
) -> None:
    where = address(socket, short_dir)
    with (
        serve(rules, "--transport", transport, grpc=where) as headgate,
        under_load(headgate, mode, timeout=f"{STALL_TIMEOUT_S}s") as (envoy, load),
    ):
        errors = envoy.rate_limit_errors()
        headgate.send(signal.SIGSTOP)
        wait_until(lambda: is_stopped(headgate), "Headgate to stop")
        load.begin_phase()
        assert set(load.wait_for_answers(8)) == {expected}
        assert envoy.rate_limit_errors() >= errors + 8
        headgate.send(signal.SIGCONT)
        assert_limits_hold(envoy, "after")
        load.begin_phase()
        assert set(load.wait_for_answers(100)) == {200}


def test_without_status_on_error_a_failed_call_is_a_500(rules: Path) -> None:
    with serve(rules) as headgate:
        config = http_config(routes=ROUTES, headgate=[headgate.grpc], failure_mode_deny=True)
        with run_envoy(config) as envoy:
            assert envoy.get("/bulk", {"x-bulk": "x"}).status == 200
            headgate.send(signal.SIGKILL)
            headgate.wait_exit()
            assert envoy.get("/bulk", {"x-bulk": "x"}).status == 500
