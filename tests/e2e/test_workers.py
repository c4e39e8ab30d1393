"""Several processes on one port: one limit, one address, one life."""

import os
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headgate.build import BUILD

from tests.support.headgate import FREE_PORTS, Headgate, http_request, serve, start, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import undisturbed, wait_until
from tests.support.workers import (
    Load,
    by_worker,
    callers,
    count_admitted,
    decided_by_policy,
    described,
    is_running,
    loading,
    request,
    scrape,
    scrape_all,
    serve_workers,
    when_ready,
    worker_of,
)

LIMIT = 20
RULES = f"""\
domain: edge
descriptors:
- key: user
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}, algorithm: fixed_window, precision: 0}}
- key: bulk
  rate_limit: {{unit: year, requests_per_unit: 1000000}}
"""
DRAIN_S = 3
"""Long enough to look at processes that drain, on a busy machine too."""
FOR_EVER_S = 3600
CALLERS = 20
"""The kernel spreads them by chance: that all end at one of two workers does not happen."""
BULK = {"domain": "edge", "descriptors": [{"entries": [{"key": "bulk", "value": "x"}]}]}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis: RedisServer) -> str:
    redis.client.flushall()
    return redis.url


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for sockets and temporary files, with a path that is short enough for them."""
    with tempfile.TemporaryDirectory(prefix="hgw-") as name:
        (Path(name) / "t").mkdir()
        (Path(name) / "s").mkdir()
        yield Path(name)


@pytest.fixture(scope="module")
def pair(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headgate]:
    """Two workers, for tests that leave them as they were."""
    rules = write_rules(tmp_path_factory.mktemp("rules"), RULES)
    with serve_workers(rules, f"{redis.url}/1", 2, "--response-headers") as headgate:
        yield headgate


def pids(headgate: Headgate) -> list[int]:
    return [worker["pid"] for worker in described(headgate)]


def assert_nothing_left(scratch: Path, processes: list[int]) -> None:
    assert [pid for pid in processes if is_running(pid)] == []
    assert list((scratch / "t").iterdir()) == []
    assert list((scratch / "s").iterdir()) == []


@pytest.mark.parametrize(("workers", "transport"), [(2, "grpcio"), (3, "native")])
def test_one_port_one_limit_one_picture(
    rules: Path, redis_url: str, tmp_path: Path, workers: int, transport: str
) -> None:
    names = [str(index) for index in range(workers)]
    data = tmp_path / "data"
    flags = ("--transport", transport, "--data-dir", str(data), "--node-id", "n1")
    with serve_workers(rules, redis_url, workers, *flags) as headgate, callers(headgate.grpc, CALLERS) as everybody:
        called = 0

        def attempt(number: int) -> float:
            nonlocal called
            before = decided_by_policy(scrape_all(headgate))
            admitted = count_admitted(everybody, 5, request("user", f"alice-{number}"))
            called += CALLERS * 5
            by_policy = decided_by_policy(scrape_all(headgate)) - before
            assert by_policy or admitted == LIMIT
            return by_policy

        undisturbed(attempt)
        samples = scrape_all(headgate)
        calls = by_worker(samples, "headgate_grpc_calls_total")
        assert sum(calls.values()) == called
        assert sorted(calls) == names
        assert len([worker for worker in calls if calls[worker]]) > 1, "all connections ended at one worker"
        assert by_worker(samples, "headgate_decisions_total").keys() == set(names)
        assert by_worker(samples, "headgate_worker_restarts_total") == dict.fromkeys(names, 0)

        ready = when_ready(headgate)
        assert (ready.json()["ready"], ready.json()["state"]) == (True, "serving")
        seen = ready.json()["workers"]
        assert [worker["worker"] for worker in seen] == list(range(workers))
        assert [worker["grpc"]["address"] for worker in seen] == [headgate.grpc] * workers
        assert [worker["node"].rpartition("-")[0] for worker in seen] == [f"n1-w{name}" for name in names]
        wait_until(lambda: {w["origin"]["live_nodes"] for w in described(headgate)} == {workers}, "all nodes")

        version = headgate.get("/version").json()
        assert (version["workers"], version["transport"], "versions" in version) == (workers, transport, False)
        assert version["build"] == BUILD
        assert "digests" not in headgate.get("/rules").json()
        assert headgate.get("/rules?domain=edge&limit=1").json()["shown"] == 1
        assert (headgate.get("/rules?domain=no").status, headgate.get("/no").status) == (400, 404)
        assert len([e for e in headgate.events if e["event"] == "worker_serving" and "worker" in e]) == workers
    assert sorted(os.listdir(data)) == ["decisions", "live_nodes", "rules", "rules.snapshot"]


def test_decisions_over_http_go_round(pair: Headgate) -> None:
    def attempt(number: int) -> float:
        entry = {"key": "user", "value": f"bob-{number}"}
        body = {"domain": "edge", "descriptors": [{"entries": [entry]}], "hitsAddend": 10}
        before = scrape_all(pair)
        answers = [pair.post_json(body) for _ in range(4)]
        after = scrape_all(pair)
        decided = [by_worker(samples, "headgate_decisions_total") for samples in (before, after)]
        assert {worker: decided[1][worker] - decided[0][worker] for worker in decided[1]} == {"0": 2, "1": 2}
        by_policy = decided_by_policy(after) - decided_by_policy(before)
        if not by_policy:
            assert [answer.status for answer in answers] == [200, 200, 429, 429]
            assert answers[2].headers["ratelimit-limit"].startswith(str(LIMIT))
            assert int(answers[2].headers["retry-after"]) > 0
            assert answers[2].json()["overallCode"] == "OVER_LIMIT"
        return by_policy

    undisturbed(attempt)
    assert pair.post_json(b"{").status == 400
    assert pair.post_json(b" " * 100_000).status == 413
    assert (
        http_request(
            pair.http, "POST", "/json", b"x", {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        ).status
        == 415
    )


SPIN = """\
import signal


