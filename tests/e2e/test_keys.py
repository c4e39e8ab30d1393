"""Looking at keys and overriding their limits, with real processes, on the command line."""

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from headgate.cli import commands as cli
from headgate_client import Headgate

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import Headgate as Process
from tests.support.headgate import run, serve, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.workers import serve_workers

RULES = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 5}
- key: bucket
  rate_limit: {unit: year, requests_per_unit: 10, burst: 4, algorithm: gcra}
- key: open
  rate_limit: {unlimited: true}
"""


PATIENT = ("--origin-deadline-ms", "1000")
"""However busy the machine, what is decided at the origin is: no failure policy has a say."""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "admins"
    path.write_text("# operators\nalice=token-of-alice\n")
    return path


@contextlib.contextmanager
def served(rules: Path, tokens: Path, *flags: str, **addresses: Any) -> Iterator[tuple[Process, "Desk"]]:
    admin = ("--admin-grpc", "127.0.0.1:0", "--admin-token-file", str(tokens))
    with serve(rules, *admin, *flags, **addresses) as headgate:
        yield headgate, Desk(headgate.wait_for_event("serving")["admin_grpc"], tokens)


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def command(*arguments: str) -> Ended:
    """The command line in this process: another one takes longer to start than to ask."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.run([*arguments[:2], "--timeout", str(PATIENCE_S), *arguments[2:]])
    return Ended(status, out.getvalue(), err.getvalue())


class Desk:
    """`headgate key` against one server."""

    def __init__(self, address: str, tokens: Path) -> None:
        self.address = address
        self._tokens = tokens

    def run(self, action: str, *arguments: str) -> "Ended":
        return command("key", action, "--addr", self.address, "--token-file", str(self._tokens), *arguments)

    def __call__(self, action: str, *arguments: str) -> Any:
        ended = self.run(action, *arguments)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def get(self, descriptor: str) -> Any:
        return self("get", "--domain", "edge", descriptor)


def admitted(address: str, key: str, value: str, most: int = 30) -> int:
    """How many of that many requests are."""
    with Headgate(address, "edge", timeout=5, on_error="raise") as client:
        return sum(client.check([{key: value}]).allowed for _ in range(most))


def remaining(address: str, value: str) -> int | None:
    """By a request that costs nothing."""
    with Headgate(address, "edge", timeout=5, on_error="raise") as client:
        return client.check([{"user": value}], cost=0).remaining


class Terminal(io.StringIO):
    """Where somebody reads."""

    def isatty(self) -> bool:
        return True


def sentences(address: str, tokens: Path, action: str, *arguments: str) -> list[str]:
    with contextlib.redirect_stdout(Terminal()) as out:
        server = ("--addr", address, "--token-file", str(tokens), "--timeout", str(PATIENCE_S))
        cli.run(["key", action, *server, *arguments])
    return out.getvalue().splitlines()


def test_somebody_at_a_terminal_is_answered_in_sentences(rules: Path, tokens: Path) -> None:
    key, why = ("--domain", "edge", "user=ann"), ("--why", "a launch")
    with RedisServer() as redis, served(rules, tokens, "--origin", redis.url, *PATIENT) as (headgate, desk):
        said = partial(sentences, desk.address, tokens)
        assert admitted(headgate.grpc, "user", "ann") == 5
        wait_until(lambda: any("counted" in line for line in said("get", *key)), "the region to know of it")
        first, rule, counted = said("get", *key)
        assert first.startswith("user=ann of domain edge: 5 of 5 used, 0 left; the next fits in ")
        assert rule.startswith("  rule      edge: user: 5 in ")
        assert counted.startswith("  counted   5 by ")
        (made,) = said("override", *key, *why, "--limit", "8", "--until", "1h")
        assert made.startswith("user=ann of domain edge has a limit of 8, which is 8 in ")
        assert ", by alice: a launch: on every node of the region" in made
        assert any(line.startswith("  override  8, which is 8 in ") for line in said("get", *key))
        assert said("override", "--list")[0].startswith("user=ann of domain edge: 8, which is 8 in ")
        assert said("override", *key, *why, "--remove") == ["user=ann of domain edge has the limit of its rule again."]
        assert said("override", *key, *why, "--remove") == ["user=ann of domain edge had no override."]
        assert said("override", "--list") == ["no limit is overridden"]
        (reset,) = said("reset", *key, *why)
        assert reset.startswith("user=ann of domain edge is reset: its limit is whole again here, and within")
        assert json.loads("\n".join(said("get", *key, "--json")))["used"] == 0


