"""The user of docs/redis.md: the whole suite runs as it (`limited` in conftest.py), and no right is too many.

Without any one of them something is refused, and what is said names the command. What the scripts call is read from the
scripts themselves: a command that a new one needs is missing here before it is missing at an operator's.
"""

import contextlib
import re
from collections.abc import AsyncIterator, Iterator

import pytest
from headgate.clock import SystemClock
from headgate.keys.peek_key import PeekKey
from headgate.origin.exchange_protocol import Priority
from headgate.origin.interface import Origin, OriginError
from headgate.origin.keyspace import LIMIT
from headgate.origin.operations.bulletins import PostBulletin, ReadBulletins
from headgate.origin.operations.call import Call
from headgate.origin.operations.change_list import ChangeList
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.move_records import DropRecords, PublishedName, PutRecords, TakeRecords, WalkRecords
from headgate.origin.operations.read_list import ReadList
from headgate.origin.operations.read_map import ReadMap
from headgate.origin.operations.take_claim import TakeClaim
from headgate.origin.operations.write_map import WriteMap
from headgate.origin.placement import Placement
from headgate.origin.redis_origin.scripts import Scripts
from headgate.origin.region_map import NEW, MapEntry
from headgate.origin.select import open_origin
from headgate.quota.operations.call import QuotaCall
from headgate.quota.operations.keeping import LeaseQuotas, PostQuotas, ReadQuotaRows, ReleaseQuotas, SaveQuotas
from headgate.quota.operations.ready import SharesReady
from headgate.quota.operations.step import StepQuotas

from tests.conformance.origin.cases import CASES, START_MS
from tests.conformance.origin.conftest import Limited, RedisHarness, documented_rights, groups_of_rights
from tests.conformance.origin.test_quota import quota
from tests.conformance.origin.test_redis_faults import YEAR_MS, charge, counted, exchange
from tests.support.operations import OPERATIONS
from tests.support.redis_servers import RedisServer
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE_S

RIGHTS = documented_rights()
CONNECTING = {"+role", "+info", "+evalsha", "+script|load"}
"""What is said to a server outside of scripts: to see what it is, and to run them."""


@pytest.fixture(scope="module")
def own_server() -> Iterator[Limited]:
    with RedisServer() as server:
        yield Limited([server])


def test_there_are_rights_to_try() -> None:
    assert len(RIGHTS) > 15
    assert len(set(RIGHTS)) == len(RIGHTS)


def test_the_rights_are_what_the_scripts_call_and_nothing_else() -> None:
    scripts = Scripts()
    texts = [scripts.of(operation.lua).text.decode() for operation in OPERATIONS]
    called = {f"+{word.lower()}" for text in texts for word in re.findall(r"\('([A-Z]+)'", text)}
    assert set(RIGHTS) == CONNECTING | called


async def cases(harness: RedisHarness) -> AsyncIterator[str]:
    """What is refused of all calls of the table, each at its time."""
    for step in (step for case in CASES for step in case.steps):
        if step.call is None:
            continue
        await harness.set_time(START_MS + step.at_ms)
        try:
            await harness.origin.run(0, step.call, PATIENCE_S)
        except OriginError as refused:
            yield str(refused)


LISTED = 1
"""Number of the list of shards that a tour before has agreed on."""


async def plain(origin: Origin) -> None:
    """What every node asks for."""
    await counted(origin, charge(1, 0))
    await origin.run(0, Heartbeat(b"run"), PATIENCE_S)
    await origin.run(0, PostBulletin(b"run", b"content"), PATIENCE_S)
    await origin.run(0, ReadBulletins(b"2"), PATIENCE_S)


async def with_peers(origin: Origin) -> None:
    """What peers, overrides and reservations ask for besides."""
    later_ms = START_MS + YEAR_MS
    await exchange(origin)
    await origin.run(0, WriteMap([MapEntry(b"name", b"value", later_ms, NEW)], b"drawn"), PATIENCE_S)
    await origin.run(0, ReadMap(0, 10), PATIENCE_S)
    await origin.run(0, PeekKey(b"k", YEAR_MS), PATIENCE_S)
    await origin.run(0, TakeClaim(b"name", b"value", later_ms, LISTED), PATIENCE_S)
    published = [PublishedName(Priority.NORMAL, b"1::name")]
    assert await origin.run(0, PutRecords(LISTED, [], published), PATIENCE_S)
    assert await origin.run(0, DropRecords(LISTED, [], published), PATIENCE_S)