def spin(*_):
    while True:
        pass


signal.signal(signal.SIGUSR1, spin)
"""
"""As `sitecustomize`, in every process: a way to make its loop spin from outside."""


def noticed(headgate: Headgate) -> list[int]:
    return [event["worker"] for event in headgate.events if event["event"] == "worker_hangs"]


def test_workers_that_hang_are_replaced_and_nobody_else_notices(rules: Path, redis_url: str, tmp_path: Path) -> None:
    """One that is stopped and one that spins: the sockets of both still accept."""
    (tmp_path / "sitecustomize.py").write_text(SPIN)
    environ = {"PYTHONPATH": str(tmp_path)}
    with serve_workers(rules, redis_url, 3, environ=environ) as headgate, callers(headgate.grpc, 12) as everybody:
        places = [worker_of(headgate, caller) for caller in everybody]
        stopped, spins, healthy = described(headgate)
        with Load(everybody) as load:
            wait_until(lambda: min(load.answered) > 5, "load")
            os.kill(stopped["pid"], signal.SIGSTOP)
            os.kill(spins["pid"], signal.SIGUSR1)
            wait_until(lambda: sorted(noticed(headgate)) == [0, 1], "both to be noticed")
            wait_until(lambda: headgate.get("/readyz").status == 200, "ready again")
            answered = list(load.answered)
            wait_until(lambda: all(n > o + 5 for n, o in zip(load.answered, answered, strict=True)), "all are served")
        ended = [event for event in headgate.events if event["event"] == "worker_ended"]
        assert {(event["worker"], event["pid"]) for event in ended} == {(0, stopped["pid"]), (1, spins["pid"])}
        assert all("no sign of life" in event["reason"] and "signal 9" in event["how"] for event in ended)
        assert pids(headgate)[2] == healthy["pid"]
        assert not is_running(stopped["pid"])
        assert by_worker(scrape(headgate), "headgate_worker_hangs_total") == {"0": 1, "1": 1, "2": 0}
        unaffected = [failed for place, failed in zip(places, load.failed, strict=True) if place == "2"]
        assert not any(unaffected), unaffected


def test_a_killed_worker_is_replaced_and_nobody_else_notices(rules: Path, redis_url: str) -> None:
    with serve_workers(rules, redis_url, 2) as headgate, callers(headgate.grpc, CALLERS) as everybody:
        places = [worker_of(headgate, caller) for caller in everybody]
        assert set(places) == {"0", "1"}, "all connections ended at one worker"
        before, other = described(headgate)
        with Load(everybody) as load:
            wait_until(lambda: min(load.answered) > 20, "load")
            os.kill(before["pid"], signal.SIGKILL)
            wait_until(lambda: headgate.get("/readyz").status == 503, "not ready while one is down")
            ended = headgate.wait_for_event("worker_ended")
            assert (ended["worker"], ended["pid"], ended["how"]) == (0, before["pid"], "was ended by signal 9")
            wait_until(lambda: headgate.get("/readyz").status == 200, "ready again")
            answered = list(load.answered)
            wait_until(lambda: all(n > o + 20 for n, o in zip(load.answered, answered, strict=True)), "all are served")
        after, same = described(headgate)
        assert (after["restarts"], same["pid"], same["node"]) == (1, other["pid"], other["node"])
        assert after["pid"] != before["pid"]
        assert after["node"] != before["node"]
        assert after["node"].rpartition("-")[0] == before["node"].rpartition("-")[0]
        assert by_worker(scrape(headgate), "headgate_worker_restarts_total") == {"0": 1, "1": 0}
        unaffected = [failed for place, failed in zip(places, load.failed, strict=True) if place == "1"]
        assert not any(unaffected), unaffected


@pytest.mark.parametrize("unix", [False, True])
def test_a_drain_under_load_loses_no_answer(rules: Path, redis_url: str, scratch: Path, unix: bool) -> None:
    addresses = {"grpc": f"unix:{scratch}/s/g", "http": f"unix:{scratch}/s/h"} if unix else {}
    with serve_workers(
        rules, redis_url, 2, drain_s=DRAIN_S, environ={"TMPDIR": f"{scratch}/t"}, **addresses
    ) as headgate:
        listening = headgate.grpc.split(",")
        if unix:
            assert listening == [f"unix:{scratch}/s/g.0", f"unix:{scratch}/s/g.1"]
        processes = pids(headgate)
        half = CALLERS // 2
        with callers(listening[0], half) as some, callers(listening[-1], half) as more, Load(some + more) as load:
            wait_until(lambda: min(load.answered) > 20, "load")
            assert all(by_worker(scrape_all(headgate), "headgate_grpc_calls_total").values())
            begun = time.monotonic()
            headgate.send(signal.SIGTERM)
            wait_until(lambda: headgate.get("/readyz").status == 503, "not ready")
            wait_until(lambda: {w["state"] for w in described(headgate)} == {"draining"}, "all drain together")
            assert headgate.get("/readyz").json()["state"] == "draining"
            assert headgate.get("/healthz").status == 200
            assert headgate.post_json(BULK).status == 200
            answered = list(load.answered)
            wait_until(lambda: all(n > o for n, o in zip(load.answered, answered, strict=True)), "answers on the way")
            load.leave()
            assert headgate.wait_exit() == 0
            assert time.monotonic() - begun >= DRAIN_S
        assert not any(load.failed), load.failed
        assert headgate.events[-1]["event"] == "stopped"
        assert_nothing_left(scratch, processes)


def test_a_second_signal_ends_all_at_once(rules: Path, redis_url: str, scratch: Path) -> None:
    undisturbed(lambda _: end_all_at_once(rules, redis_url, scratch))


def end_all_at_once(rules: Path, redis_url: str, scratch: Path) -> list[object]:
    """Who has said that it stopped, if it is not all who could: they have half a second to do so."""
    addresses = {"grpc": f"unix:{scratch}/s/g", "http": f"unix:{scratch}/s/h"}
    environ = {"TMPDIR": f"{scratch}/t"}
    with serve_workers(rules, redis_url, 2, drain_s=FOR_EVER_S, environ=environ, **addresses) as headgate:
        processes = pids(headgate)
        # One that does not even read its orders.
        os.kill(processes[0], signal.SIGSTOP)
        headgate.send(signal.SIGTERM)
        headgate.wait_for_event("stopping")
        headgate.send(signal.SIGINT)
        assert headgate.wait_exit() == 128 + signal.SIGINT
        assert_nothing_left(scratch, processes)
        stopped = [event.get("worker", "supervisor") for event in headgate.events if event["event"] == "stopped"]
        return [] if stopped == [1, "supervisor"] else ["cut off, not cut short", *stopped]


def test_a_signal_to_the_whole_group_is_one_signal(rules: Path, redis_url: str) -> None:
    """As a terminal's Ctrl-C, or a service manager, sends it: while loading, and while serving."""
    flags = ("--workers", "2", "--origin", redis_url, "--drain-s", "0.3", "--log-level", "debug", *FREE_PORTS)
    with start("serve", "--rules", str(rules), *flags) as headgate:
        wait_until(lambda: len(loading(headgate.process.pid)) == 2, "workers that load")
        os.killpg(headgate.process.pid, signal.SIGINT)
        assert headgate.wait_exit() == 0
        assert "Traceback" not in "\n".join(headgate.lines)
    with serve_workers(rules, redis_url, 2, drain_s=0.3) as headgate:
        os.killpg(headgate.process.pid, signal.SIGINT)
        assert headgate.wait_exit() == 0
        assert "worker_ended" not in [event["event"] for event in headgate.events]


