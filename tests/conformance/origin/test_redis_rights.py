"""The user of docs/redis.md: the whole suite runs as it (`limited` in conftest.py), and no right is too many.

Without any one of them something is refused, and what is said names the command.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
from headgate.clock import SystemClock
from headgate.origin.interface import Origin, OriginError
from headgate.origin.select import open_origin

from tests.conformance.origin.cases import CASES, START_MS
from tests.conformance.origin.conftest import Limited, RedisHarness, documented_rights
from tests.conformance.origin.test_redis_faults import charge, counted, exchange
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S

RIGHTS = documented_rights()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Limited]:
    with RedisServer() as server:
        yield Limited([server])


def test_there_are_rights_to_try() -> None:
    assert len(RIGHTS) > 15
    assert len(set(RIGHTS)) == len(RIGHTS)


async def cases(harness: RedisHarness) -> AsyncIterator[str]:
    """What is refused of all calls of the table, each at its time."""
    for step in (step for case in CASES for step in case.steps):
        if step.call is None:
            continue
        await harness.set_time(START_MS + step.at_ms)
        try:
            await harness.origin.call(0, step.call, PATIENCE_S)
        except OriginError as refused:
            yield str(refused)


async def as_in_production(origin: Origin) -> AsyncIterator[str]:
    """What is refused of a charge, a heartbeat and all that an exchanger asks for."""
    for asked in (counted(origin, charge(1, 0)), origin.heartbeat(0, b"run", PATIENCE_S), exchange(origin)):
        try:
            await asked
        except OriginError as refused:
            yield str(refused)


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
