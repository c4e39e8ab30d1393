"""The origins under test, each with a clock that the tests set.

Redis runs for the whole session; between tests it is flushed. Its scripts read their
time from a key, and carry the checks that are compiled in only here.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest
from headgate.clock import SystemClock
from headgate.origin.interface import Origin, OriginError
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.redis_origin import cluster as cluster_module
from headgate.origin.redis_origin import link
from headgate.origin.redis_origin import sentinel as sentinel_module
from headgate.origin.redis_origin.cluster import GROUP_SLOTS, TAGS
from headgate.origin.redis_origin.scripts import Scripts
from headgate.origin.select import open_origin

from tests.conformance.origin.cases import START_MS
from tests.support.clock import ManualClock
from tests.support.redis_servers import (
    BINARY,
    RedisServer,
    SentinelSetup,
    cluster_is_whole,
    cluster_url,
    redis_cluster,
    redis_sentinel,
    redis_shards,
    server_version,
    shards_url,
    wait_until,
)
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE_S

TEST_CLOCK = """
local of = string.match(KEYS[1], '^headgate:here/{%d+}:') or 'headgate:here/'
local now = tonumber(redis.call('GET', of .. 'test-time'))
"""
NOTICE_S = 5.0
"""For a server that was left to be noticed: a failed attempt is no error, so it need not be patient."""
SCRIPTS = Scripts(time=TEST_CLOCK, checks=True)


def pytest_report_header() -> str:
    """Say in the first lines of a run which server it is about."""
    return f"origin: {server_version()}, {BINARY}"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What production allows a server, a busy machine may exceed: here only tests that are about it have it."""
    monkeypatch.setattr(link, "CONNECT_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(cluster_module, "MAP_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(sentinel_module, "ASK_TIMEOUT_S", PATIENCE_S)


def groups_of_rights() -> list[list[str]]:
    """The lists of docs/redis.md, in their order: what every node needs, then what more asks for more."""
    page = (ROOT / "docs" / "redis.md").read_text()
    return [block.split() for block in re.findall(r"(?:^    \+.*\n)+", page, re.MULTILINE)]


def documented_rights() -> list[str]:
    """The words of docs/redis.md, as an operator would copy them."""
    return [right for group in groups_of_rights() for right in group]


class Harness(Protocol):
    """An origin whose time stands until it is set, and that can be made to forget."""

    origin: Origin

    async def set_time(self, ms: int) -> None: ...

    async def wipe(self, *, restart: bool) -> None: ...


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.memory = MemoryOrigin(self.clock, region=b"here")
        self.origin: Origin = self.memory

    async def set_time(self, ms: int) -> None:
        self.clock.step(ms - self.clock.now_ms())

    async def wipe(self, *, restart: bool) -> None:
        self.memory.wipe(b"another" if restart else None)


class RedisSetup(Protocol):
    """Servers that run for the whole session."""

    prefix: str
    """What begins the keys of shard 0."""

    @property
    def url(self) -> str: ...

    @property
    def servers(self) -> list[RedisServer]: ...

    @property
    def first(self) -> RedisServer:
        """The server that has shard 0."""
        ...

    def restart(self) -> None:
        """Another run of the server that has shard 0."""
        ...


@dataclass
class Shards:
    servers: list[RedisServer]
    prefix: str = "headgate:here/"

    @property
    def url(self) -> str:
        return shards_url(self.servers)

    @property
    def first(self) -> RedisServer:
        return self.servers[0]

    def restart(self) -> None:
        self.first.restart()


class Cluster(Shards):
    prefix = f"headgate:here/{{{TAGS[0].decode()}}}:"

    def __init__(self, servers: list[RedisServer]) -> None:
        super().__init__(servers, self.prefix)

    @property
    def url(self) -> str:
        return cluster_url(self.servers)

    @property
    def first(self) -> RedisServer:
        return self.servers[GROUP_SLOTS[0] * len(self.servers) // 16384]

    def restart(self) -> None:
        self.first.restart()
        wait_until(lambda: cluster_is_whole(self.servers), "the Cluster")


@dataclass
class Sentinel:
    setup: SentinelSetup
    prefix: str = "headgate:here/"

    @property
    def url(self) -> str:
        return self.setup.url

    @property
    def servers(self) -> list[RedisServer]:
        return [self.first]

    @property
    def first(self) -> RedisServer:
        return self.setup.primary

    def restart(self) -> None:
        """What a restart is without Sentinel: a failover."""
        self.setup.fail_over()


class RedisHarness:
    def __init__(self, setup: RedisSetup, scripts: Scripts = SCRIPTS) -> None:
        self.setup = setup
        self.time_ms = START_MS
        self._first: RedisServer | None = None
        self.origin = open_origin(setup.url, clock=SystemClock(), region="here", scripts=scripts)

    async def set_time(self, ms: int) -> None:
        self.time_ms = ms
        if self._first is None:
            self._first = self.setup.first  # found once: asking a Sentinel for every step takes longer than the step
        self._first.client.set(self.setup.prefix + "test-time", ms)

    async def wipe(self, *, restart: bool) -> None:
        for server in self.setup.servers:
            server.client.flushall()
        if restart:
            self.setup.restart()
            self._first = None
        await self.set_time(self.time_ms)
        if restart:
            await self._answers()

    async def _answers(self) -> None:
        """Until the origin has noticed that it is another run, whose clock alone was set."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.origin.run(0, Heartbeat(b"noticing"), NOTICE_S)
                    await self.origin.run(0, Call((), ()), NOTICE_S)
                except OriginError:
                    await asyncio.sleep(0.01)
                else:
                    return


@pytest.fixture(scope="session")
def one_redis() -> Iterator[RedisSetup]:
    with redis_shards(1) as servers:
        yield Shards(servers)


@dataclass
class Limited(Shards):
    """As the user of docs/redis.md, who may do what is written there and nothing else."""

    @property
    def url(self) -> str:
        return f"redis://limited:sesame@{self.first.address}"

    def restart(self) -> None:
        super().restart()
        self.allow()

    def allow(self, *more: str) -> None:
        """`+get` is for the clock of the tests, which is a key."""
        rights = ["reset", "on", ">sesame", "~headgate:*", *documented_rights(), "+get", *more]
        self.first.command("ACL", "SETUSER", "limited", *rights)


@pytest.fixture(scope="session")
def limited() -> Iterator[RedisSetup]:
    with redis_shards(1) as servers:
        setup = Limited(servers)
        setup.allow()
        yield setup


@pytest.fixture(scope="session")
def three_shards() -> Iterator[RedisSetup]:
    with redis_shards(3) as servers:
        yield Shards(servers)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisSetup]:
    with redis_cluster(3) as servers:
        yield Cluster(servers)


@pytest.fixture(scope="session")
def sentinel() -> Iterator[RedisSetup]:
    with redis_sentinel() as setup:
        yield Sentinel(setup)


REDIS = ["one_redis", "limited", "three_shards", "cluster", "sentinel"]


WITH_A_LIST = ["memory", *(kind for kind in REDIS if kind != "cluster")]
"""A Cluster has no list of shards: it moves its slots itself."""


@pytest.fixture(params=["memory", *REDIS])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    if request.param == "memory":
        yield MemoryHarness()
        return
    redis_harness = RedisHarness(request.getfixturevalue(request.param))
    try:
        await redis_harness.wipe(restart=False)
        await redis_harness.origin.open()
        yield redis_harness
    finally:
        await redis_harness.origin.close()