def test_workers_without_a_supervisor_end_by_themselves(rules: Path, redis_url: str, scratch: Path) -> None:
    grpc = f"unix:{scratch}/s/g"
    with serve_workers(rules, redis_url, 2, grpc=grpc, drain_s=DRAIN_S, environ={"TMPDIR": f"{scratch}/t"}) as headgate:
        processes = pids(headgate)
        with callers(f"{grpc}.0", 2) as some, callers(f"{grpc}.1", 2) as more, Load(some + more) as load:
            wait_until(lambda: min(load.answered) > 20, "load")
            headgate.process.kill()
            headgate.process.wait()
            answered = list(load.answered)
            wait_until(lambda: all(n > o for n, o in zip(load.answered, answered, strict=True)), "they drain")
            load.leave()
            assert not any(load.failed), load.failed
        wait_until(lambda: not any(is_running(pid) for pid in processes), "their end")
        assert_nothing_left(scratch, processes)


def test_a_stopped_worker_ends_with_its_supervisor(rules: Path, redis_url: str, scratch: Path) -> None:
    with serve_workers(rules, redis_url, 2, environ={"TMPDIR": f"{scratch}/t"}) as headgate:
        processes = pids(headgate)
        os.kill(processes[0], signal.SIGSTOP)
        headgate.process.kill()
        headgate.process.wait()
        wait_until(lambda: not any(is_running(pid) for pid in processes), "their end")
        assert_nothing_left(scratch, processes)