async def with_quotas(origin: Origin) -> None:
    """What a quota and the keeper of its slices ask for besides."""
    await origin.run(0, QuotaCall(charge(2, 0), (quota(offered=1_000),)), PATIENCE_S)
    lease = await origin.run(0, LeaseQuotas(b"me", b"drawn", (b"eu",), LISTED), PATIENCE_S)
    await origin.run(0, PostQuotas(b"eu", b"message"), PATIENCE_S)
    saved = SaveQuotas(lease.fence, lease.generation, ((b"name", b"", b"row"),), b"mark", ())
    assert (await origin.run(0, saved, PATIENCE_S)).kept
    assert (await origin.run(0, ReadQuotaRows(0), PATIENCE_S))[1] == ((b"name", b"row"),)
    step = StepQuotas(lease.fence, b"drawn", b"drawn", 5_000, 20_000, 333_333, YEAR_MS, (), (), 10, LISTED)
    assert (await origin.run(0, step, PATIENCE_S)).kept
    assert await origin.run(0, SharesReady(LISTED), PATIENCE_S)
    await origin.run(0, ReleaseQuotas(b"me"), PATIENCE_S)


async def with_a_change_of_the_list(origin: Origin) -> None:
    """What is asked for besides while keys move to another list of shards."""
    placement = Placement(1, ("here",), ("there",))
    assert await origin.run(0, ChangeList(placement), PATIENCE_S) == placement
    # A key of its own: without one of the rights it stays sealed.
    names = [LIMIT + b"moving"]
    (report,) = charge(3, 0).reports
    await origin.run(0, Call((report._replace(key=b"moving"),), ()), PATIENCE_S)
    page = await origin.run(0, WalkRecords(1, b"run"), PATIENCE_S)
    while page.priority is not None or not set(names) <= set(page.names):
        assert page.next
        page = await origin.run(0, WalkRecords(1, b"run", page.next), PATIENCE_S)
    records = await origin.run(0, TakeRecords(1, names), PATIENCE_S)
    assert await origin.run(0, PutRecords(1, records), PATIENCE_S)
    assert await origin.run(0, ReadList(), PATIENCE_S) == placement
    assert await origin.run(0, DropRecords(1, names), PATIENCE_S)


TOURS = (plain, with_a_change_of_the_list, with_peers, with_quotas)
"""In the order of the page's lists."""


async def as_in_production(origin: Origin) -> AsyncIterator[str]:
    """What is refused of all that nodes and exchangers ask for."""
    for tour in TOURS:
        try:
            await tour(origin)
        except OriginError as refused:
            yield str(refused)


@pytest.mark.parametrize("lists", range(1, len(TOURS) + 1))
async def test_each_list_of_the_page_is_enough_for_what_stands_above_it(lists: int, own_server: Limited) -> None:
    """Copied up to there, and no further."""
    documented = groups_of_rights()
    assert len(documented) == len(TOURS)
    own_server.first.client.flushall()
    own_server.allow("-@all", *(right for group in documented[:lists] for right in group))
    origin = open_origin(own_server.url, clock=SystemClock(), region="here")
    await origin.open()
    try:
        for tour in TOURS[:lists]:
            await tour(origin)
    finally:
        await origin.close()


async def test_a_database_of_its_own_needs_a_right_of_its_own(own_server: Limited) -> None:
    for rights, refused in (((), "the user may not do this (NOPERM): SELECT"), (("+select",), "")):
        own_server.allow(*rights)
        origin = open_origin(f"{own_server.url}/1", clock=SystemClock(), region="here")
        await origin.open()
        try:
            with pytest.raises(OriginError, match=re.escape(refused)) if refused else contextlib.nullcontext():
                await plain(origin)
        finally:
            await origin.close()


async def test_every_key_that_is_written_is_on_the_page(own_server: Limited) -> None:
    """What an operator finds in Redis, he finds explained."""
    own_server.first.client.flushall()
    own_server.allow()
    origin = open_origin(own_server.url, clock=SystemClock(), region="here")
    await origin.open()
    try:
        for tour in TOURS:
            await tour(origin)
    finally:
        await origin.close()
    rows = re.findall(r"^\| `headgate:<region>/(.*?)\|", (ROOT / "docs" / "redis.md").read_text(), re.MULTILINE)
    named = tuple(f"headgate:here/{name.partition('<')[0]}" for row in rows for name in re.findall(r"[^`, ]+", row))
    found = [key.decode() if isinstance(key, bytes) else key for key in own_server.first.client.keys("*")]
    assert len(found) > 8
    assert [key for key in found if not key.startswith(named)] == []


@pytest.mark.parametrize("right", RIGHTS)
async def test_one_right_fewer_and_its_command_is_named(right: str, own_server: Limited) -> None:
    # Redis 6.2 can take away, and names, a command only whole.
    command = right[1:].partition("|")[0]
    named = f"the user may not do this (NOPERM): {command.upper()}"
    own_server.allow(f"-{command}")
    harness = RedisHarness(own_server)
    production = open_origin(own_server.url, clock=SystemClock(), region="here")
    for origin, tour in ((production, as_in_production(production)), (harness.origin, cases(harness))):
        own_server.first.client.flushall()
        own_server.first.command("SCRIPT", "FLUSH")
        await origin.open()
        try:
            if [text async for text in tour if named in text]:
                return
        finally:
            await origin.close()
    pytest.fail(f"nothing said {named!r}")