def test_an_override_changes_one_key_until_it_ends_or_is_removed(rules: Path, tokens: Path) -> None:
    with served(rules, tokens) as (headgate, desk):
        assert admitted(headgate.grpc, "user", "ann") == 5
        made = desk("override", "--domain", "edge", "user=ann", "--limit", "8", "--until", "1h", "--why", "a launch")
        assert (made["limit"], made["who"], made["why"], made["applies"]) == (8, "alice", "a launch", True)
        assert admitted(headgate.grpc, "user", "ann") == 3, "what was counted before still counts"
        assert admitted(headgate.grpc, "user", "bob") == 5
        desk("override", "--domain", "edge", "user=bob", "--factor", "2", "--until", "9d",
             "--why", "twice")  # fmt: skip
        assert admitted(headgate.grpc, "user", "bob") == 5
        listed = desk("override", "--list")
        assert [item["key"]["entries"][0]["value"] for item in listed["overrides"]] == ["ann", "bob"]
        assert listed["most"] == 10_000
        desk("override", "--domain", "edge", "user=a\x9b31mb\u202e", "--limit", "8", "--until", "1h", "--why", "odd")
        assert desk.run("override", "--list").stdout.replace("\n", "").isprintable()
        assert desk("override", "--domain", "edge", "user=ann", "--remove", "--why", "over") == {"removed": True}
        assert admitted(headgate.grpc, "user", "ann") == 0
        again = desk.run("override", "--domain", "edge", "user=ann", "--remove", "--why", "again")
        assert (again.returncode, json.loads(again.stdout)) == (1, {"removed": False})

        audit = headgate.wait_for_event("key_overridden")
        assert (audit["who"], audit["why"], audit["key"], audit["limit"]) == ("alice", "a launch", "edge: user=ann", 8)
        assert audit["peer"].startswith("ipv4:127.0.0.1")
        assert headgate.wait_for_event("key_override_removed")["why"] == "over"
        metrics = headgate.get("/metrics").body.decode()
        assert "\nheadgate_overrides 2.0\n" in metrics

        short = desk("override", "--domain", "edge", "user=cyd", "--limit", "0", "--until", "2s", "--why", "abuse")
        assert short["limit"] == 0
        assert admitted(headgate.grpc, "user", "cyd") == 0
        wait_until(lambda: admitted(headgate.grpc, "user", "cyd", 1) == 1, "the override to end")


def test_a_bucket_is_overridden_with_its_burst(rules: Path, tokens: Path) -> None:
    with served(rules, tokens) as (headgate, desk):
        desk("override", "--domain", "edge", "bucket=a", "--factor", "2.5", "--until", "1h", "--why", "more")
        assert admitted(headgate.grpc, "bucket", "a") == 10
        state = desk.get("bucket=a")
        assert (state["limit"]["burst"], state["rule_limit"]["burst"], state["remaining"]) == (10, 4, 0)


def test_get_shows_a_key_and_makes_none(rules: Path, tokens: Path) -> None:
    with served(rules, tokens) as (headgate, desk):
        state = desk.get("user=ann")
        assert (state["used"], state["remaining"], state["frees_in_ms"], state["node"]["known"]) == (0, 5, 0, False)
        assert "\nheadgate_cells_live 0.0\n" in headgate.get("/metrics").body.decode()
        assert admitted(headgate.grpc, "user", "ann") == 5
        state = desk.get("user=ann")
        assert (state["used"], state["remaining"], state["node"]["current"]["own"]) == (5, 0, 5)
        assert state["frees_in_ms"] > 0
        assert state["rule"] == "edge: user"
        assert "region" not in state


