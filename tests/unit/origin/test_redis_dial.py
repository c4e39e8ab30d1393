"""Which servers may be used, by what they say of themselves: a server by hand, over a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import hiredis
import pytest
from headgate.origin.redis_origin.dial import Dialler
from headgate.origin.redis_origin.errors import NotUsable
from headgate.origin.redis_origin.link import Lost
from headgate.origin.redis_origin.url import Credentials, RedisAddress

from tests.support.waiting import PATIENCE_S

MODES = {
    "Redis": (b"redis_mode:standalone", b"redis_mode:cluster"),
    "Valkey": (b"server_mode:standalone", b"server_mode:cluster"),
}
"""The line of INFO with the server's mode: on its own, and in a Cluster."""


@contextlib.asynccontextmanager
async def served(mode: bytes) -> AsyncIterator[RedisAddress]:
    """A primary that answers ROLE and INFO, and OK to everything else."""
    info = b"run_id:abc\r\n" + mode + b"\r\n"
    answers = {b"ROLE": b"*1\r\n$6\r\nmaster\r\n", b"INFO": b"$%d\r\n%s\r\n" % (len(info), info)}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while data := await reader.read(65_536):
            commands.feed(data)
            while command := commands.gets():
                writer.write(answers.get(command[0], b"+OK\r\n"))
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        try:
            yield RedisAddress(*server.sockets[0].getsockname()[:2])
        finally:
            await asyncio.wait_for(ended.wait(), PATIENCE_S)


async def dialled(mode: bytes, *, cluster: bool) -> bytes:
    """The epoch of a connection that was made."""
    async with served(mode) as address:
        session = await Dialler(Credentials, None, cluster=cluster).dial(address)
        session.drop(Lost("enough"))
        return session.epoch


@pytest.mark.parametrize("server", MODES)
async def test_a_server_is_used_as_the_url_says(server: str) -> None:
    alone, in_cluster = MODES[server]
    assert await dialled(alone, cluster=False) == b"abc"
    assert await dialled(in_cluster, cluster=True) == b"abc"


@pytest.mark.parametrize("server", MODES)
async def test_a_server_of_the_other_mode_is_refused(server: str) -> None:
    alone, in_cluster = MODES[server]
    with pytest.raises(NotUsable, match="it is not part of a Cluster: use redis://"):
        await dialled(alone, cluster=True)
    with pytest.raises(NotUsable, match=r"it is part of a Cluster: use redis\+cluster://"):
        await dialled(in_cluster, cluster=False)
