"""What comes for the server beside the front is handed on a little at a time, and what it answers as it comes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from headgate.transport import fallback
from headgate.transport.fallback import TAKEN_BYTES, PacedRelay

from tests.support.waiting import until

MUCH = bytes(range(256)) * 400


class Target:
    """A server that answers everything twice, and counts what it got."""

    def __init__(self) -> None:
        self.received = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(65_536):
                self.received += len(data)
                writer.write(data * 2)
                await writer.drain()


@contextlib.asynccontextmanager
async def relayed(directory: Path) -> AsyncIterator[tuple[Target, str]]:
    target, path = Target(), str(directory / "front.sock")
    listening = await asyncio.start_unix_server(target.serve, directory / "target.sock")
    relay = PacedRelay(str(directory / "target.sock"))
    await relay.start(path)
    try:
        yield target, path
    finally:
        await relay.stop()
        listening.close()


async def test_everything_arrives_both_ways_and_ends_end_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "PAUSE_S", 0)
    async with relayed(tmp_path) as (target, path):
        reader, writer = await asyncio.open_unix_connection(path)
        for data in (b"short", MUCH):
            writer.write(data)
            assert len(await reader.readexactly(2 * len(data))) == 2 * len(data)
        assert target.received == 5 + len(MUCH)
        writer.close()
        assert await reader.read() == b""


async def test_all_connections_together_are_held_to_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "PAUSE_S", 3_600)
    async with relayed(tmp_path) as (target, path):
        writers = [(await asyncio.open_unix_connection(path))[1] for _ in range(5)]
        for writer in writers:
            writer.write(MUCH)
        await until(lambda: target.received > 0, "the first part")
        for _ in range(200):
            await asyncio.sleep(0)
        assert target.received == TAKEN_BYTES
        for writer in writers:
            writer.close()