def test_what_was_killed_with_all_its_workers_is_cleared_by_the_next_start(
    rules: Path, redis_url: str, scratch: Path
) -> None:
    where: dict[str, Any] = {"grpc": f"unix:{scratch}/s/g", "http": f"unix:{scratch}/s/h"}
    where["environ"] = {"TMPDIR": f"{scratch}/t"}
    with serve_workers(rules, redis_url, 2, **where) as headgate:
        processes = pids(headgate)
        os.killpg(headgate.process.pid, signal.SIGKILL)
        headgate.process.wait()
        wait_until(lambda: not any(is_running(pid) for pid in processes), "the end of all")
    assert len(list((scratch / "t").iterdir())) == 1
    assert sorted(os.listdir(scratch / "s")) == ["g.0", "g.0.lock", "g.1", "g.1.lock", "h", "h.lock"]
    # Another user's, or another program's, by all that can be seen.
    (scratch / "t" / "headgate-of-others").mkdir()
    # With one process, so that what is left of the workers is not simply used again.
    with serve(rules, **where) as headgate:
        fresh = set(os.listdir(scratch / "t")) - {"headgate-of-others"}
        assert len(fresh) == 1
        headgate.send(signal.SIGKILL)
        headgate.wait_exit()
    assert set(os.listdir(scratch / "t")) == {*fresh, "headgate-of-others"}
    with serve_workers(rules, redis_url, 2, "--socket-mode", "0660", **where) as headgate:
        assert not fresh & set(os.listdir(scratch / "t"))
        sockets = ("g.0", "g.1", "h")
        assert sorted(os.listdir(scratch / "s")) == sorted([*sockets, *(f"{name}.lock" for name in sockets)])
        assert {stat.S_IMODE((scratch / "s" / name).stat().st_mode) for name in sockets} == {0o660}
        assert headgate.stop() == 0
    (scratch / "t" / "headgate-of-others").rmdir()
    assert_nothing_left(scratch, [])


