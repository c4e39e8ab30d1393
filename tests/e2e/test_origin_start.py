"""Waiting for the origin, passwords that are never shown, and regions that share a Redis but no counts."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from tests.support.headgate import Answer, Headgate, http_request, run, serve, start, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

PASSWORD = "open/sesame?@%"  # noqa: S105 - of a server that lives for a test
WRONG = "close/sesame?@%"
SPELLINGS = ("sesame", quote(PASSWORD, safe=""), quote(WRONG, safe=""))
PATIENCE_S = 60.0
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: day, requests_per_unit: 5, algorithm: fixed_window, precision: 0}
"""
ALICE = {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


@pytest.fixture
def sockets() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hgo-") as name:
        yield Path(name)


def grpc_health(address: str) -> bytes:
    with grpc.insecure_channel(address) as channel:
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        answer: bytes = check(b"", timeout=PATIENCE_S, wait_for_ready=True)
        return answer


@contextlib.contextmanager
def waiting(rules: Path, sockets: Path, origin: str, *flags: str) -> Iterator[Headgate]:
    """A server that waits for its origin, for longer than the test."""
    addresses = ("--grpc", f"unix:{sockets}/g", "--http", f"unix:{sockets}/h", "--drain-s", "0")
    more = ("--origin", origin, "--wait-for-origin", "600", "--log-level", "debug", *flags)
    with start("serve", "--rules", str(rules), *addresses, *more) as headgate:
        headgate.http = f"unix:{sockets}/h"
        yield headgate
        assert headgate.stop() == 0


def asked(headgate: Headgate, path: str = "/readyz") -> Answer | None:
    try:
        return http_request(headgate.http, "GET", path)
    except OSError:
        return None


def why_not_ready(headgate: Headgate, workers: int) -> str:
    answer = asked(headgate)
    if answer is None:
        return ""
    assert answer.status == 503
    said = answer.json()
    assert said["state"] == "starting"
    first = said["workers"][0] if workers > 1 else said
    return str(first.get("origin", ""))


def assert_not_shown(*texts: str) -> None:
    for text in texts:
        assert not any(spelling in text for spelling in SPELLINGS), text


def command_lines(headgate: Headgate) -> list[str]:
    """As `ps` shows them: of the process and its children."""
    own = headgate.process.pid
    children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    return [Path(f"/proc/{pid}/cmdline").read_text() for pid in (str(own), *children)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_wrong_password_keeps_it_from_being_ready_and_the_right_one_is_found(
    rules: Path, sockets: Path, tmp_path: Path, workers: int
) -> None:
    secret = tmp_path / "origin"
    with RedisServer(password=PASSWORD) as redis:
        secret.write_text(f"redis://:{quote(WRONG, safe='')}@{redis.address}\n")
        with waiting(rules, sockets, f"file:{secret}", "--workers", str(workers)) as headgate:
            wait_until(lambda: "WRONGPASS" in why_not_ready(headgate, workers), "the reason", PATIENCE_S)
            address = f"unix:{sockets}/g" + (".0" if workers > 1 else "")
            assert grpc_health(address) == NOT_SERVING
            assert headgate.post_json(ALICE).status == 503
            assert "serving" not in [event["event"] for event in headgate.events]
            secret.write_text(f"redis://:{quote(PASSWORD, safe='')}@{redis.address}\n")
            headgate.wait_for_event("serving", PATIENCE_S)
            assert grpc_health(address) == SERVING
            assert asked(headgate).status == 200  # type: ignore[union-attr]  # it is there by now
            redis.stop()
            headgate.wait_for_event("origin_failed", PATIENCE_S)
            wait_until(lambda: "refused" in headgate.get("/readyz").body.decode(), "its loss to be seen", PATIENCE_S)
            assert headgate.get("/readyz").status == 200, "ready whatever happens"
            if workers > 1:
                os.kill(headgate.get("/readyz").json()["workers"][1]["pid"], signal.SIGKILL)
                headgate.wait_for_event("worker_ended", PATIENCE_S)
                wait_until(lambda: headgate.get("/readyz").status == 200, "its successor, which waits not", PATIENCE_S)
            shown = [headgate.get(path).body.decode() for path in ("/readyz", "/version", "/rules", "/metrics")]
            assert_not_shown(*shown, *command_lines(headgate))
        assert_not_shown(*headgate.lines)


def test_a_redis_that_starts_late_is_waited_for(rules: Path, sockets: Path) -> None:
    with RedisServer() as first, RedisServer() as late:
        late.stop()
        with waiting(rules, sockets, f"redis://{first.address},{late.address}") as headgate:
            wait_until(lambda: "connection refused" in why_not_ready(headgate, 1), "the reason", PATIENCE_S)
            assert late.start()
            headgate.wait_for_event("serving", PATIENCE_S)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_origin_that_never_answers_ends_the_start(rules: Path, workers: str) -> None:
    url = "redis+sentinel://127.0.0.1:1/limits" if workers == "1" else None
    with RedisServer(password=PASSWORD) as redis:
        environ = {"HEADGATE_ORIGIN": url or f"redis://:{quote(WRONG, safe='')}@{redis.address}"}
        flags = ("--wait-for-origin", "0.2", "--workers", workers, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
        ended = run("serve", "--rules", str(rules), "--log-level", "debug", *flags, environ=environ)
    assert ended.returncode == 1
    said = [line for line in ended.stderr.splitlines() if line.startswith("headgate: ")]
    reason = "connection refused" if url else "the user name or password is wrong (WRONGPASS)"
    assert len(said) == 1, ended.stderr
    assert said[0].startswith("headgate: origin: no answer within 0.2 s (--wait-for-origin): shard 0: ")
    assert reason in said[0]
    assert "Traceback" not in ended.stderr
    assert_not_shown(ended.stderr)


def test_a_password_on_the_command_line_is_warned_of_and_a_bad_url_does_not_show_it(rules: Path) -> None:
    flags = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "debug", "--drain-s", "0")
    ended = run("serve", "--rules", str(rules), "--origin", f"redis://:{PASSWORD}@h:port", *flags)
    assert ended.returncode == 1
    assert_not_shown(ended.stderr, ended.stdout)
    origin = f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:1"
    with start("serve", "--rules", str(rules), "--origin", origin, *flags) as headgate:
        headgate.wait_ready()
        assert headgate.lines[0].startswith("headgate: warning: --origin: others see its password")
        assert headgate.stop() == 0
    assert_not_shown(*headgate.lines)


def test_regions_and_prefixes_on_one_redis_share_no_counts(rules: Path) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:

        def node(*flags: str) -> Headgate:
            more = ("--origin", redis.url, "--origin-deadline-ms", "1000", "--wait-for-origin", "60")
            return stack.enter_context(serve(rules, *more, *flags))

        eu, us, also_eu = node("--region", "eu"), node("--region", "us"), node("--redis-prefix", "headgate:eu")
        assert [eu.post_json(ALICE).status for _ in range(6)] == [200] * 5 + [429]
        assert also_eu.post_json(ALICE).status == 429
        assert us.post_json(ALICE).status == 200
        wait_until(lambda: origin(eu)["live_nodes"] == 2, "two with one prefix")
        assert origin(us)["live_nodes"] == 1
        keys = {key.decode().partition("/")[0] for key in redis.command("KEYS", "*")}
        assert keys == {"headgate:eu", "headgate:us"}


def origin(node: Headgate) -> dict[str, Any]:
    described: dict[str, Any] = node.get("/readyz").json()["origin"]
    return described
