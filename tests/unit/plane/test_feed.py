"""A node's feed on a real plane, in one process: what the store is handed, and how."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from headgate.clock import SystemClock
from headgate.endpoint.admins import Admins, AdminTokens
from headgate.plane.database import Sqlite
from headgate.plane.entry import GONE, LogEntry, Position, RecordKind, RolloutCounts, RuleChange
from headgate.plane.feed import PAUSE_S, PlaneFeed, myself
from headgate.plane.files import rule_changes
from headgate.plane.link import PlaneAddress
from headgate.plane.marks import RolloutRecord
from headgate.plane.plane import Changed, Plane
from headgate.plane.rule_log import Author, RuleLog
from headgate.plane.server import PlaneServer
from headgate.plane.service import RulesService
from headgate.plane.staging import ChangeCall
from headgate.rules.changes import changed
from headgate.rules.feed import ChangesOf, Outcome
from headgate.rules.ruleset import NO_RULES
from headgate.rules.source import RulesSource
from headgate.rules.store import RuleStore
from headgate.telemetry.bounded import BoundedLogger

from tests.support.waiting import until

ANN = Author("ann", "", 0)
LOG = structlog.get_logger("test")
LIMIT = b'{"rate_limit":{"unit":"minute","requests_per_unit":%d}}'


class RecordingStore(RuleStore):
    """Writes down which way rules came."""

    def record(self) -> list[str]:
        self.ways: list[str] = []
        return self.ways

    async def take(self, source: RulesSource) -> Outcome:
        self.ways.append("files")
        return await super().take(source)

    async def change(self, make: Callable[[], ChangesOf | None]) -> Outcome | None:
        made: list[ChangesOf | None] = []

        def noted() -> ChangesOf | None:
            made.append(make())
            return made[-1]

        outcome = await super().change(noted)
        if made[-1] is not None:
            self.ways.append("changes" if made[-1].changes else "nothing")
        return outcome


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[tuple[Plane, str]]:
    """A root that listens."""
    (directory / "tokens").write_text("node=token\n")
    log = RuleLog(Sqlite(directory / "root"))
    log.name("a")
    plane = Plane(log, SystemClock())
    admins = Admins(AdminTokens(str(directory / "tokens"), LOG), certificates=False)
    bounded = BoundedLogger(LOG, SystemClock())
    server = PlaneServer("127.0.0.1:0", plane, RulesService(plane, None, LOG), admins, bounded)
    await server.start()
    try:
        yield plane, server.address
    finally:
        await server.stop(0)
        plane.close()


@asynccontextmanager
async def following(directory: Path, address: str) -> AsyncIterator[RecordingStore]:
    """A node's store that follows."""
    (directory / "token").write_text("token\n")
    plane = PlaneAddress(addresses=(address,), token_file=directory / "token")
    me = myself("n1", "eu", relay=False)
    feed = PlaneFeed(plane, me, directory / "node", clock=SystemClock(), rng=random.Random(1))
    store = RecordingStore(feed, clock=SystemClock(), data_dir=directory / "node", start_empty=True)
    store.record()
    store.load_initial()
    watching = asyncio.ensure_future(store.watch())
    try:
        yield store
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def put(user: str, limit: int = 5, domain: str = "edge") -> RuleChange:
    return RuleChange(domain, (("user", user),), LIMIT % limit)


async def change(plane: Plane, *changes: RuleChange) -> Changed:
    done = await plane.change(changes, ChangeCall(ANN, now=True), "")
    assert not done.problems
    return done


async def arrived(plane: Plane, store: RecordingStore) -> None:
    await until(lambda: store.current.version.digest == plane.log.position.version, "the node to have the head")


async def test_entries_come_as_changes(tmp_path: Path) -> None:
    async with served(tmp_path) as (plane, address), following(tmp_path, address) as store:
        await change(plane, put("ann"), put("bob"), put("x", domain="other"))
        await arrived(plane, store)
        await change(plane, put("ann", 6), RuleChange("edge", (("user", "bob"),), None))
        await arrived(plane, store)
        await change(plane, RuleChange("edge", (), b'{"shard_by": "user"}'))
        await arrived(plane, store)
        await change(plane, RuleChange("other", (("user", "x"),), None))
        await arrived(plane, store)
        assert (store.ways[0], set(store.ways[1:])) == ("files", {"changes"}), "all that there was, and then what came"
        assert store.status.in_sync
        assert (list(store.current.domains), store.current.count) == (["edge"], 1)


