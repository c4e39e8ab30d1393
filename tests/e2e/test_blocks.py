"""Callers that are blocked, on the command line and with real processes, also while Redis is away."""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headgate_client import Headgate

from tests.e2e.test_keys import PATIENT, Ended, command
from tests.support.headgate import Headgate as Process
from tests.support.headgate import serve, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 1000000, on_error: open}
- key: path
  descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 1000000}
"""
WHY = ("--domain", "edge", "user=eve", "--why", "scrapes")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "admins"
    path.write_text("alice=token-of-alice\n")
    return path


@contextlib.contextmanager
def served(rules: Path, tokens: Path, *flags: str) -> Iterator[tuple[Process, str]]:
    """A node, and the address of its admin side."""
    with serve(rules, "--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(tokens), *flags) as node:
        yield node, node.wait_for_event("serving")["admin_grpc"]


def block(tokens: Path, addresses: str, *arguments: str) -> Ended:
    return command("block", f"--addr={addresses}", "--token-file", str(tokens), *arguments)


def admitted(node: Process, **entries: str) -> bool:
    return admitted_at(node.grpc, **entries)


def admitted_at(address: str, **entries: str) -> bool:
    with Headgate(address, "edge", timeout=5, on_error="raise") as client:
        return client.check([entries]).allowed


def test_a_blocked_caller_is_denied_on_every_node_until_it_ends_or_is_removed(rules: Path, tokens: Path) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, *PATIENT)
        one, address = stack.enter_context(served(rules, tokens, *flags, "--node-id", "one"))
        two = stack.enter_context(serve(rules, *flags, "--node-id", "two"))
        assert admitted(one, user="eve")
        made = block(tokens, address, *WHY, "--for", "1h")
        assert (made.returncode, made.stderr) == (0, "")
        assert made.stdout.startswith("user=eve of domain edge is blocked until 20")
        assert made.stdout.endswith("on every node of region local within a second.\n")
        assert not admitted(one, user="eve")
        assert not admitted(one, path="/login", user="eve")
        assert admitted(one, user="bob")
        wait_until(lambda: not admitted(two, user="eve"), "the block on the other node")
        assert admitted(two, user="bob")

        audit = one.wait_for_event("caller_blocked")
        assert (audit["who"], audit["why"], audit["key"], audit["stored"]) == (
            "alice", "scrapes", "edge: user=eve", True)  # fmt: skip
        assert block(tokens, address, "--list").stdout.startswith("user=eve of domain edge until 20")
        shown = command("key", "get", "--addr", address, "--token-file", str(tokens), "--domain", "edge", "user=eve")
        assert json.loads(shown.stdout)["blocked"] == "user=eve is blocked by alice: scrapes"
        assert "\nheadgate_blocks 1.0\n" in one.get("/metrics").body.decode()

        gone = block(tokens, address, *WHY, "--remove")
        assert (gone.returncode, "is no longer blocked: on every node" in gone.stdout) == (0, True)
        wait_until(lambda: admitted(two, user="eve"), "the rules to decide again on the other node")
        again = block(tokens, address, *WHY, "--remove")
        assert (again.returncode, again.stdout) == (1, "user=eve of domain edge was not blocked.\n")
        assert block(tokens, address, "--list").stdout == "nobody is blocked\n"

        assert block(tokens, address, *WHY, "--for", "2s").returncode == 0
        assert not admitted(one, user="eve")
        wait_until(lambda: admitted(one, user="eve"), "the block to end")


def test_the_log_of_a_node_alone_says_who_blocked_whichever_node_was_asked_and_after_a_restart(
    rules: Path, tokens: Path, tmp_path: Path
) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, *PATIENT)
        _, address = stack.enter_context(served(rules, tokens, *flags, "--node-id", "one"))
        log = tmp_path / "data"
        other = ("--node-id", "two", "--data-dir", str(log), "--decision-log-values", "true")
        with serve(rules, *flags, *other) as two:
            assert block(tokens, address, *WHY, "--for", "1h").returncode == 0
            wait_until(lambda: not admitted(two, path="/login", user="eve"), "the block on the other node")
            wait_until(lambda: causes_in(log), "the denial in its log")
        assert causes_in(log) == [("blocked", "alice", "scrapes", "user=eve")]
        shutil.rmtree(log)
        with serve(rules, *flags, *other) as two:
            wait_until(lambda: not admitted(two, path="/login", user="eve"), "the block on the node anew")
            wait_until(lambda: causes_in(log), "the denial in its new log")
        assert causes_in(log) == [("blocked", "alice", "scrapes", "user=eve")]


def causes_in(log: Path) -> list[tuple[str, str, str, str]]:
    """Why the caller was denied, by the log of one node."""
    told = command("explain", f"--data-dir={log}", "--domain", "edge", "path=/login,user=eve", "--json")
    return [
        (one["kind"], *(one.get(name) for name in ("who", "why", "entry"))) for one in json.loads(told.stdout)["causes"]
    ]


def test_without_redis_the_nodes_that_are_asked_block_and_tell_it_when_it_is_back(rules: Path, tokens: Path) -> None:
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        flags = ("--origin", redis.url, *PATIENT)
        one, first = stack.enter_context(served(rules, tokens, *flags, "--node-id", "one"))
        two, second = stack.enter_context(served(rules, tokens, *flags, "--node-id", "two"))
        three = stack.enter_context(serve(rules, *flags, "--node-id", "three"))
        nodes = (one, two, three)
        wait_until(
            lambda: all(node.get("/readyz").json()["origin"]["live_nodes"] == 3 for node in nodes),
            "all nodes to be known",
        )
        redis.stop()

        made = block(tokens, first, *WHY, "--for", "1h")
        assert (made.returncode, made.stdout.endswith("on one of region local.\n")) == (1, True), made
        assert "2 more nodes were alive there" in made.stderr
        assert (admitted(one, user="eve"), admitted(two, user="eve")) == (False, True)

        made = block(tokens, f"{first},{second}", *WHY, "--for", "1h")
        assert (made.returncode, made.stdout.endswith("on one, two of region local.\n")) == (1, True), made
        assert "1 more node was alive there" in made.stderr
        assert not admitted(two, user="eve")
        assert admitted(three, user="eve")
        assert one.wait_for_event("caller_blocked")["stored"] is False

        redis.start()
        wait_until(lambda: not admitted(three, user="eve"), "the block on the node that was not asked")
        assert admitted(three, user="bob")


def test_without_redis_every_worker_blocks_also_one_that_is_started_later(
    rules: Path, tokens: Path, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        address = f"unix:{tmp_path}/admin"
        flags = ("--origin", redis.url, *PATIENT, "--workers", "2")
        admin = ("--admin-grpc", address, "--admin-token-file", str(tokens))
        server = stack.enter_context(serve(rules, *flags, *admin, grpc=f"unix:{tmp_path}/grpc"))
        workers = server.grpc.split(",")
        wait_until(lambda: all(live(worker) == 2 for worker in server.get("/readyz").json()["workers"]), "all workers")
        assert [admitted_at(worker, user="eve") for worker in workers] == [True] * 2
        redis.stop()
        made = block(tokens, address, *WHY, "--for", "1h")
        assert made.returncode == 0, made
        assert "and the 1 other worker of its server of region local." in made.stdout
        assert "does not know of it yet" in made.stderr
        wait_until(lambda: not any(admitted_at(worker, user="eve") for worker in workers), "the block on all workers")
        assert all(admitted_at(worker, user="bob") for worker in workers)

        last = server.get("/readyz").json()["workers"][1]
        os.kill(last["pid"], signal.SIGKILL)
        wait_until(lambda: another(server, last["pid"]), "another worker in its place")
        wait_until(lambda: not admitted_at(workers[1], user="eve"), "the block on the new worker")
        assert admitted_at(workers[1], user="bob")
        assert server.stop() == 0


def live(worker: dict[str, Any]) -> int:
    return int(worker["origin"]["live_nodes"])


def another(server: Process, pid: int) -> bool:
    worker = server.get("/readyz").json()["workers"][1]
    return bool(worker["pid"] != pid and worker["state"] == "serving")


def test_a_blocked_callers_denial_is_explained_by_the_block(rules: Path, tokens: Path, tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    with served(rules, tokens, *data, "--decision-log-values", "true") as (node, address):
        assert admitted(node, user="eve")
        assert block(tokens, address, *WHY, "--for", "1h").returncode == 0
        assert not admitted(node, user="eve")
        assert node.stop() == 0
    told = json.loads(command("explain", "--json", *data, "--domain", "edge", "user=eve").stdout)
    (cause,) = told["causes"]
    assert (told["cause"], cause["entry"], cause["who"], cause["why"]) == ("blocked", "user=eve", "alice", "scrapes")
    assert any("user=eve" in sentence and "alice" in sentence for sentence in told["sentences"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("user=eve", "--for", "1h", "--why", "x"), "whom: --domain D"),
        (("--domain", "edge", "user=eve,path=/a", "--for", "1h", "--why", "x"), "one entry names a caller"),
        (("--domain", "edge", "eve", "--for", "1h", "--why", "x"), "expected key=value"),
        (("--domain", "edge", "user=eve", "--for", "1h"), "why: say why"),
        (("--domain", "edge", "user=eve", "--for", "soon", "--why", "x"), "--for 'soon': expected 90s"),
        (("--domain", "edge", "user=eve", "--for", "500d", "--why", "x"), "at most 400 days"),
        (("--domain", "edge", f"user={'e' * 2_000}", "--for", "1h", "--why", "x"), "at most 1024 are stored"),
        (("user=eve", "--list"), "--list: takes no entry"),
    ],
)
def test_a_bad_block_is_refused_with_what_is_wrong(
    admin_side: tuple[Path, str], arguments: tuple[str, ...], said: str
) -> None:
    ended = block(*admin_side, *arguments)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr


@pytest.fixture(scope="module")
def admin_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    directory = tmp_path_factory.mktemp("admin")
    tokens = directory / "admins"
    tokens.write_text("alice=token-of-alice\n")
    with served(write_rules(directory / "rules", RULES), tokens) as (_, address):
        yield tokens, address
