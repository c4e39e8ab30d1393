"""When Redis is away, slow, wrong or silent: what is said of it, and that nothing is counted twice."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from headgate.clock import SystemClock
from headgate.origin.exchange_protocol import ForeignCount, Priority, Stamp
from headgate.origin.interface import Origin, OriginError, OriginTimeout
from headgate.origin.names import exchange_name
from headgate.origin.operations.acknowledge import Acknowledge
from headgate.origin.operations.begin_walk import BeginWalk
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_components import ReadComponents
from headgate.origin.protocol import CellReport, Count, WindowAnswer, WindowReport
from headgate.origin.redis_origin.scripts import Scripts
from headgate.origin.select import open_origin

from tests.conformance.origin.cases import said
from tests.conformance.origin.conftest import RedisSetup, documented_rights
from tests.support.redis_servers import RedisServer, refused_address, wait_until
from tests.support.tcp_proxy import StubRedis, TcpProxy, healthy
from tests.support.waiting import PATIENCE_S, until

TIMEOUT_S = PATIENCE_S
SHORT_S = 0.1
YEAR_MS = 365 * 86_400_000
"""A window that does not end during a test."""
RIGHT = "right"
RIGHTS = documented_rights()


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Origin]:
    """Opened, whatever is behind it: that never fails."""
    origin = open_origin(url, clock=SystemClock())
    try:
        await origin.open()
        yield origin
    finally:
        await origin.close()


async def complaint(origin: Origin, timeout_s: float = TIMEOUT_S) -> str:
    """What a call raises, which is also what the state says."""
    with pytest.raises(OriginError) as raised:
        await origin.run(0, said(), timeout_s)
    (state,) = origin.describe()
    assert not state.connected
    assert str(raised.value) == f"{state.name}: {state.error}"
    return str(raised.value)


def charge(number: int, total: int, *, cost: int = 1, sent: int = 0, sequence: int | None = None) -> Call:
    """One run's report of a year's cell, and one cost to be charged."""
    current = int(time.time() * 1000) // YEAR_MS if sequence is None else sequence
    report = WindowReport(
        b"k", b"run", number, 0, 0, 100, YEAR_MS, 0, True, False, (CellReport(current, total, 0, 0, sent),)
    )  # fmt: skip
    return said(report, wants=((cost,),))


async def counted(origin: Origin, call: Call, timeout_s: float = TIMEOUT_S) -> Count:
    answer = (await origin.run(0, call, timeout_s)).answers[0]
    assert isinstance(answer, WindowAnswer)
    return answer.current


# What is there and can't be used


async def test_a_wrong_password_is_named_and_not_shown() -> None:
    with RedisServer(password=RIGHT) as server:
        async with opened(f"redis://:mistaken@{server.address}") as origin:
            text = await complaint(origin)
            assert text == f"{server.address}: the user name or password is wrong (WRONGPASS)"
            assert "mistaken" not in repr(origin.describe())
        async with opened(f"redis://{server.address}") as origin:
            assert "it wants a password, and the origin URL has none (NOAUTH)" in await complaint(origin)
        async with opened(server.url) as origin:
            await origin.run(0, said(), TIMEOUT_S)


async def test_a_password_where_none_is_wanted_is_named(one_redis: RedisSetup) -> None:
    async with opened(f"redis://:needless@{one_redis.first.address}") as origin:
        assert "it has no password, and the origin URL has one" in await complaint(origin)


async def exchange(origin: Origin) -> None:
    """All that an exchanger asks of a shard."""
    name = exchange_name(b"k", b"k", YEAR_MS)
    sequence = int(time.time() * 1000) // YEAR_MS
    told, gone = ForeignCount(b"k", YEAR_MS, sequence, b"eu", 5, name), exchange_name(b"gone", b"gone", YEAR_MS)
    await origin.run(0, ImportCounts([told], Stamp(b"eu", 1)), TIMEOUT_S)
    changes = await origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"me", b"drawn", 10), TIMEOUT_S)
    assert changes.names == (name,)
    found = await origin.run(0, ReadComponents(b"eu", Priority.NORMAL, [name, gone]), TIMEOUT_S)
    assert [component is not None for component in found] == [True, False]
    assert await origin.run(0, Acknowledge(b"eu", Priority.NORMAL, changes), TIMEOUT_S)
    await origin.run(0, BeginWalk(b"eu", b"walk"), TIMEOUT_S)
    await origin.run(0, MarkFilled(b"eu", b"mark"), TIMEOUT_S)


async def test_a_user_with_few_rights_is_enough_and_one_without_is_named() -> None:
    """The list is the one in docs/redis.md."""
    with RedisServer() as server:
        server.command("ACL", "SETUSER", "limits", "on", ">p%40", "~headgate:*", *RIGHTS)
        server.command("ACL", "SETUSER", "nothing", "on", ">p", "~headgate:*", "+role", "+info")
        async with opened(f"redis://limits:p%2540@{server.address}") as origin:
            assert (await counted(origin, charge(1, 0))).own == 1
            await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
            await exchange(origin)
        async with opened(f"redis://nothing:p@{server.address}") as origin:
            assert "the user may not do this (NOPERM)" in await complaint(origin)


async def test_a_replica_is_never_used(one_redis: RedisSetup) -> None:
    with RedisServer("--replicaof", "127.0.0.1", str(one_redis.first.port)) as replica:
        async with opened(replica.url) as origin:
            assert "it is a replica, and only a primary may be used" in await complaint(origin)


async def test_a_primary_that_becomes_a_replica_is_left_and_asked_again() -> None:
    with RedisServer() as primary, RedisServer() as server:
        async with opened(server.url) as origin:
            assert (await counted(origin, charge(1, 0))).own == 1
            server.command("REPLICAOF", "127.0.0.1", primary.port)
            wait_until(lambda: server.client.info("replication")["master_link_status"] == "up", "a replica")
            assert "it is a replica and takes no writes (READONLY)" in await heard(origin, charge(2, 1))
            assert "it is a replica, and only a primary may be used" in await heard(origin, charge(3, 1))
            server.command("REPLICAOF", "NO", "ONE")
            assert (await counted(origin, charge(4, 1))).own == 2


async def heard(origin: Origin, call: Call) -> str:
    with pytest.raises(OriginError) as raised:
        await origin.run(0, call, TIMEOUT_S)
    return str(raised.value)


async def test_a_database_that_does_not_exist_is_named(one_redis: RedisSetup) -> None:
    async with opened(f"{one_redis.url}/99") as origin:
        assert "it has no such database" in await complaint(origin)
    async with opened(f"{one_redis.url}/7") as origin:
        await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        assert one_redis.first.client.info("keyspace").keys() >= {"db7"}


async def test_a_server_of_another_kind_is_named(one_redis: RedisSetup, cluster: RedisSetup, sentinel: Any) -> None:
    async with opened(f"redis://{cluster.first.address}") as origin:
        assert "it is part of a Cluster: use redis+cluster://" in await complaint(origin)
    async with opened(f"redis+cluster://{one_redis.first.address}") as origin:
        with pytest.raises(OriginError, match="it is not part of a Cluster: use redis://"):
            await origin.run(0, said(), TIMEOUT_S)
    async with opened(f"redis://{sentinel.setup.sentinel.address}") as origin:
        assert "it is a Sentinel" in await complaint(origin)


async def test_a_server_that_is_not_there_is_named() -> None:
    with refused_address() as dead:
        async with opened(f"redis://{dead}") as origin:
            assert "connection refused" in await complaint(origin)
    async with opened("redis://nowhere.invalid") as origin:
        assert "the host name has no address" in await complaint(origin)


async def test_a_server_out_of_memory_is_named() -> None:
    with RedisServer("--maxmemory", "1", "--maxmemory-policy", "noeviction") as server:
        async with opened(server.url) as origin:
            assert "it is out of memory (OOM, see maxmemory)" in await heard(origin, charge(1, 0))
            server.command("CONFIG", "SET", "maxmemory", "0")
            assert (await counted(origin, charge(2, 0))).own == 1
            assert origin.describe()[0].connected


ERRORS = [
    (b"LOADING Redis is loading the dataset in memory", "it is loading its data (LOADING)"),
    (b"MISCONF Redis is configured to save RDB snapshots, but", "it can't save to disk (MISCONF)"),
    (b"OOM command not allowed when used memory > 'maxmemory'.", "it is out of memory"),
    (b"BUSY Redis is busy running a script.", "it is busy with another script"),
    (b"NOREPLICAS Not enough good replicas to write.", "too few replicas"),
    (b"READONLY You can't write against a read only replica.", "it is a replica and takes no writes"),
    (b"NOPERM this user has no permissions", "the user may not do this"),
    (b"ERR max number of clients reached", "it has no connection left (maxclients)"),
    (b"ERR unknown command `EVALSHA`", "it lacks a command that Headgate needs"),
    (b"ERR something new", "something new"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS, ids=[error.split()[0].decode() for error, _ in ERRORS])
async def test_what_a_server_refuses_is_named(error: bytes, words: str) -> None:
    def answer(command: list[bytes]) -> bytes:
        return healthy(command) or b"-%s\r\n" % error

    async with StubRedis(answer) as stub, opened(f"redis://{stub.address}") as origin:
        assert words in await complaint(origin)


async def test_a_server_that_speaks_something_else_is_named() -> None:
    stub = StubRedis(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    async with stub, opened(f"redis://{stub.address}") as origin:
        assert stub.address in await complaint(origin)


# What goes away


async def test_a_restart_is_another_epoch_and_comes_back_empty() -> None:
    with RedisServer() as server:
        async with opened(server.url) as origin:
            before = await origin.run(0, charge(1, 5), TIMEOUT_S)
            server.restart()
            await until(lambda: not _alive(origin), "the loss to be noticed")
            after = await origin.run(0, charge(2, 0), TIMEOUT_S)
            assert after.epoch != before.epoch
            answer = after.answers[0]
            assert isinstance(answer, WindowAnswer)
            assert answer.current == (1, 1, 0)
            assert (await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)).epoch == after.epoch


def _alive(origin: Any) -> bool:
    return bool(origin._servers[0]._calls.connected)


async def test_a_call_that_loses_its_connection_fails_at_once_and_the_next_is_answered() -> None:
    with RedisServer() as server:
        async with TcpProxy(server.port) as proxy, opened(f"redis://{proxy.address}") as origin:
            await origin.run(0, said(), TIMEOUT_S)
            proxy.lose_replies = True
            call = asyncio.create_task(origin.run(0, charge(1, 0), TIMEOUT_S))
            await until(lambda: bool(server.client.exists("headgate:local/k:k")), "the charge")
            server.command("CLIENT", "KILL", "TYPE", "normal")
            with pytest.raises(OriginError, match=r"it closed the connection|the connection was lost"):
                await call
            proxy.lose_replies = False
            assert await counted(origin, charge(2, 0, sent=1)) == (1, 1, 0), "the lost charge was credit"


async def test_a_reply_that_is_lost_is_counted_once() -> None:
    """The retry is a new call: what the first one charged pays for it."""
    with RedisServer() as server:
        async with TcpProxy(server.port) as proxy, opened(f"redis://{proxy.address}") as origin:
            assert await counted(origin, charge(1, 0)) == (1, 1, 0)
            proxy.lose_replies = True
            with pytest.raises(OriginTimeout, match="no answer in 100 ms"):
                await origin.run(0, charge(2, 1, cost=4, sent=1), SHORT_S)
            proxy.lose_replies = False
            assert await counted(origin, charge(3, 1, cost=4, sent=5)) == (5, 5, 0)
            assert await counted(origin, charge(4, 5, sent=5)) == (6, 6, 0)


async def test_a_late_reply_is_never_the_answer_to_a_later_call() -> None:
    with RedisServer() as server:
        async with opened(server.url) as origin:
            await counted(origin, charge(1, 0))
            server.pause()
            try:
                with pytest.raises(OriginTimeout):
                    await origin.run(0, charge(2, 1, cost=7, sent=1), SHORT_S)
            finally:
                server.resume()
            reply = await origin.run(0, said(), TIMEOUT_S)
            assert (reply.answers, reply.charged) == ((), ())
            assert await counted(origin, charge(3, 8, cost=0, sent=8)) == (8, 8, 0)


async def test_a_call_that_is_cut_off_while_it_is_sent_takes_its_connection_along() -> None:
    """More than the sockets' buffers hold, to a server that stalls; then others come at once."""
    long = Call(charge(1, 0).reports * 200_000, ())
    with RedisServer() as server:
        async with opened(server.url) as origin:
            server.pause()
            try:
                with pytest.raises(OriginTimeout):
                    await origin.run(0, long, 1.0)
                others = [asyncio.create_task(origin.run(0, charge(n, 0), TIMEOUT_S)) for n in (2, 3)]
                await asyncio.sleep(0)
            finally:
                server.resume()
            for reply in await asyncio.gather(*others):
                assert [len(reply.answers), len(reply.charged)] == [1, 1]
            assert server.client.info("commandstats")["cmdstat_role"]["calls"] == 3, "every connection is verified"