async def test_changes_that_come_fast_come_into_force_together(tmp_path: Path) -> None:
    async with served(tmp_path) as (plane, address), following(tmp_path, address) as store:
        await change(plane, put("ann"))
        await arrived(plane, store)
        began_s, before = time.monotonic(), len(store.ways)
        for limit in range(30):
            await change(plane, put("ann", limit))
        await arrived(plane, store)
        assert len(store.ways) - before <= 2 + (time.monotonic() - began_s) / PAUSE_S


async def test_a_restart_compiles_nothing_and_goes_on(tmp_path: Path) -> None:
    async with served(tmp_path) as (plane, address):
        await change(plane, put("ann"))
        async with following(tmp_path, address) as store:
            await arrived(plane, store)
        await change(plane, put("bob"))
        async with following(tmp_path, address) as store:
            assert store.current.count == 1, "the last good rules serve at once"
            await arrived(plane, store)
            assert "files" not in store.ways
            await until(lambda: store.status.in_sync, "the node to be in sync")


async def test_an_entry_that_lost_something_has_all_rules_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as (plane, address), following(tmp_path, address) as store:
        await change(plane, put("ann"))
        await arrived(plane, store)
        before, entries_after = store.current.version, plane.log.entries_after

        def cut_short(*asked: Any) -> list[LogEntry]:
            return [replace(entry, changes=entry.changes[:1]) for entry in entries_after(*asked)]

        monkeypatch.setattr(plane.log, "entries_after", cut_short)
        await change(plane, put("ann", 6), put("bob"))
        await until(lambda: "another version" in str(store.feed.describe()["error"]), "the entry to be refused")
        assert store.current.version == before
        await arrived(plane, store)
        assert store.ways == ["files", "files"]


async def test_a_plane_is_not_silent_while_the_node_is_busy_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.plane.link.SILENCE_S", 0.1)
    busy, replace_all = threading.Event(), RuleLog.replace

    def slowly(self: RuleLog, position: Position, rules: Iterable[RuleChange]) -> None:
        # Many times as long as a plane may be silent.
        busy.wait(1.0)
        replace_all(self, position, rules)

    monkeypatch.setattr(RuleLog, "replace", slowly)
    async with served(tmp_path) as (plane, address):
        await change(plane, put("ann"))
        async with following(tmp_path, address) as store:
            await arrived(plane, store)
            assert store.feed.describe()["streams"] == 1


async def test_wildcards_out_of_order_come_as_changes(tmp_path: Path) -> None:
    async with served(tmp_path) as (plane, address), following(tmp_path, address) as store:
        await change(plane, put("a*"), put("*b"))
        await arrived(plane, store)
        first = RuleChange("edge", (("user", "*"),), b'{"place": 0, ' + (LIMIT % 1)[1:])
        later = RuleChange("edge", (("user", "a*"),), b'{"place": 1, ' + (LIMIT % 5)[1:])
        await change(plane, first, later)
        await arrived(plane, store)
        between = RuleChange("edge", (("user", "ab*"),), b'{"place": 0, ' + (LIMIT % 2)[1:])
        await change(plane, between, RuleChange("edge", (("user", "*b"),), None))
        await arrived(plane, store)
        assert [limit_of(store, user) for user in ("abc", "ac")] == [2, 1]
        assert set(store.ways[1:]) == {"changes"}
    async with following(tmp_path, "127.0.0.1:1") as again:
        assert [limit_of(again, user) for user in ("abc", "ac")] == [2, 1], "on disk too"


# Marks


def staged(user: str, limit: int, place: str = "") -> RuleChange:
    return RuleChange("edge", (("user", user),), b"{" + place.encode() + (LIMIT % limit)[1:], RecordKind.STAGED)


def rollout(share: int, name: str = "r1") -> RuleChange:
    return RolloutRecord("edge", name, share, (10_000,), 60_000, 0, 1, 10_000, "ann", "", 0, 1).record()


async def append(plane: Plane, *changes: RuleChange) -> None:
    """Write records of all kinds, as the plane itself does."""
    await plane.write(lambda: plane.log.change(changes, ANN))
    plane.head_moved()


def limit_of(store: RuleStore, user: str) -> int | None:
    match = store.current.match("edge", [("user", user)])
    return None if match is None else match.limit.requests_per_unit