def test_two_nodes_and_a_redis_that_is_wiped(rules: Path, tokens: Path, tmp_path: Path) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, *PATIENT)
        one, desk = stack.enter_context(served(rules, tokens, *flags, "--node-id", "one"))
        two = stack.enter_context(serve(rules, *flags, "--node-id", "two", "--data-dir", str(tmp_path / "two")))
        assert admitted(one.grpc, "user", "ann", 2) == 2
        assert admitted(two.grpc, "user", "ann", 1) == 1
        state = desk.get("user=ann")
        assert (state["used"], state["remaining"], state["region"]["current_total"]) == (3, 2, 3)
        assert {run["run"].partition("/")[0]: run["current"] for run in state["region"]["runs"]} == {"one": 2, "two": 1}

        desk("override", "--domain", "edge", "user=ann", "--limit", "10", "--until", "1h", "--why", "a launch")
        wait_until(lambda: remaining(two.grpc, "ann") == 7, "the override on the other node")
        redis.client.flushall()
        wait_until(lambda: redis.client.exists("headgate:local/book"), "the book to be taught")
        wait_until(lambda: remaining(two.grpc, "ann") == 7, "the override on the other node")
        assert len(desk("override", "--list")["overrides"]) == 1

        # Every node ends, and the shard forgets: what is in the data directory comes back.
        one.stop()
        two.stop()
        redis.client.flushall()
        with serve(rules, *flags, "--node-id", "two", "--data-dir", str(tmp_path / "two")) as again:
            wait_until(lambda: remaining(again.grpc, "ann") == 10, "the override from the data directory")
            with served(rules, tokens, *flags) as (_, third):
                wait_until(lambda: len(third("override", "--list")["overrides"]) == 1, "the book to be taught")
                redis.stop()
                assert remaining(again.grpc, "ann") == 10, "kept over an outage"
                failed = third.run("override", "--domain", "edge", "user=ann", "--remove", "--why", "no use")
                assert failed.returncode == 2
                assert "UNAVAILABLE" in failed.stderr
                state = third.get("user=ann")
                assert "the shard could not be asked" in state["region_error"]


def test_only_operators_come_in_and_never_where_decisions_are_made(rules: Path, tokens: Path, tmp_path: Path) -> None:
    with served(rules, tokens) as (headgate, desk):
        other = tmp_path / "other"
        other.write_text("somebody-elses\n")
        stranger = command(
            "key", "get", "--addr", desk.address, "--token-file", str(other), "--domain", "edge", "user=a"
        )
        assert (stranger.returncode, "UNAUTHENTICATED" in stranger.stderr) == (2, True)
        nobody = command("key", "get", "--addr", desk.address, "--domain", "edge", "user=a")
        assert "UNAUTHENTICATED" in nobody.stderr
        misplaced = Desk(headgate.grpc, tokens).run("get", "--domain", "edge", "user=a")
        assert (misplaced.returncode, "UNIMPLEMENTED" in misplaced.stderr) == (2, True)
        tokens.write_text("bob=token-of-bob\n")
        wait_until(lambda: desk.run("get", "--domain", "edge", "user=a").returncode == 0, "the new token")
    refused = run("serve", "--rules", str(rules), "--admin-grpc", "127.0.0.1:0")
    assert (refused.returncode, "admin_token_file or admin_tls_client_ca" in refused.stderr) == (2, True)


