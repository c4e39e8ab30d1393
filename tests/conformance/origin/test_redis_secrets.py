"""Passwords from files, prefixes of their own, and what is said of servers that may lose counts."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from headgate.clock import SystemClock
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.select import open_origin

from tests.conformance.origin.cases import said
from tests.conformance.origin.conftest import RedisSetup
from tests.conformance.origin.test_redis_faults import RIGHTS, charge, counted
from tests.support.redis_servers import RedisServer, redis_cluster, redis_sentinel
from tests.support.waiting import until

TIMEOUT_S = 5.0
PASSWORD = "open/sesame?@%"  # noqa: S105 - of a server that lives for a test
SPELLINGS = (PASSWORD, quote(PASSWORD, safe=""), "sesame")


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = info

    @property
    def risks(self) -> list[str]:
        return [fields["reason"] for event, fields in self.lines if event == "origin_at_risk"]


@contextlib.asynccontextmanager
async def opened(url: str, log: Log | None = None, **more: Any) -> AsyncIterator[Origin]:
    origin = open_origin(url, clock=SystemClock(), logger=log or Log(), **more)
    try:
        await origin.open()
        yield origin
    finally:
        await origin.close()


@pytest.fixture
def guarded() -> Iterator[RedisServer]:
    with RedisServer(password=PASSWORD) as server:
        yield server


async def refusal(origin: Origin) -> str:
    """What a call raises, with all that led to it."""
    with pytest.raises(OriginError) as raised:
        await origin.run(0, said(), TIMEOUT_S)
    shown = "".join(traceback.format_exception(raised.value)) + repr(origin.describe())
    assert not any(spelling in shown for spelling in SPELLINGS), shown
    return str(raised.value)


@pytest.mark.parametrize("form", ["file of the URL", "file of the password"])
async def test_a_password_that_is_rotated_is_found_at_the_next_connection(
    guarded: RedisServer, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "secret"

    def write(password: str) -> None:
        whole = form == "file of the URL"
        file.write_text(f"redis://:{quote(password, safe='')}@{guarded.address}\n" if whole else f"{password}\n")

    write("not-it")
    url = f"file:{file}" if form == "file of the URL" else f"redis://{guarded.address}?password_file={file}"
    async with opened(url) as origin:
        assert "the user name or password is wrong (WRONGPASS)" in await refusal(origin)
        write(PASSWORD)
        await origin.run(0, said(), TIMEOUT_S)
        guarded.command("CONFIG", "SET", "requirepass", "another")
        write("another")
        guarded.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        # The connection that was cut is noticed with the first call, at the latest.
        with contextlib.suppress(OriginError):
            await origin.run(0, said(), TIMEOUT_S)
        await origin.run(0, said(), TIMEOUT_S)
        file.unlink()
        guarded.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with contextlib.suppress(OriginError):
            await origin.run(0, said(), TIMEOUT_S)
        assert f"{file}: can't be read: No such file or directory" in await refusal(origin)


async def test_a_user_s_password_and_a_cluster_s_too_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(PASSWORD)
    with redis_cluster(1) as (server,):
        server.command("ACL", "SETUSER", "limits", "on", f">{PASSWORD}", "~headgate:*", *RIGHTS, "+cluster")
        async with opened(f"redis+cluster://limits@{server.address}?password_file={file}") as origin:
            await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
            file.unlink()
        async with opened(f"redis+cluster://limits@{server.address}?password_file={file}") as origin:
            assert f"{file}: can't be read" in await refusal(origin)


async def test_sentinels_have_a_file_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("wrong-sesame")
    with redis_sentinel() as setup:
        setup.sentinel.command("ACL", "SETUSER", "asker", "on", f">{PASSWORD}", "+sentinel")
        url = f"{setup.url}?sentinel_user=asker&sentinel_password_file={file}"
        async with opened(url) as origin:
            assert "no Sentinel can be asked: the user name or password is wrong (WRONGPASS)" in await refusal(origin)
            file.write_text(PASSWORD)
            await origin.run(0, said(), TIMEOUT_S)


async def test_a_server_that_quotes_the_password_is_not_quoted() -> None:
    async def quotes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(f"-ERR who would take {PASSWORD} for a password\r\n".encode())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(quotes, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened(f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{port}") as origin:
        assert "it refuses, in words that hold the password" in await refusal(origin)


# Prefixes


async def test_regions_and_prefixes_on_one_redis_share_nothing(one_redis: RedisSetup) -> None:
    one_redis.first.client.flushall()
    alone: list[dict[str, Any]] = [
        {"region": "eu"},
        {"region": "us"},
        {"region": "eu", "prefix": "staging"},
        {"prefix": "a"},
        {"prefix": "a:k"},
    ]
    async with contextlib.AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(opened(one_redis.url, **more)) for more in alone]
        for origin in origins:
            assert (await counted(origin, charge(1, 0))).region_total == 1
            assert (await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)).live_nodes == 1
        again = await stack.enter_async_context(opened(one_redis.url, region="us", prefix="staging"))
        assert (await counted(again, charge(2, 1))).region_total == 2, "the same prefix is the same counts"
    keys = {key.decode() for key in one_redis.first.command("KEYS", "*")}
    prefixes = ("headgate:eu/", "headgate:us/", "staging/", "a/", "a:k/")
    named = ("k:k", "live", "live2", "memory", "listed", "list:")
    assert keys == {prefix + key for prefix in prefixes for key in named}


async def test_a_prefix_leaves_a_cluster_s_keys_in_their_slots(cluster: RedisSetup) -> None:
    async with opened(cluster.url, prefix="staging") as origin:
        for group in range(origin.shards):
            await origin.run(group, Heartbeat(b"run"), TIMEOUT_S)
            await origin.run(group, charge(1, 0), TIMEOUT_S)
    keys = [key for server in cluster.servers for key in server.command("KEYS", "staging/*")]
    assert len(keys) == 6 * origin.shards, "a limit, who lives by which list, and the name of the memory"


# Servers that may lose counts


@pytest.mark.parametrize(
    ("options", "rights", "warned"),
    [
        (("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"), (), True),
        (("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"), ("-config",), True),
        (("--maxmemory", "100mb", "--maxmemory-policy", "noeviction"), (), False),
        (("--maxmemory", "0", "--maxmemory-policy", "allkeys-lru"), (), False),
    ],
)
async def test_a_policy_that_drops_keys_is_said_once(
    options: tuple[str, ...], rights: tuple[str, ...], warned: bool
) -> None:
    log = Log()
    with RedisServer(*options) as server:
        server.command("ACL", "SETUSER", "limits", "on", ">p", "~headgate:*", *RIGHTS, *rights)
        async with opened(f"redis://limits:p@{server.address}", log) as origin:
            for _ in range(3):
                await origin.run(0, said(), TIMEOUT_S)
                await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
                server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                with contextlib.suppress(OriginError):
                    await origin.run(0, said(), TIMEOUT_S)
                with contextlib.suppress(OriginError):
                    await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
            assert [f"is {options[-1]}:" in reason for reason in log.risks] == [True] * warned
    assert all(fields["server"] == server.address for _, fields in log.lines)


async def test_every_one_of_many_servers_is_named() -> None:
    log = Log()
    with contextlib.ExitStack() as stack:
        options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
        servers = [stack.enter_context(RedisServer(*options)) for _ in range(7)]
        async with opened("redis://" + ",".join(server.address for server in servers), log):
            await until(lambda: len(log.risks) == 7, "a line for each")


async def test_a_server_that_does_not_tell_its_memory_is_used_without_a_word() -> None:
    """As of a service that hides it, or forbids that part of INFO."""
    log = Log()
    with RedisServer("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        narrow = [right for right in RIGHTS if right != "+info"]
        server.command("ACL", "SETUSER", "limits", "on", ">p", "~headgate:*", *narrow, "+info|server")
        async with opened(f"redis://limits:p@{server.address}", log) as origin:
            await origin.run(0, said(), TIMEOUT_S)
    assert log.risks == []
