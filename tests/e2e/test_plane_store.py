"""Roots of real processes that share a real PostgreSQL: what one is told all have, and who dies takes nothing along."""

import itertools
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from headgate.plane.codec import SERVICE
from headgate.v1 import rules_pb2 as pb

from tests.support.headgate import Headgate, start, write_rules
from tests.support.plane import CountingFollower, PlaneSite, free_address, limits
from tests.support.postgresql import PostgresqlServer
from tests.support.waiting import PATIENCE_S, wait_until

EDGE = "domain: edge\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 5}}\n"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    return server.url(server.database())


@pytest.fixture
def site(tmp_path: Path) -> PlaneSite:
    return PlaneSite(tmp_path / "site")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", EDGE, "edge.yaml")


@contextmanager
def two_roots(site: PlaneSite, url: str, one: str, two: str, *arguments: str) -> Iterator[tuple[Headgate, Headgate]]:
    shared = ("--plane-store", url, *arguments)
    with site.plane("one", one, *shared) as first, site.plane("two", two, *shared) as second:
        yield first, second


def put(user: str, limit: int = 1) -> tuple[str, ...]:
    return ("put", "--domain", "edge", f"user={user}", "--limit", f"{limit}/year", "--now")


class Writer:
    """Changes a rule after the other at one root, until it is told to stop or is refused."""

    def __init__(self, address: str) -> None:
        self.answered: list[tuple[str, int]] = []
        """The reason that each change gave, and its index."""
        self.error: grpc.StatusCode | None = None
        self._address = address
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with grpc.insecure_channel(self._address) as channel:
            call: Any = channel.unary_unary(f"/{SERVICE}/Change", response_deserializer=pb.ChangeResponse.FromString)
            for number in itertools.count():
                why = f"{self._address} {number}"
                rule = b'{"rate_limit":{"requests_per_unit":5,"unit":"year"}}'
                change = pb.RuleChange(domain="edge", path=[pb.Step(key="user", value=why)], rule=rule)
                request = pb.ChangeRequest(changes=[change], why=why, now=True).SerializeToString()
                try:
                    answer = call(request, metadata=[("authorization", "Bearer ops-token")], timeout=PATIENCE_S)
                except grpc.RpcError as error:
                    self.error = cast("grpc.Call", error).code()
                    return
                self.answered.append((why, answer.position.index))
                if self._stopping.is_set():
                    return

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def plane_of(process: Headgate) -> Any:
    return process.get("/readyz").json()["plane"]


def wait_for_followers(site: PlaneSite, root: str, number: int) -> None:
    """Until a root knows of that many, its own and the others', all of them with the last entry in force."""

    def all_have_it() -> bool:
        status, said = site.rules(root, "status", "--json")
        return status == 0 and len(json.loads(said)["nodes"]) == number

    wait_until(all_have_it, "all followers")


def wait_for_store(process: Headgate, *, reached: bool) -> None:
    wait_until(lambda: plane_of(process)["store"]["reached"] is reached, "the root to notice")


def test_what_is_sent_to_either_root_is_on_the_nodes_of_both(site: PlaneSite, rules: Path, url: str) -> None:
    one, two = free_address(), free_address()
    with (
        two_roots(site, url, one, two),
        site.node("n1", one, ready=False) as at_one,
        site.node("n2", two, ready=False) as at_two,
    ):
        assert site.rules(one, "publish", str(rules), "--now")[0] == 0
        at_one.wait_ready()
        at_two.wait_ready()
        wait_for_followers(site, two, 2)
        told = site.rules_json(two, *put("acme"), "--why", "through two")
        assert (told["followers"], told["behind"]) == (2, []), "any root knows who follows the others"
        assert limits(at_one) == limits(at_two) == {"edge:user": 5, "edge:user=acme": 1}
        assert site.rules(one, "rollback")[0] == 0
        assert limits(at_one) == limits(at_two) == {"edge:user": 5}
        assert site.rules_json(one, "history") == site.rules_json(two, "history")
        assert [entry["index"] for entry in site.rules_json(one, "history")] == [3, 2, 1]


def test_a_root_that_is_killed_while_it_writes_loses_and_doubles_nothing(
    site: PlaneSite, rules: Path, url: str
) -> None:
    """Both write at once and as fast as they can; what was answered is in the log, once, and the other goes on."""
    one, two = free_address(), free_address()
    with two_roots(site, url, one, two) as (first, _), Writer(one) as writer, Writer(two) as other:
        wait_until(lambda: len(writer.answered) > 5 and len(other.answered) > 5, "entries of both")
        first.send(signal.SIGKILL)
        first.wait_exit()
        before = len(other.answered)
        wait_until(lambda: len(other.answered) > before + 5, "the other to go on alone")
        other.stop()
        writer.stop()
        entries = site.rules_json(two, "history", "--most", "1000")
    assert writer.error == grpc.StatusCode.UNAVAILABLE
    assert other.error is None
    assert [entry["index"] for entry in entries] == list(range(len(entries), 0, -1))
    for later, earlier in pairwise(entries):
        assert later["predecessor"] == earlier["version"]
    written = [(entry["why"], entry["index"]) for entry in entries]
    answered = [*writer.answered, *other.answered]
    assert set(answered) <= set(written)
    assert len({why for why, _ in written}) == len(written) <= len(answered) + 1, "one may be written and not answered"


