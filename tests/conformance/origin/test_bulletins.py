"""Bulletins, over every origin: the last one of each run, with its age, and what nodes are asked to say."""

import pytest
from headgate.origin.operations import bulletins
from headgate.origin.operations.bulletins import KEPT_MS, WANTED_MS, Bulletin, PostBulletin, Posted, ReadBulletins

from tests.conformance.origin.cases import START_MS
from tests.conformance.origin.conftest import Harness
from tests.support.waiting import PATIENCE_S


async def post(harness: Harness, run: bytes, content: bytes) -> Posted:
    return await harness.origin.run(0, PostBulletin(run, content), PATIENCE_S)


async def read(harness: Harness, wanted: bytes = b"2") -> tuple[Bulletin, ...]:
    return await harness.origin.run(0, ReadBulletins(wanted), PATIENCE_S)


async def test_the_last_of_each_run_is_read_with_its_age_whatever_its_bytes(harness: Harness) -> None:
    every_byte = bytes(range(256))
    assert await read(harness) == ()
    await post(harness, b"b", b"old")
    await harness.set_time(START_MS + 1_000)
    await post(harness, b"a", b"another's")
    await post(harness, b"b", every_byte)
    await harness.set_time(START_MS + 3_500)
    assert await read(harness) == (Bulletin(b"a", 2_500, b"another's"), Bulletin(b"b", 2_500, every_byte))


async def test_who_posts_hears_what_is_wanted_and_no_longer_than_somebody_looks(harness: Harness) -> None:
    assert await post(harness, b"a", b"brief") == Posted(True, ())
    await read(harness, b"20")
    await harness.set_time(START_MS + 1)
    await read(harness, b"2")
    assert await post(harness, b"a", b"full") == Posted(True, (b"2", b"20"))
    await harness.set_time(START_MS + WANTED_MS)
    assert await post(harness, b"a", b"full") == Posted(True, (b"2",))
    await harness.set_time(START_MS + WANTED_MS + 1)
    assert await post(harness, b"a", b"brief") == Posted(True, ())


async def test_a_silent_run_is_kept_for_a_while_and_one_that_ends_is_gone(harness: Harness) -> None:
    await post(harness, b"silent", b"one")
    await post(harness, b"ends", b"two")
    await post(harness, b"ends", b"")
    await harness.set_time(START_MS + KEPT_MS - 1)
    await post(harness, b"lives", b"three")
    assert [one.run for one in await read(harness)] == [b"lives", b"silent"]
    await harness.set_time(START_MS + KEPT_MS)
    assert [one.run for one in await read(harness)] == [b"lives"]


async def test_a_full_board_refuses_newcomers_until_somebody_is_forgotten(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulletins, "MOST_BULLETINS", 2)
    monkeypatch.setattr(bulletins, "MOST_WANTED", 1)
    await read(harness, b"2")
    await read(harness, b"20")
    assert await post(harness, b"a", b"one") == Posted(True, (b"2",))
    assert (await post(harness, b"b", b"two")).accepted
    assert not (await post(harness, b"c", b"three")).accepted
    assert (await post(harness, b"a", b"again")).accepted, "who is there stays"
    assert [one.content for one in await read(harness)] == [b"again", b"two"]
    await harness.set_time(START_MS + KEPT_MS)
    assert (await post(harness, b"c", b"three")).accepted
    assert [one.run for one in await read(harness)] == [b"c"]
