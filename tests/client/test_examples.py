"""Every file of examples/client runs as it is, with a real server on examples/rules, and is driven over sockets."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.serving import get
from tests.support.headgate import Headgate, clean_environ, http_request
from tests.support.redis_servers import RedisServer
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples" / "client"
RAN: set[str] = set()


def run(name: str, headgate: Headgate, *arguments: str) -> str:
    """What an example printed that ends by itself."""
    RAN.add(name)
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=clean_environ({"HEADGATE": headgate.grpc}),
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@contextlib.contextmanager
def running(name: str, headgate: Headgate) -> Iterator[str]:
    """The address of an example that serves, on a free port: it prints it, as its framework does."""
    RAN.add(name)
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environ({"HEADGATE": headgate.grpc, "PORT": "0", "PYTHONUNBUFFERED": "1"}),
    )
    lines: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
    reader.start()
    try:

        def address() -> str | None:
            assert process.poll() is None, "".join(lines)
            found = re.search(r"127\.0\.0\.1:(\d+)", "".join(lines))
            return found[0] if found else None

        wait_until(address, "its address")
        yield str(address())
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            reader.join(PATIENCE_S)
            process.stdout.close()


def test_reserve_and_settle(examples_server: Headgate) -> None:
    said = run("reserve.py", examples_server).splitlines()
    assert said == ["HOW ARE YOU for 11 of 20", "settled: True", "asyncio: 7"]


def test_the_quick_start(examples_server: Headgate) -> None:
    said = run("quick_start.py", examples_server).splitlines()
    assert said[0].endswith("of 100 left")
    assert said[1].startswith("True [")
    assert re.fullmatch(r"try again in \d+\.\d s", said[2])


@pytest.mark.parametrize("name", ["fastapi_app.py", "flask_app.py", "django_app.py"])
def test_a_web_application(examples_server: Headgate, name: str) -> None:
    with running(name, examples_server) as address:
        answer = get(address, "/", x_user="somebody")
        assert (answer.status, answer.json()) == (200, {"hello": "world"})
        # The first may have found a server that was busy; the limit is seen as soon as it is decided.
        wait_until(lambda: get(address, "/", x_user=name).headers.get("ratelimit-limit") == "100", "its limit")
        wait_until(lambda: get(address, "/", x_user="banned").status == 429, "a denial")
        assert int(get(address, "/", x_user="banned").headers["retry-after"]) >= 1
        if name != "django_app.py":
            assert {get(address, "/healthz", x_user="banned").status for _ in range(3)} == {200}
        if name != "flask_app.py":
            header = {"x-user": f"login-{name}"}
            wait_until(lambda: http_request(address, "POST", "/login", b"", header).status == 429, "20 in five minutes")
            assert get(address, "/", x_user=header["x-user"]).status == 200


def test_the_grpc_server_and_its_caller(examples_server: Headgate) -> None:
    with running("grpc_app.py", examples_server) as address:
        assert run("grpc_app.py", examples_server, address) == "hello alice\n"


def test_callers_that_obey(examples_server: Headgate) -> None:
    with running("flask_app.py", examples_server) as address:
        assert run("callers.py", examples_server, f"http://{address}/") == "httpx 200\nrequests 200\n"


def test_a_celery_worker(examples_server: Headgate) -> None:
    RAN.add("celery_app.py")
    with RedisServer() as redis:
        broker = redis.url
        environ = clean_environ({"HEADGATE": examples_server.grpc, "BROKER": broker})
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "examples.client.celery_app", "worker", "-P", "solo", "-l", "INFO"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=environ,
        )
        lines: list[str] = []
        assert worker.stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(worker.stdout or ()))
        reader.start()
        try:
            send = "from examples.client.celery_app import send_mail"
            code = f"{send}; send_mail.delay('alice', 'hi'); send_mail.delay('banned', 'no')"
            subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environ, timeout=PATIENCE_S, check=True)
            wait_until(lambda: "sent to alice: hi" in "".join(lines), "the task that is within its limit")
            wait_until(lambda: re.search(r"retry: Retry in \d", "".join(lines)), "the one that is put back")
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(PATIENCE_S)
            finally:
                worker.kill()
                reader.join(PATIENCE_S)
                worker.stdout.close()
        assert "sent to banned" not in "".join(lines)


def test_a_services_own_tests(tmp_path: Path) -> None:
    """In a directory of its own, so that nothing of this repository's configuration helps it."""
    RAN.add("test_search.py")
    (tmp_path / "test_search.py").write_text((EXAMPLES / "test_search.py").read_text())
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout


def test_no_example_was_left_out() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == RAN
