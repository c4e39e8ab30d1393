"""The life of a real process: startup, readiness, drain, exit."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from headgate_client import Client, RateLimitError, Tls

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import FREE_PORTS, Headgate, clean_environ, serve, start, write_rules
from tests.support.waiting import PATIENCE_S, undisturbed, wait_until

BULK = [{"bulk": "x"}]
DRAIN_S = 3
"""Long enough to look at a process that drains, on a busy machine too."""
FOR_EVER_S = 3600


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules")


def health(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return int(check(health_pb2.HealthCheckRequest(service="ratelimit"), timeout=PATIENCE_S).status)


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_a_server_is_ready_when_everything_listens_and_decides(rules: Path, transport: str) -> None:
    with serve(rules, "--transport", transport) as headgate:
        ready = headgate.get("/readyz")
        assert (ready.status, ready.json()["state"]) == (200, "serving")
        assert ready.json()["grpc"] == {"address": headgate.grpc, "serving": True}
        assert ready.json()["rules"]["in_sync"]
        assert headgate.get("/healthz").status == 200
        assert health(headgate.grpc) == SERVING
        with Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
            assert client.should_rate_limit("edge", [{"user": "alice"}]).statuses[0].remaining == 4
        assert headgate.get("/version").json()["transport"] == transport
        assert headgate.stop() == 0
        assert headgate.events[-1]["event"] == "stopped"


def test_rules_are_in_force_before_anything_is_announced(rules: Path) -> None:
    with serve(rules) as headgate:
        names = [event["event"] for event in headgate.events]
        assert names.index("rules_in_force") < names.index("serving")
        assert headgate.get("/rules").json()["version"] == headgate.wait_for_event("serving")["rules"]


def test_every_start_is_a_new_run_of_the_same_node(rules: Path) -> None:
    runs = []
    for _ in range(2):
        with serve(rules, "--node-id", "n1", "--region", "eu") as headgate:
            serving = headgate.wait_for_event("serving")
            assert (serving["node"], serving["region"]) == ("n1", "eu")
            runs.append(serving["run"])
    assert runs[0] < runs[1] < 2**53


class Load:
    """Callers that go on until health says that they should leave, and note every failure."""

    def __init__(self, address: str, threads: int = 4, tls: Tls | None = None) -> None:
        self._tls = tls
        self.answered = 0
        self.failures: list[str] = []
        self._leave = threading.Event()
        self._address = address
        self._threads = [threading.Thread(target=self._call) for _ in range(threads)]

    def _call(self) -> None:
        with Client(self._address, timeout_s=PATIENCE_S, tls=self._tls) as client:
            while not self._leave.is_set():
                try:
                    client.should_rate_limit("edge", BULK)
                    self.answered += 1
                except RateLimitError as error:
                    self.failures.append(str(error))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        self._leave.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.mark.parametrize("transport", ["native", "grpcio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_under_load_loses_no_answer(rules: Path, transport: str, number: signal.Signals) -> None:
    with serve(rules, "--transport", transport, drain_s=DRAIN_S) as headgate:
        load = Load(headgate.grpc)
        load.start()
        wait_until(lambda: load.answered > 100, "load")
        headgate.send(number)
        wait_until(lambda: health(headgate.grpc) == NOT_SERVING, "health to say so")
        draining = headgate.get("/readyz")
        assert (draining.status, draining.json()["state"]) == (503, "draining")
        assert headgate.get("/healthz").status == 200
        assert headgate.post_json({"domain": "edge", "descriptors": [{"entries": [{"key": "bulk"}]}]}).status == 200
        answered = load.answered
        wait_until(lambda: load.answered > answered + 100, "answers while draining")
        load.leave()
        assert headgate.wait_exit() == 0
        assert load.failures == []


def test_a_drain_under_load_through_the_guard_loses_no_answer(rules: Path, tmp_path: Path) -> None:
    ca = authority("ca")
    cert, key = issued_by(ca, "localhost").write(tmp_path, "server")
    tls = Tls(ca=Path(ca.write(tmp_path, "ca")[0]), server_name="localhost")
    with serve(rules, "--tls-cert", cert, "--tls-key", key, drain_s=1) as headgate:
        assert headgate.get("/version").json()["transport"] == "guarded"
        load = Load(headgate.grpc, tls=tls)
        load.start()
        wait_until(lambda: load.answered > 100, "load")
        headgate.send(signal.SIGTERM)
        wait_until(lambda: headgate.get("/readyz").json()["state"] == "draining", "the drain")
        answered = load.answered
        wait_until(lambda: load.answered > answered + 100, "answers while draining")
        load.leave()
        assert headgate.wait_exit() == 0
        assert load.failures == []


def test_the_drain_period_is_kept(rules: Path) -> None:
    with serve(rules, drain_s=0.7) as headgate:
        begun = time.monotonic()
        assert headgate.stop() == 0
        assert time.monotonic() - begun >= 0.7


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once_and_leaves_no_socket(
    rules: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    sockets = tmp_path / "s"
    sockets.mkdir()
    undisturbed(lambda _: end_at_once(rules, sockets, number, status))


def end_at_once(rules: Path, sockets: Path, number: signal.Signals, status: int) -> list[str]:
    """What it said last, if it was cut off, not cut short: it has half a second to stop in good order."""
    with serve(rules, grpc=f"unix:{sockets}/g", http=f"unix:{sockets}/h", drain_s=FOR_EVER_S) as headgate:
        assert headgate.get("/readyz").status == 200
        headgate.send(signal.SIGTERM)
        headgate.wait_for_event("stopping")
        headgate.send(number)
        assert headgate.wait_exit() == status
        assert list(sockets.iterdir()) == []
        last = headgate.events[-1]["event"]
        return [] if last == "stopped" else [last]


def test_a_second_signal_works_even_if_the_loop_is_stuck(rules: Path, tmp_path: Path) -> None:
    """A process whose loop never comes back is cut, its sockets removed."""
    socket_path = tmp_path / "g"
    script = (
        "import sys, time\n"
        "from headgate.runtime import service\n"
        "async def stuck(self):\n"
        "    while True: time.sleep(0.01)\n"
        "service.Service._drain = stuck\n"
        "from headgate.cli import main\n"
        "sys.exit(main())\n"
    )
    flags = ["serve", "--rules", str(rules), "--grpc", f"unix:{socket_path}", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *flags],
        stderr=subprocess.PIPE,
        env=clean_environ({"TMPDIR": str(tmp_path)}),
        text=True,
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr)
        assert any('"serving"' in line for line in lines)
        process.send_signal(signal.SIGTERM)
        assert any('"stopping"' in line for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
        assert not socket_path.exists()
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_two_signals_while_starting_leave_the_sockets_of_others_alone(tmp_path: Path) -> None:
    sockets = tmp_path / "s"
    sockets.mkdir()
    grpc_address, http_address = f"unix:{sockets}/g", f"unix:{sockets}/h"
    with serve(write_rules(tmp_path / "rules"), grpc=grpc_address, http=http_address) as first:
        there = sorted(os.listdir(sockets))
        flags = ["--grpc", grpc_address, "--http", http_address, "--log-level", "debug"]
        with start("serve", "--rules", str(_many_rules(tmp_path / "many")), *flags) as second:
            second.wait_for_event("starting")
            wait_until(lambda: _send_again(second), "the end")
            assert second.wait_exit() == 143
        assert sorted(os.listdir(sockets)) == there
        assert first.get("/readyz").status == 200


def _send_again(headgate: Headgate) -> bool:
    """Signals that come while one is pending are merged: repeat them until it has ended."""
    headgate.send(signal.SIGTERM)
    return headgate.process.poll() is not None


def _many_rules(directory: Path) -> Path:
    many = "".join(
        f"- {{key: user, value: u{n}, rate_limit: {{unit: hour, requests_per_unit: 5}}}}\n" for n in range(40_000)
    )
    return write_rules(directory, f"domain: edge\ndescriptors:\n{many}")


def test_a_signal_while_starting_is_a_clean_end(tmp_path: Path) -> None:
    rules = _many_rules(tmp_path / "rules")
    with start("serve", "--rules", str(rules), "--log-level", "debug", *FREE_PORTS) as it:
        it.wait_for_event("starting")
        it.send(signal.SIGTERM)
        assert it.wait_exit() == 0
        assert "serving" not in [event["event"] for event in it.events]


@pytest.mark.parametrize("transport", ["native", "grpcio"])
@pytest.mark.parametrize("taken", ["grpc", "http"])
def test_a_port_in_use_is_one_clear_line(rules: Path, transport: str, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        addresses = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0", taken: address}
        flags = ["--grpc", addresses["grpc"], "--http", addresses["http"], "--transport", transport]
        with start("serve", "--rules", str(rules), "--log-level", "error", *flags) as headgate:
            assert headgate.wait_exit() == 1
            (line,) = headgate.lines
            assert line.startswith("headgate: can't listen on ")
            assert address in line
            assert "in use" in line.lower()


def test_bad_rules_are_listed_whole_and_nothing_is_served(tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules", "domain: a\ndescriptors:\n- key: x\n  rate_limit: {unit: fortnight}\n")
    write_rules(rules, "domain: b\ndescriptorz: []\n", "b.yaml")
    with start("serve", "--rules", str(rules), *FREE_PORTS) as headgate:
        assert headgate.wait_exit() == 1
        text = [line for line in headgate.lines if line.startswith("headgate: ")]
        assert any(line.startswith(f"headgate: {rules}/edge.yaml:4: ") for line in text)
        assert any(line.startswith(f"headgate: {rules}/b.yaml:2: ") for line in text)
        assert "Traceback" not in "\n".join(headgate.lines)


def test_bad_rules_are_survived_with_the_last_good_ones(rules: Path, tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    with serve(rules, "--data-dir", str(data)) as headgate:
        assert data.is_dir()
        version = headgate.get("/rules").json()["digest"]
        headgate.process.kill()
        headgate.wait_exit()
    write_rules(rules, "domain: [\n")
    with serve(rules, "--data-dir", str(data)) as headgate:
        shown = headgate.get("/rules").json()
        assert (shown["digest"], shown["source"], shown["in_sync"]) == (version, "snapshot", False)
        assert shown["last_error"]["problems"]
        assert any(event["level"] == "error" for event in headgate.events)


def test_a_missing_rules_directory_is_one_clear_line(tmp_path: Path) -> None:
    with start(
        "serve", "--rules", str(tmp_path / "none"), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"
    ) as headgate:
        assert headgate.wait_exit() == 1
        (line,) = [line for line in headgate.lines if line.startswith("headgate: ")]
        assert str(tmp_path / "none") in line


def test_a_data_dir_that_can_not_be_made_is_one_clear_line(rules: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "data"
    flags = [*FREE_PORTS, "--data-dir", str(path)]
    with start("serve", "--rules", str(rules), *flags) as headgate:
        assert headgate.wait_exit() == 1
        (line,) = [line for line in headgate.lines if line.startswith("headgate: ")]
        assert line == f"headgate: data_dir {path}: can't be created: Not a directory"


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_stale_sockets_are_replaced_and_ours_are_removed(rules: Path, tmp_path: Path, transport: str) -> None:
    sockets = tmp_path / "s"
    sockets.mkdir()
    paths = [str(sockets / "g"), str(sockets / "h")]
    for path in paths:
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(path)
        stale.close()
    addresses = [f"unix:{path}" for path in paths]
    with serve(rules, "--transport", transport, grpc=addresses[0], http=addresses[1]) as headgate:
        assert [headgate.grpc, headgate.http] == addresses
        assert headgate.get("/readyz").status == 200
        with Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
            assert client.should_rate_limit("edge", BULK).admitted
        with start("serve", "--rules", str(rules), "--grpc", addresses[0], "--http", "127.0.0.1:0") as second:
            assert second.wait_exit() == 1
            assert second.lines[-1] == f"headgate: {addresses[0]} is in use by another process"
        assert headgate.get("/readyz").status == 200
        assert headgate.stop() == 0
        assert list(sockets.iterdir()) == []


def test_a_reload_goes_on_while_serving(rules: Path) -> None:
    with serve(rules) as headgate:
        before = headgate.get("/rules").json()
        write_rules(rules, "domain: edge\ndescriptors: [\n")
        wait_until(lambda: headgate.get("/rules").json()["rejected"] == 1, "the refusal")
        refused = headgate.get("/rules").json()
        assert (refused["version"], refused["in_sync"]) == (before["version"], False)
        assert refused["last_error"]["problems"][0].startswith(f"{rules}/edge.yaml:")
        write_rules(
            rules, "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n"
        )
        wait_until(lambda: headgate.get("/rules").json()["in_sync"], "the new rules")
        with Client(headgate.grpc, timeout_s=PATIENCE_S) as client:
            assert [client.should_rate_limit("edge", [{"user": "a"}]).admitted for _ in range(2)] == [True, False]


def test_settings_come_from_flag_environment_and_file_in_that_order(rules: Path, tmp_path: Path) -> None:
    config = tmp_path / "headgate.yaml"
    config.write_text(f"rules: {rules}\nregion: file\nnode_id: file\ngrpc: 127.0.0.1:0\nhttp: 127.0.0.1:0\n")
    environ = {"HEADGATE_CONFIG": str(config), "HEADGATE_REGION": "env", "HEADGATE_NODE_ID": "env"}
    with start("serve", "--node-id", "flag", "--drain-s", "0", environ=environ) as headgate:
        serving = headgate.wait_for_event("serving")
        assert (serving["region"], serving["node"]) == ("env", "flag")
        assert headgate.stop() == 0


def test_a_stderr_that_nobody_reads_does_not_stall_decisions(rules: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    flags = ["serve", "--rules", str(rules), *FREE_PORTS, "--drain-s", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate", *flags], stderr=write, env=clean_environ({"TMPDIR": str(tmp_path)})
    )
    try:
        os.close(write)
        serving = json.loads(next(line for line in _lines(read) if b'"serving"' in line))
        with Client(serving["grpc"], timeout_s=PATIENCE_S) as client:
            client.should_rate_limit("edge", BULK)
            _fill(read, process, rules)
            for _ in range(200):
                assert client.should_rate_limit("edge", BULK).admitted
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(read)


def _lines(read: int) -> "list[bytes]":
    data = b""
    while b'"serving"' not in data or not data.endswith(b"\n"):
        more = os.read(read, 65536)
        assert more, f"it ended without serving: {data.decode()}"
        data += more
    return data.splitlines()


def _fill(read: int, process: "subprocess.Popen[bytes]", rules: Path) -> None:
    """Make the server log until the pipe is full: nobody reads it from here on."""
    import fcntl
    import termios

    def waiting() -> int:
        answer = bytearray(4)
        fcntl.ioctl(read, termios.FIONREAD, answer)
        return int.from_bytes(answer, sys.byteorder)

    many = "".join(f"- {{key: k{n}, wrong_{'x' * 300}: {n}}}\n" for n in range(100))
    for attempt in range(40):
        write_rules(rules, f"domain: edge\ndescriptors:\n# {attempt}\n{many}")
        enough = min(waiting() + 10_000, 60_000)
        wait_until(lambda enough=enough: waiting() > enough, "more lines")  # type: ignore[misc]
        if waiting() > 60_000:
            return
    raise AssertionError("the pipe never filled")