@pytest.mark.parametrize("taken", ["grpc", "http"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_port_in_use_is_one_clear_line(rules: Path, taken: str, shared: bool) -> None:
    """Also when whoever has it would share it: that is another service, not one of our workers."""
    with socket.socket() as busy:
        if shared:
            busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        addresses = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0", taken: address}
        flags = ["--workers", "2", "--origin", "redis://127.0.0.1:1", "--log-level", "error"]
        flags += ["--grpc", addresses["grpc"], "--http", addresses["http"]]
        with start("serve", "--rules", str(rules), *flags) as headgate:
            assert headgate.wait_exit() == 1
            assert headgate.lines == [f"headgate: can't listen on {address}: address already in use"]


def test_bad_rules_are_said_once_and_nobody_is_left(tmp_path: Path, redis_url: str, scratch: Path) -> None:
    rules = write_rules(tmp_path / "rules", "domain: a\ndescriptors:\n- key: x\n  rate_limit: {unit: fortnight}\n")
    flags = ("--workers", "3", "--origin", redis_url, "--log-level", "debug", *FREE_PORTS)
    with start("serve", "--rules", str(rules), *flags, environ={"TMPDIR": f"{scratch}/t"}) as headgate:
        assert headgate.wait_exit() == 1
        problems = [line for line in headgate.lines if "edge.yaml:4: " in line]
        assert problems
        assert len(problems) == len(set(problems)), "said once, not by each worker"
        assert any(line.startswith(f"headgate: {rules}/edge.yaml:4: ") for line in problems)
        assert "Traceback" not in "\n".join(headgate.lines)
        began = [event["worker"] for event in headgate.events if event["event"] == "starting" and "worker" in event]
        assert began == [0], "the first goes ahead"
        assert_nothing_left(scratch, [])


def test_a_worker_can_be_asked_to_go_and_its_successor_reads_no_file(
    rules: Path, redis_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "headgate.yaml"
    addresses = "grpc: 127.0.0.1:0\nhttp: 127.0.0.1:0\n"
    config.write_text(f"rules: {rules}\nregion: eu\nworkers: 2\norigin: {redis_url}\ndrain_s: {DRAIN_S}\n{addresses}")
    with start("serve", "--config", str(config)) as headgate:
        headgate.wait_ready()
        config.write_text("nonsense: true\n")
        first, second = pids(headgate)
        os.kill(second, signal.SIGTERM)
        wait_until(lambda: described(headgate)[1]["state"] == "draining", "the drain")
        assert headgate.get("/readyz").status == 503
        assert headgate.post_json(BULK).status == 200
        wait_until(lambda: headgate.get("/readyz").status == 200, "its successor")
        assert [pid == first for pid in pids(headgate)] == [True, False]
        serving = [event for event in headgate.events if event["event"] == "worker_serving"]
        assert [(event["worker"], event["region"]) for event in serving] == [(0, "eu"), (1, "eu"), (1, "eu")]
        assert headgate.stop() == 0