async def test_a_rollout_comes_as_changes_and_goes_on_so(tmp_path: Path) -> None:
    async with served(tmp_path) as (plane, address), following(tmp_path, address) as store:
        await change(plane, put("ann"), put("bob"))
        await arrived(plane, store)
        await append(
            plane, staged("ann", 1), RuleChange("edge", (("user", "bob"),), GONE, RecordKind.STAGED), rollout(0)
        )
        await arrived(plane, store)
        assert (limit_of(store, "ann"), limit_of(store, "bob")) == (5, 5)
        await append(plane, rollout(1_000_000))
        await arrived(plane, store)
        assert (limit_of(store, "ann"), limit_of(store, "bob")) == (1, None)
        await change(plane, put("cid", 7))
        await arrived(plane, store)
        assert (limit_of(store, "ann"), limit_of(store, "cid")) == (1, 7), "a change beside it goes into both"
        end = [RuleChange(change.domain, change.path, None, change.kind) for change in plane.log.marks()]
        await append(plane, *end)
        await arrived(plane, store)
        assert (limit_of(store, "ann"), limit_of(store, "bob"), limit_of(store, "cid")) == (5, 5, 7)
        assert set(store.ways[1:]) == {"changes"}


async def test_a_restart_in_the_middle_of_a_rollout_compiles_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as (plane, address):
        async with following(tmp_path, address) as store:
            await change(plane, put("ann"))
            await append(plane, staged("ann", 1), rollout(1_000_000))
            await arrived(plane, store)
        async with following(tmp_path, address) as store:
            assert limit_of(store, "ann") == 1, "the last good rules serve at once, with their rollout"
            await until(lambda: store.status.in_sync, "the node to be in sync")
            assert "files" not in store.ways
            feed = store.feed
            assert isinstance(feed, PlaneFeed)
            feed.decided = lambda domain, rollout, staged: (30, 3) if staged else (200, 2)
            counts = (RolloutCounts("edge", "r1", 30, 3, 200, 2),)
            await until(lambda: [state.rollouts for state in plane.followers()] == [counts], "the node to report")


async def test_a_node_that_comes_in_the_middle_of_a_rollout_has_it(tmp_path: Path) -> None:
    """Wildcards among its rules, whose order is the plane's matter."""
    async with served(tmp_path) as (plane, address):
        await change(plane, put("a*"), RuleChange("edge", (("user", "*"),), b'{"place":1,' + (LIMIT % 6)[1:]))
        await append(plane, staged("ab*", 1, '"place":0,'), staged("x*", 2, '"place":2,'), rollout(1_000_000))
        async with following(tmp_path, address) as store:
            await arrived(plane, store)
            assert [limit_of(store, user) for user in ("abc", "ac", "xy")] == [1, 5, 6]


async def test_a_rollout_that_a_node_can_not_read_is_refused_and_its_domain_stays(tmp_path: Path) -> None:
    async with served(tmp_path) as (plane, address), following(tmp_path, address) as store:
        await change(plane, put("ann"), put("x", domain="other"))
        await arrived(plane, store)
        strange = RuleChange("edge", (("user", "ann"),), b'{"rate_limit":{"unit":"eon"}}', RecordKind.STAGED)
        await append(plane, strange, rollout(1_000_000))
        await change(plane, put("y", domain="other"))
        await until(lambda: store.current.count == 3, "the other domain to change")
        await until(lambda: bool(plane.followers()[0].refused), "the plane to hear of it")
        (refusal,) = plane.followers()[0].refused
        assert (refusal.domain, limit_of(store, "ann")) == ("edge", 5)
        assert "eon" in refusal.reason


@pytest.mark.parametrize("seed", range(3))
def test_any_entry_leads_a_rule_set_to_its_version(seed: int, tmp_path: Path) -> None:
    """Rule by rule, deletes and whole domains among them."""
    chance, log, rules = random.Random(seed), RuleLog(Sqlite(tmp_path)), NO_RULES
    for _ in range(60):
        changes = [
            RuleChange(
                chance.choice(("edge", "api")),
                chance.choice(((("a", "1"),), (("a", ""),), (("a", "1"), ("b", "2")), ())),
                chance.choice((b"{}", LIMIT % 1, LIMIT % 2, None, None)),
            )
            for _ in range(chance.randint(1, 3))
        ]
        changes = [item for item in changes if item.path or item.rule in (b"{}", None)]
        changes += [
            RuleChange(
                "edge",
                chance.choice(((("a", "x*"),), (("a", "*y"),), (("a", "x*y"),), (("a", "1"), ("b", "*")))),
                chance.choice((b'{"place":%d,' % chance.randrange(4) + (LIMIT % 1)[1:], None)),
            )
            for _ in range(chance.randrange(3))
        ]
        entry = log.change(changes, ANN)
        if entry is not None:
            rules = changed(rules, rule_changes([entry], log, {}))
            assert rules.version.digest == entry.position.version
    log.close()