async def test_nothing_is_sent_twice() -> None:
    """Timeouts, losses and reconnects: the server sees each call at most once."""
    script = Scripts().of(Call.lua).sha
    with RedisServer() as server:
        async with TcpProxy(server.port) as proxy, opened(f"redis://{proxy.address}") as origin:
            await counted(origin, charge(1, 0))
            before = bytes(proxy.seen).count(script)
            proxy.lose_replies = True
            for number in (2, 3, 4):
                with pytest.raises(OriginTimeout):
                    await origin.run(0, charge(number, 1), SHORT_S)
                proxy.lose_replies = False
                await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
                # The connection is made again with replies, and only then are they lost.
                await origin.run(0, said(), TIMEOUT_S)
                proxy.lose_replies = True
            assert bytes(proxy.seen).count(script) - before == 6


async def test_a_timeout_bounds_the_connecting_too(one_redis: RedisSetup) -> None:
    async with TcpProxy(one_redis.first.port) as proxy:
        proxy.connect_delay_s = 2 * PATIENCE_S
        origin = open_origin(f"redis://{proxy.address}", clock=SystemClock())
        began = time.monotonic()
        try:
            with pytest.raises(OriginTimeout, match="no connection in 100 ms"):
                await origin.run(0, said(), SHORT_S)
        finally:
            await origin.close()
        assert time.monotonic() - began < PATIENCE_S, "neither the call nor the closing waits for it"


