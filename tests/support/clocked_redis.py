"""A real Redis whose clock can be set while it runs: libfaketime stands between it and the system's clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import libfaketime

from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

LIBRARY = Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"


class ClockedRedis:
    """A server and the offset of its clock."""

    def __init__(self, server: RedisServer, offset: Path) -> None:
        self.server = server
        self._offset = offset

    def set_clock(self, offset_s: int) -> None:
        """From now on its clock is so far ahead of ours, or behind."""
        before_s, _ = self.server.client.time()
        was_s = int(self._offset.read_text()[:-1])
        # In one step: a file that is being written may be read half.
        new = self._offset.with_suffix(".new")
        new.write_text(f"{offset_s:+d}s")
        new.replace(self._offset)
        expected_s = before_s + offset_s - was_s
        wait_until(lambda: abs(self.server.client.time()[0] - expected_s) < 300, "the clock to be set")


@contextmanager
def clocked_redis(directory: Path) -> Iterator[ClockedRedis]:
    offset = directory / "offset"
    offset.write_text("+0s")
    environ = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    server = RedisServer(environ=environ)
    try:
        yield ClockedRedis(server, offset)
    finally:
        server.close()