def test_certificates_say_who_it_is(rules: Path, tmp_path: Path) -> None:
    ca = authority("operators")
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem)
    for name in ("server", "ann", "mallory"):
        issued_by(ca, name, name).write(tmp_path, name)
    flags = (
        *("--admin-grpc", "127.0.0.1:0"),
        *("--admin-tls-cert", str(tmp_path / "server.crt"), "--admin-tls-key", str(tmp_path / "server.key")),
        *("--admin-tls-client-ca", str(tmp_path / "ca.pem"), "--admin-tls-client-san", "ann"),
    )
    with serve(rules, *flags) as headgate:
        address = headgate.wait_for_event("serving")["admin_grpc"]

        def override(name: str | None) -> Ended:
            shown = (
                () if name is None else ("--tls-cert", f"{tmp_path}/{name}.crt", "--tls-key", f"{tmp_path}/{name}.key")
            )
            tls = ("--addr", address, "--tls-ca", str(tmp_path / "ca.pem"), "--tls-server-name", "server", *shown)
            key = ("--domain", "edge", "user=a", "--limit", "1", "--until", "1h", "--why", "test")
            return command("key", "override", *tls, *key)

        assert override("ann").returncode == 0
        assert headgate.wait_for_event("key_overridden")["who"] == "ann"
        assert "PERMISSION_DENIED" in override("mallory").stderr
        assert "UNAVAILABLE" in override(None).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--domain", "edge", "user=a", "--limit", "1", "--why", "x"), "--until"),
        (("--domain", "edge", "user=a", "--limit", "1", "--until", "2h"), "why: say why"),
        (("--domain", "edge", "user=a", "--limit", "1", "--until", "soon", "--why", "x"), "expected 90s"),
        (("--domain", "edge", "user=a", "--limit", "1", "--until", "2020-01-01T00:00:00Z", "--why", "x"), "ms ago"),
        (("--domain", "edge", "user=a", "--limit", "1", "--until", "2020-01-01T00:00:00", "--why", "x"), "time zone"),
        (("--domain", "edge", "user=a", "--limit", "1", "--until", "500d", "--why", "x"), "at most 400 days"),
        (("--domain", "edge", "user=a", "--factor", "1001", "--until", "1h", "--why", "x"), "at most 1000"),
        (("--domain", "edge", "open=a", "--limit", "1", "--until", "1h", "--why", "x"), "unlimited"),
        (("--domain", "edge", "none=a", "--limit", "1", "--until", "1h", "--why", "x"), "no rule with a limit"),
        (("--domain", "else", "user=a", "--limit", "1", "--until", "1h", "--why", "x"), "no rule file has the domain"),
        (("--limit", "1", "--until", "1h", "--why", "x"), "which key"),
        (("user=a", "--list"), "takes no descriptor"),
    ],
)
def test_a_bad_override_is_refused_with_what_is_wrong(desk: Desk, arguments: tuple[str, ...], said: str) -> None:
    ended = desk.run("override", *arguments)
    assert ended.returncode == 2
    assert said in ended.stderr


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    directory = tmp_path_factory.mktemp("desk")
    tokens = directory / "admins"
    tokens.write_text("alice=token-of-alice\n")
    with served(write_rules(directory / "rules", RULES), tokens) as (_, desk):
        yield desk


def test_of_several_workers_the_first_one_serves_operators(rules: Path, tokens: Path, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/admin.sock"
    admin = ("--admin-grpc", address, "--admin-token-file", str(tokens))
    with RedisServer() as redis, serve_workers(rules, redis.url, 2, *admin) as headgate:
        desk = Desk(address, tokens)
        desk("override", "--domain", "edge", "user=ann", "--limit", "9", "--until", "1h", "--why", "a launch")
        assert admitted(headgate.grpc, "user", "cyd") == 5
        wait_until(lambda: {remaining(headgate.grpc, "ann") for _ in range(8)} == {9}, "the override on all workers")


def test_a_reset_key_is_whole_again(rules: Path, tokens: Path) -> None:
    with served(rules, tokens) as (headgate, desk):
        for key in ("user", "bucket"):
            most = admitted(headgate.grpc, key, "ann")
            desk("reset", "--domain", "edge", f"{key}=ann", "--why", "our own load test")
            assert admitted(headgate.grpc, key, "ann") == most
        assert headgate.wait_for_event("key_reset")["why"] == "our own load test"
        assert "why: say why" in desk.run("reset", "--domain", "edge", "user=ann").stderr


def test_a_reset_is_in_force_on_all_nodes_and_nothing_comes_back(rules: Path, tokens: Path) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        flags = ("--origin", redis.url, *PATIENT)
        one, desk = stack.enter_context(served(rules, tokens, *flags, "--node-id", "one"))
        two = stack.enter_context(serve(rules, *flags, "--node-id", "two"))
        for key in ("user", "bucket"):
            total = admitted(one.grpc, key, "ann", 2) + admitted(two.grpc, key, "ann")
            assert admitted(two.grpc, key, "ann", 3) == 0
            first = desk("reset", "--domain", "edge", f"{key}=ann", "--why", "test")["number"]
            wait_until(lambda key=key: admitted(two.grpc, key, "ann", 1) == 1, "the reset on the other node")  # type: ignore[misc]
            redis.client.flushall()
            assert admitted(one.grpc, key, "ann") + admitted(two.grpc, key, "ann") >= total - 1, "nothing comes back"
            assert desk("reset", "--domain", "edge", f"{key}=ann", "--why", "again")["number"] > first
        redis.stop()
        failed = desk.run("reset", "--domain", "edge", "user=ann", "--why", "away")
        assert (failed.returncode, "UNAVAILABLE" in failed.stderr) == (2, True)