def test_a_store_that_is_down_stops_changes_alone_and_heals(
    site: PlaneSite, rules: Path, server: PostgresqlServer, url: str
) -> None:
    one, two = free_address(), free_address()
    with two_roots(site, url, one, two) as (first, second):
        site.rules(one, "publish", str(rules), "--now")
        wait_until(lambda: plane_of(second)["index"] == 1, "the entry at the other root")
        server.stop()
        try:
            for root in (first, second):
                wait_for_store(root, reached=False)
                assert root.get("/readyz").status == 200, "it serves what it has"
                assert "\nheadgate_plane_store_up 0.0\n" in root.get("/metrics").body.decode()
            status, output = site.rules(one, *put("acme"))
            assert (status, "UNAVAILABLE" in output, "store can't be used" in output) == (2, True, True), output
            with site.node("late", two) as late:
                assert limits(late) == {"edge:user": 5}
        finally:
            assert server.start()
        for root in (first, second):
            wait_for_store(root, reached=True)
        assert site.rules(one, *put("acme"))[0] == 0
        wait_until(lambda: plane_of(second)["index"] == 2, "the entry at the other root")
        events = [event["event"] for event in first.events if event["event"].startswith("store_")]
        assert (events[0], events.index("store_reached")) == ("store_lost", len(events) - 1)


def test_a_root_starts_without_its_store_on_what_it_had(
    site: PlaneSite, rules: Path, server: PostgresqlServer, url: str
) -> None:
    address = free_address()
    with site.plane("one", address, "--plane-store", url):
        site.rules(address, "publish", str(rules), "--now")
    nowhere = url.replace(f":{server.port}/", ":1/")
    with site.plane("one", address, "--plane-store", nowhere) as process, site.node("n1", address) as node:
        assert limits(node) == {"edge:user": 5}
        assert plane_of(process)["store"]["reached"] is False
    with site.plane("new", address, "--plane-store", nowhere) as process:
        assert process.get("/readyz").status == 503, "it has nothing to hand on"


def test_a_root_without_a_directory_takes_its_copy_from_the_store(site: PlaneSite, rules: Path, url: str) -> None:
    address = free_address()
    flags = ("--listen", address, "--store", url, "--token-file", str(site.directory / "tokens"))
    for _ in range(2):
        with start("plane", *flags, "--http", "127.0.0.1:0") as process:
            process.wait_for_event("plane_serving")
            assert site.rules(address, "publish", str(rules), "--now")[0] == 0
            assert site.status(address)["head"] == 1


def test_a_root_of_its_own_moves_into_a_store_and_back(site: PlaneSite, rules: Path, url: str) -> None:
    address = free_address()
    with site.plane("root", address):
        site.rules(address, "publish", str(rules), "--now")
    with site.plane("root", address, "--plane-store", url) as process:
        wait_until(lambda: "say --promote" in str(plane_of(process)["store"]), "the reason why it does not")
    with site.plane("root", address, "--plane-store", url, "--promote"), site.node("n1", address) as node:
        assert site.rules(address, *put("acme"))[0] == 0
        assert limits(node) == {"edge:user": 5, "edge:user=acme": 1}
    with pytest.raises(AssertionError, match="--promote"), site.plane("root", address):
        pass
    with site.plane("root", address, "--promote"), site.node("n1", address) as node:
        assert site.rules(address, "rollback")[0] == 0
        assert limits(node) == {"edge:user": 5}


STAGED = ("put", "--domain", "edge", "user=acme", "--limit", "1/year", "--why", "staged")


def test_a_rollout_goes_on_at_the_roots_that_are_left_and_takes_each_step_once(
    site: PlaneSite, rules: Path, url: str
) -> None:
    one, two = free_address(), free_address()
    stages = ("--rollout-stages", "20%,60%", "--rollout-stage-s", "2")
    with two_roots(site, url, one, two, *stages) as (first, second), site.node("n2", two, ready=False) as node:
        site.rules(one, "publish", str(rules), "--now")
        node.wait_ready()
        assert site.rules(one, *STAGED)[0] == 0
        wait_until(lambda: plane_of(second)["index"] >= 3, "the next stage, of both roots")
        first.send(signal.SIGKILL)
        first.wait_exit()
        wait_until(lambda: plane_of(second)["index"] >= 4, "the end of it")
        assert not site.status(two)["rollouts"]
        wait_until(lambda: limits(node) == {"edge:user": 5, "edge:user=acme": 1}, "the rule in force")
        entries = site.rules_json(two, "history")
    assert [entry["who"] for entry in entries] == ["plane", "plane", "ops", "ops"], entries


def test_denials_that_nodes_of_another_root_count_take_a_rollout_back(site: PlaneSite, rules: Path, url: str) -> None:
    one, two = free_address(), free_address()
    with two_roots(site, url, one, two) as (first, second), CountingFollower(two) as follower:
        site.rules(one, "publish", str(rules), "--now")
        wait_until(lambda: plane_of(second)["followers"] == 1, "the follower")
        assert site.rules(one, *STAGED, "--wait", "0")[0] == 0
        follower.counts = {"staged_decided": 2_000, "staged_denied": 500, "base_decided": 2_000, "base_denied": 0}
        wait_until(lambda: plane_of(first)["index"] == 3, "the plane to take it back")
        last, staged, _ = site.rules_json(one, "history")
    assert (last["who"], "more than the rules in force" in last["why"], staged["why"]) == ("plane", True, "staged")
