"""Commands as Redis reads them: the bytes that the driver would send."""

import pytest
from headgate.origin.redis_origin.link import Command, packed_command
from redis.asyncio.connection import Connection


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((b"ASKING",), id="one word"),
        pytest.param((b"EVALSHA", "0123abcd", 2, b"k\r\n\x00", b"", 10**15, -1), id="texts, bytes, numbers, nothing"),
        pytest.param((b"SCRIPT", b"LOAD", b"x" * 20_000), id="long"),
    ],
)
def test_a_command_is_packed_as_the_driver_packs_it(command: Command) -> None:
    assert packed_command(command) == b"".join(Connection().pack_commands([command]))