async def test_a_slow_connection_is_made_in_the_end_whoever_gave_up(one_redis: RedisSetup) -> None:
    async with TcpProxy(one_redis.first.port) as proxy:
        proxy.connect_delay_s = 0.3
        origin: Any = open_origin(f"redis://{proxy.address}", clock=SystemClock())
        try:
            with pytest.raises(OriginTimeout):
                await origin.run(0, said(), SHORT_S)
            await until(lambda: _alive(origin), "the connection")
            await origin.run(0, said(), TIMEOUT_S)
            assert proxy.connections == 1
        finally:
            await origin.close()


async def test_a_heartbeat_does_not_wait_behind_a_call_that_stalls(one_redis: RedisSetup) -> None:
    async with TcpProxy(one_redis.first.port) as proxy, opened(f"redis://{proxy.address}") as origin:
        proxy.hold_when = Scripts().of(Call.lua).sha
        stalled = asyncio.create_task(origin.run(0, said(), 2 * TIMEOUT_S))
        await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        assert not stalled.done()
        with pytest.raises(OriginTimeout):
            await origin.run(0, said(), SHORT_S)
        with pytest.raises(OriginError, match="dropped after another call's timeout"):
            await stalled


async def test_one_sick_shard_does_not_touch_the_others(three_shards: RedisSetup) -> None:
    async with opened(three_shards.url) as origin:
        three_shards.servers[1].pause()
        try:
            sick = asyncio.create_task(origin.run(1, said(), 2 * TIMEOUT_S))
            for _ in range(5):
                await asyncio.gather(origin.run(0, said(), TIMEOUT_S), origin.run(2, said(), TIMEOUT_S))
            assert not sick.done()
            with pytest.raises(OriginTimeout):
                await origin.run(1, said(), SHORT_S)
            with pytest.raises(OriginError, match="dropped after another call's timeout"):
                await sick
        finally:
            three_shards.servers[1].resume()
        assert [state.connected for state in origin.describe()] == [True, False, True]
        await origin.run(1, said(), TIMEOUT_S)
        assert all(state.connected for state in origin.describe())


async def test_a_change_is_logged_once_and_not_per_call() -> None:
    lines: list[tuple[str, dict[str, Any]]] = []

    class Log:
        def info(self, event: str, **fields: Any) -> None:
            lines.append((event, fields))

        warning = info

    with RedisServer(password=RIGHT) as server:
        origin = open_origin(f"redis://:mistaken@{server.address}", clock=SystemClock(), logger=Log())
        try:
            await origin.open()
            for _ in range(5):
                await heard(origin, said())
            server.command("CONFIG", "SET", "requirepass", "mistaken")
            for _ in range(5):
                await origin.run(0, said(), TIMEOUT_S)
        finally:
            await origin.close()
    assert [event for event, _ in lines] == ["origin_failed", "origin_connected"]
    assert lines[0][1] == {"server": server.address, "reason": "the user name or password is wrong (WRONGPASS)"}
    assert "mistaken" not in repr(lines)
