"""Names that can be taken once, over every origin."""

from headgate.origin.operations.take_claim import Claim, ClaimState, TakeClaim

from tests.conformance.origin.cases import START_MS
from tests.conformance.origin.conftest import Harness
from tests.support.waiting import PATIENCE_S

UNTIL_MS = START_MS + 5_000


async def claim(harness: Harness, value: bytes, name: bytes = b"n\x00\xff") -> Claim:
    return await harness.origin.run(0, TakeClaim(name, value, UNTIL_MS), PATIENCE_S)


async def test_the_first_has_it_and_may_ask_again(harness: Harness) -> None:
    await harness.set_time(START_MS)
    assert await claim(harness, b"7/one") == Claim(ClaimState.MINE, b"7/one")
    assert await claim(harness, b"8/two") == Claim(ClaimState.TAKEN, b"7/one")
    assert await claim(harness, b"7/one") == Claim(ClaimState.MINE, b"7/one")
    assert await claim(harness, b"8/two", b"another") == Claim(ClaimState.MINE, b"8/two")


async def test_nobody_takes_one_whose_time_is_up(harness: Harness) -> None:
    await harness.set_time(START_MS)
    await claim(harness, b"1")
    await harness.set_time(UNTIL_MS)
    assert await claim(harness, b"1") == Claim(ClaimState.EXPIRED)
    assert await claim(harness, b"2", b"another") == Claim(ClaimState.EXPIRED)
