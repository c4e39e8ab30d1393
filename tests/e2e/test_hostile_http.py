"""Callers over HTTP who mean harm, against a real process: others are served, probes answered, tokens taken back."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.segments import SegmentSink

from tests.support.headgate import Headgate, http_request, serve, write_rules
from tests.support.waiting import wait_until
from tests.unit.decision_log.test_index import BOUNDS, SOURCE, batch, caller, record

BEARER = {"Authorization": "Bearer old"}
CONNECTIONS = 30


@contextlib.contextmanager
def hammering(attack: Callable[[threading.Event], None], threads: int) -> Iterator[None]:
    """Several threads that attack until the block ends."""
    stop = threading.Event()
    running = [threading.Thread(target=attack, args=(stop,), daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join()


def connection_to(address: str, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5, source_address=(source, 0))


@pytest.fixture
def large_log(tmp_path: Path) -> Path:
    """A log in which one descriptor is in every block: an explanation reads as much as it may, for seconds."""
    data, now_ms = tmp_path / "data", int(time.time() * 1000)
    sink, who = SegmentSink(data, SOURCE, BOUNDS), hash_of_descriptor("d", caller(1))
    page = batch([record(number, now_ms - 1_000_000 + number, number % 20 or who) for number in range(1_000)])
    for _ in range(1_500):
        sink.decisions(page, now_ms)
    sink.close()
    return data


def test_a_token_that_is_taken_back_ends_within_a_second_while_the_log_is_asked_for(
    tmp_path: Path, large_log: Path
) -> None:
    """Explanations took the threads in which token files are looked at: it worked on for a minute."""
    tokens = tmp_path / "tokens"
    tokens.write_text("old\nnew\n")
    rules = write_rules(tmp_path / "rules")
    with serve(rules, "--data-dir", str(large_log), "--token-file", str(tokens)) as headgate:
        target = f"/explain?domain=d&entries={quote(json.dumps([list(pair) for pair in caller(1)]))}"
        answered: list[int] = []

        def ask(stop: threading.Event) -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    answered.append(http_request(headgate.http, "GET", target, None, BEARER).status)

        with hammering(ask, CONNECTIONS):
            wait_until(lambda: 503 in answered, "more than it answers")
            tokens.write_text("new\n")
            began_s = time.monotonic()
            wait_until(lambda: _rules(headgate) == 401, "the end of the token", timeout_s=30)
            assert time.monotonic() - began_s < 5, "looked at once a second, on a busy machine"
            assert headgate.get("/healthz").status == 200
        assert 200 in answered
        assert set(answered) <= {200, 503, 401}


def _rules(headgate: Headgate) -> int:
    return http_request(headgate.http, "GET", "/rules?limit=0", None, BEARER).status


def test_an_explanation_ends_when_its_caller_leaves(tmp_path: Path, large_log: Path) -> None:
    with serve(write_rules(tmp_path / "rules"), "--data-dir", str(large_log)) as headgate:
        entries = quote(json.dumps([list(pair) for pair in caller(1)]))
        asked = f"GET /explain?domain=d&entries={entries} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        for _ in range(50):
            with connection_to(headgate.http) as connection:
                connection.sendall(asked)
        answer = headgate.get(f"/explain?domain=d&entries={entries}")
        assert answer.status == 200, "nobody is in line any more"


def test_health_checks_are_answered_while_half_bodies_take_every_place(tmp_path: Path) -> None:
    head = b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    with serve(write_rules(tmp_path / "rules")) as headgate:

        def half(stop: threading.Event) -> None:
            held: list[socket.socket] = []
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    held.append(connection_to(headgate.http, "127.0.0.2"))
                    held[-1].sendall(head)
                if len(held) > 60:
                    held.pop(0).close()
            for each in held:
                each.close()

        with hammering(half, 4):
            cut = 'headgate_http_connections_cut_total{reason="address"}'
            wait_until(lambda: cut in headgate.get("/metrics").body.decode(), "all places to be taken")
            for _ in range(50):
                for path in ("/healthz", "/readyz"):
                    assert headgate.get(path).status == 200


def test_a_body_over_8_kib_is_refused_whatever_grpc_takes(tmp_path: Path) -> None:
    with serve(write_rules(tmp_path / "rules"), "--max-message-bytes", "1000000") as headgate:
        many = {"domain": "edge", "descriptors": [{"entries": [{"key": "bulk", "value": "v"}]}] * 1_400}
        answer = headgate.post_json(many)
        assert (answer.status, answer.json()) == (413, {"error": "the body may have 8192 bytes"})
        assert headgate.post_json({**many, "descriptors": many["descriptors"][:32]}).status == 200
